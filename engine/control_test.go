package engine_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// switched counts how often it is switched on and off.
type switched struct {
	*lines
	ctx     *txn.Context
	on, off *atomic.Int64
	emitted *atomic.Int64
}

func (s *switched) Open(ctx *txn.Context) error { s.ctx = ctx; return nil }
func (s *switched) Activate() error             { s.on.Add(1); return nil }
func (s *switched) Deactivate() error           { s.off.Add(1); return nil }

func (s *switched) NextTuple(out *txn.Collector) (txn.Status, error) {
	st, err := s.lines.NextTuple(out)
	if st == txn.Emitted && s.emitted.Add(1) == 5 {
		s.ctx.RequestCheckpoint()
		return txn.Idle, nil
	}
	return st, err
}

func TestOperatorStopsAndStartsTheInputAndAsksForCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, want := sample(1, 20)
		var on, off, emitted atomic.Int64
		var last atomic.Pointer[engine.Progress]
		b, c := &board{}, engine.NewControl()
		gate := func(_, n int) bool { return n < 10 || on.Load() > 0 }
		spout := func() txn.Spout {
			l := newLines(in...)
			l.gate = gate
			return &switched{lines: l, on: &on, off: &off, emitted: &emitted}
		}
		topo := wordCount(t, spout, func() txn.Bolt { return split{} }, b)
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(context.Background(), topo, engine.WithControl(c),
				conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 3600_000}),
				engine.WithProgress(func(p engine.Progress) { last.Store(&p) }))
			ended <- err
		}()
		// The spout asks for a checkpoint by itself once five lines are out.
		time.Sleep(3 * time.Second)
		if p := last.Load(); p == nil || p.Committed != 1 {
			t.Fatalf("progress %+v, want one checkpoint that the spout asked for", p)
		}
		c.Deactivate()
		c.Checkpoint()
		time.Sleep(3 * time.Second)
		if p := last.Load(); p.Committed != 2 || off.Load() < 1 || on.Load() != 0 {
			t.Fatalf("%d checkpoints, switched off %d times and on %d times", p.Committed, off.Load(), on.Load())
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended while it was inactive: %v", err)
		default:
		}
		c.Activate()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := b.get(); !maps.Equal(got, want) {
			t.Errorf("%d words published, want %d", len(got), len(want))
		}
	})
}
