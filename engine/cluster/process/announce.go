package process

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/isobar-io/isobar/engine/cluster"
)

// announce tells workers where this topology master is, again whenever the store is back,
// which may have lost everything, and whenever something else is told. It ends the run if a
// later topology master has told where it is: workers go there and never come back, so this
// one is of no use even if it is the right one. Started again it is the latest.
func (m *leader) announce(ctx context.Context) {
	for {
		later := false
		err := persist(ctx, m.Logger, "tell workers where their topology master is", func(ctx context.Context) (err error) {
			later, err = m.claim(ctx)
			return err
		})
		if err != nil {
			return
		}
		if later {
			m.Logger.Error("there is a later topology master")
			m.control.Abandon()
			return
		}
		select {
		case <-m.Store.Changes():
		case <-m.announced:
		case <-ctx.Done():
			return
		}
	}
}

// claim writes down where this topology master is, unless a later one has done so. A write
// that is late must not undo that one's, hence the revision.
func (m *leader) claim(ctx context.Context) (later bool, err error) {
	own := cluster.MasterRecord{Epoch: m.Epoch, Incarnation: m.Incarnation, Address: m.address, Listen: m.Metrics}
	data, err := json.Marshal(own)
	if err != nil {
		return false, err
	}
	b, err := m.Store.Bucket(ctx, cluster.TopologyBucket(m.ID), false)
	if err != nil {
		return false, err
	}
	e, err := b.Get(ctx, cluster.KeyMaster)
	if errors.Is(err, cluster.ErrNotFound) {
		_, err = b.Create(ctx, cluster.KeyMaster, data)
		return false, err
	}
	if err != nil {
		return false, err
	}
	var there cluster.MasterRecord
	if json.Unmarshal(e.Value, &there) == nil {
		if there == own {
			return false, nil
		}
		if there.Epoch > own.Epoch || there.Epoch == own.Epoch && there.Incarnation > own.Incarnation {
			return true, nil
		}
	}
	_, err = b.Update(ctx, cluster.KeyMaster, data, e.Revision)
	return false, err
}
