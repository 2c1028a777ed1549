package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// heart tells the cluster that the supervisor lives. It shares nothing with what may take
// time but the picture, which others replace.
type heart struct {
	cfg     Config
	started time.Time
	picture atomic.Pointer[picture]
	nudge   chan struct{} // there is another picture
}

// picture is what a heartbeat tells.
type picture struct {
	processes []cluster.ProcessStatus
	used      []int
	unhealthy string
}

func newHeart(cfg Config) *heart {
	h := &heart{cfg: cfg, started: time.Now(), nudge: make(chan struct{}, 1)}
	h.picture.Store(&picture{})
	return h
}

func (h *heart) show(p *picture) {
	h.picture.Store(p)
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// nudgeShare: between two heartbeats there is at least that part of HeartbeatEvery.
const nudgeShare = 20

// againShare: a heartbeat that could not be written, which may have taken a whole
// HeartbeatEvery to find out, is written again after that part of it.
const againShare = 5

// beat writes a heartbeat each HeartbeatEvery, and soon after a change, until ctx ends.
func (h *heart) beat(ctx context.Context) {
	record := cluster.Supervisor{
		ID: h.cfg.ID, Host: h.cfg.Host, Machine: h.cfg.Machine, Ports: h.cfg.Ports,
		Started: h.started, Version: h.cfg.Version, OS: h.cfg.processor(),
		MemoryMB: h.cfg.MemoryMB, CPU: h.cfg.CPU, Labels: h.cfg.Labels,
	}
	gap := h.cfg.HeartbeatEvery / nudgeShare
	failing := false
	for {
		record.Beat++
		p := h.picture.Load()
		record.Processes, record.Used, record.Unhealthy = p.processes, p.used, p.unhealthy
		err := h.write(ctx, record)
		switch {
		case err == nil && failing:
			h.cfg.Logger.Info("the heartbeat is written again")
		case err == nil || failing || ctx.Err() != nil:
		case errors.Is(err, cluster.ErrNotFound):
			h.cfg.Logger.Info("the heartbeat waits for nimbus, which makes the buckets", "err", err)
		default:
			h.cfg.Logger.Warn("the heartbeat cannot be written; processes go on", "err", err)
		}
		next := h.cfg.HeartbeatEvery
		if failing = err != nil; failing {
			next /= againShare
		}
		if !pause(ctx, gap, nil) || !pause(ctx, next-gap, h.nudge) {
			return
		}
	}
}

// pause waits for a time, or until it is woken. It returns false when ctx has ended.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
		return false
	}
	return true
}

func (h *heart) write(ctx context.Context, record cluster.Supervisor) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.HeartbeatEvery)
	defer cancel()
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	bucket, err := h.cfg.Store.Bucket(ctx, cluster.BucketSupervisors, false)
	if err != nil {
		return err
	}
	_, err = bucket.Put(ctx, h.cfg.ID, value)
	return err
}

// farewell removes the heartbeat, so that nobody waits for the next one.
func (h *heart) farewell(ctx context.Context) error {
	bucket, err := h.cfg.Store.Bucket(ctx, cluster.BucketSupervisors, false)
	if err == nil {
		err = bucket.Delete(ctx, h.cfg.ID, 0)
	}
	if err != nil {
		return fmt.Errorf("remove the heartbeat of supervisor %s: %w", h.cfg.ID, err)
	}
	return nil
}
