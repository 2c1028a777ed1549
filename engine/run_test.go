package engine_test

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func TestWordsAreCountedOnceInEveryMode(t *testing.T) {
	in, want := sample(3, 2000)
	for name, kv := range map[string]map[string]any{
		"exactly once":  {},
		"at least once": {"transaction.exactly.once.mode": false},
		"at most once":  {"transaction.topology": false},
		"no limit":      {"transaction.max.pending.batch": 0},
		"one pending":   {"transaction.max.pending.batch": 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			topo := wordCount(t, func() txn.Spout { return newLines(in...) }, func() txn.Bolt { return split{} }, b)
			res, err := engine.Run(t.Context(), topo, conf(t, kv))
			if err != nil {
				t.Fatal(err)
			}
			if res.Outcome != checkpoint.Completed {
				t.Errorf("outcome %v", res.Outcome)
			}
			if got := b.get(); !maps.Equal(got, want) {
				t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
			}
		})
	}
}

// failing fails now and then, each time in another way.
type failing struct {
	split
	n *atomic.Int64
}

func (f failing) Execute(tp *tuple.Tuple, out *txn.Collector) error {
	switch f.n.Add(1) {
	case 700, 5000:
		return errors.New("no")
	case 2100, 7000:
		panic("out of order")
	}
	return f.split.Execute(tp, out)
}

func TestFailedTasksRollBackAndCountOnce(t *testing.T) {
	in, want := sample(3, 2000)
	b := &board{}
	var n atomic.Int64
	topo := wordCount(t, func() txn.Spout { return newLines(in...) }, func() txn.Bolt { return failing{n: &n} }, b)
	res, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.restart.max": 0}))
	if err != nil {
		t.Fatal(err)
	}
	if res.Restarts == 0 {
		t.Error("nothing failed")
	}
	if got := b.get(); !maps.Equal(got, want) {
		t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
	}
}

func TestErrorNamesComponentTaskStreamAndTuple(t *testing.T) {
	b := &board{}
	topo := wordCount(t, func() txn.Spout { return newLines([]string{"one"}, []string{"two"}) }, func() txn.Bolt { return bad{} }, b)
	_, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.restart.max": 1}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`component "split"`, "task ", `stream "default" of "lines"`, `"one"`, "cannot split"} {
		if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), strings.Replace(want, "one", "two", 1)) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

type bad struct{ split }

func (bad) Execute(*tuple.Tuple, *txn.Collector) error { return errors.New("cannot split") }

func TestRerunHasNothingToDoAndPublishesAgain(t *testing.T) {
	in, want := sample(2, 500)
	store := memstore.New()
	for i := range 3 {
		b := &board{}
		topo := wordCount(t, func() txn.Spout { return newLines(in...) }, func() txn.Bolt { return split{} }, b)
		res, err := engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && res.Committed != 0 {
			t.Errorf("rerun committed %d checkpoints", res.Committed)
		}
		if got := b.get(); !maps.Equal(got, want) {
			t.Errorf("run %d published %d words, want %d", i, len(got), len(want))
		}
	}
}
