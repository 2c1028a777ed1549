package supervisor

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/isobar-io/isobar/engine/cluster"
)

// rivalBeats is for how many heartbeats a record is watched that another machine has
// written.
const rivalBeats = 3

// alone returns an error if another machine is seen to run a supervisor of the same id, as
// when a data folder was copied: both would start everything, and fence each other's
// processes for ever. It waits only if the last heartbeat came from elsewhere, and finds
// out nothing while the store is away.
func (h *heart) alone(ctx context.Context) error {
	first, ok := h.last(ctx)
	if !ok || first.Host == h.cfg.Host && first.Machine == h.cfg.Machine {
		return nil
	}
	h.cfg.Logger.Info("the last heartbeat of this supervisor came from elsewhere; waiting whether another does", "host", first.Host)
	for range rivalBeats {
		if !pause(ctx, h.cfg.HeartbeatEvery, nil) {
			return nil
		}
		if now, ok := h.last(ctx); ok && (now.Beat != first.Beat || !now.Started.Equal(first.Started)) {
			return fmt.Errorf("start supervisor %q: one of this id runs on host %s: give each machine a supervisor.id and a data folder of its own", h.cfg.ID, now.Host)
		}
	}
	return nil
}

// last returns the last heartbeat, if there is one to be had.
func (h *heart) last(ctx context.Context) (record cluster.Supervisor, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.HeartbeatEvery)
	defer cancel()
	bucket, err := h.cfg.Store.Bucket(ctx, cluster.BucketSupervisors, false)
	if err != nil {
		return record, false
	}
	e, err := bucket.Get(ctx, h.cfg.ID)
	if err != nil {
		return record, false
	}
	return record, json.Unmarshal(e.Value, &record) == nil
}
