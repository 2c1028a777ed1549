package process

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Led reports whether a topology master, on whatever machine, has told that the topology
// was led: then there has been a head in the checkpoint store. It is not known while the
// coordination store is away, and nobody waits for that.
func Led(ctx context.Context, s cluster.Store, id string) bool {
	if !s.Connected() {
		return false
	}
	ctx, done := context.WithTimeout(ctx, intentTime)
	defer done()
	told, err := lastTold(ctx, s, id)
	return err == nil && told.Led
}

// lastTold returns the status that was told last; an empty one if there is none that can be
// read.
func lastTold(ctx context.Context, s cluster.Store, id string) (told cluster.RunStatus, err error) {
	b, err := s.Bucket(ctx, cluster.TopologyBucket(id), false)
	if err != nil {
		return told, err
	}
	e, err := b.Get(ctx, cluster.KeyStatus)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return told, nil
	case err != nil:
		return told, err
	case json.Unmarshal(e.Value, &told) != nil:
		return cluster.RunStatus{}, nil
	}
	return told, nil
}

// askLed learns what was told before this topology master tells anything. The caller holds
// writing.
func (m *leader) askLed(ctx context.Context) error {
	if m.status.asked {
		return nil
	}
	told, err := lastTold(ctx, m.Store, m.ID)
	if err != nil {
		return err
	}
	m.status.asked = true
	m.status.led.Store(told.Led)
	return nil
}

// led reports whether a region has a generation.
func led(r cluster.RunStatus) bool {
	return slices.ContainsFunc(r.Regions, func(g cluster.RegionState) bool { return g.Generation > 0 })
}
