package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// tired is a spout that takes its time to finish a batch.
type tired struct {
	*tagged
	finish time.Duration
}

func (s *tired) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	time.Sleep(s.finish)
	return s.tagged.FinishBatch(n)
}

// tiredJoin takes its time to finish a batch and to commit it, and fails at first.
type tiredJoin struct {
	*join
	failed bool
}

func (j *tiredJoin) FinishBatch(n txn.BatchID, out *txn.Collector) (any, error) {
	time.Sleep(4 * time.Second)
	return j.join.FinishBatch(n, out)
}

func (j *tiredJoin) Commit(context.Context, txn.BatchID, any) ([]byte, error) {
	if !j.failed {
		j.failed = true
		return nil, errors.New("not yet")
	}
	time.Sleep(5 * time.Second)
	return nil, nil
}

func TestManifestsSayHowLongTheyTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var emitted, executed, counted perBatch
		spout := func(name string, finish time.Duration) func() txn.Spout {
			return func() txn.Spout { return &tired{&tagged{name: name, total: 3, emitted: &emitted}, finish} }
		}
		b := engine.NewTopologyBuilder()
		b.SetSpout("one", spout("one", time.Second), 1)
		b.SetSpout("two", spout("two", 3*time.Second), 1)
		b.SetBolt("join", func() txn.Bolt { return &tiredJoin{join: &join{executed: &executed, counted: &counted}} }, 1).
			GlobalGrouping("one").GlobalGrouping("two")
		e := <-start(t.Context(), build(t, b), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000}),
			engine.WithStore(store, memstore.NewOpener(store)))
		if e.err != nil {
			t.Fatal(e.err)
		}
		m, err := checkpoint.ReadManifest(t.Context(), store, *e.res.Last)
		if err != nil {
			t.Fatal(err)
		}
		const second = int64(time.Second / time.Microsecond)
		const retry = second / 20
		want := map[string]checkpoint.Took{
			"one": {Copy: second}, "two": {Copy: 3 * second},
			"join": {Align: 2 * second, Copy: 4 * second, Write: 5*second + retry},
		}
		for _, task := range m.Tasks {
			if task.Took != want[task.Component] {
				t.Errorf("%s took %+v, want %+v", task.Component, task.Took, want[task.Component])
			}
		}
		if whole := 12*second + retry; len(m.Tasks) != len(want) || m.TookMicros != whole {
			t.Errorf("the checkpoint of %d tasks took %d microseconds, want %d", len(m.Tasks), m.TookMicros, whole)
		}
	})
}
