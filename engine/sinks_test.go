package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// target is a system outside. Calls fail now and then, before or after they have been
// carried out.
type target struct {
	mu        sync.Mutex
	rng       *rand.Rand
	words     map[string]int64
	prepared  map[txn.TransactionID][]string
	published map[txn.TransactionID]bool
	markers   map[string]txn.TransactionID // by component and task
	batches   []txn.BatchID
}

func newTarget() *target {
	return &target{
		rng:       rand.New(rand.NewPCG(1, 2)),
		words:     map[string]int64{},
		prepared:  map[txn.TransactionID][]string{},
		published: map[txn.TransactionID]bool{},
		markers:   map[string]txn.TransactionID{},
	}
}

var errTarget = errors.New("the target does not answer")

// call carries out do, unless it fails before; it may fail after.
func (t *target) call(do func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.rng.IntN(6) {
	case 0:
		return errTarget
	case 1:
		return errors.Join(do(), errTarget)
	}
	return do()
}

func (t *target) write(words []string) {
	for _, w := range words {
		t.words[w]++
	}
}

// twoPhase is a txn.TwoPhaseSink.
type twoPhase struct {
	t     *target
	words []string
}

func (s *twoPhase) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.words = append(s.words, t.Str(0))
	return nil
}

func (s *twoPhase) Finish(txn.TransactionID) (any, error) {
	out := s.words
	s.words = nil
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func (s *twoPhase) Prepare(_ context.Context, id txn.TransactionID, out any) ([]byte, error) {
	err := s.t.call(func() error { s.t.prepared[id] = out.([]string); return nil })
	return []byte(id.String()), err
}

func (s *twoPhase) Publish(_ context.Context, id txn.TransactionID, data []byte) error {
	return s.t.call(func() error {
		if s.t.published[id] {
			return nil
		}
		words, ok := s.t.prepared[id]
		if !ok || string(data) != id.String() {
			return txn.Fatal(fmt.Errorf("transaction %s is not prepared", id))
		}
		s.t.published[id] = true
		delete(s.t.prepared, id)
		s.t.write(words)
		return nil
	})
}

func (s *twoPhase) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.words = nil
	maps.DeleteFunc(s.t.prepared, func(id txn.TransactionID, _ []string) bool { return void(id) })
	return nil
}

// stagedSink is a txn.StagedSink.
type stagedSink struct {
	txn.Stage
	t *target
}

func (s *stagedSink) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.Add([]byte(t.Str(0)))
	return nil
}

func (s *stagedSink) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	return s.t.call(func() error {
		key := fmt.Sprint(id.Run, id.Component, id.Task)
		if last, ok := s.t.markers[key]; ok && last.Batch >= id.Batch {
			return nil
		}
		s.t.markers[key] = id
		for _, r := range records {
			s.t.words[string(r)]++
		}
		return nil
	})
}

func TestSinksPublishOnceWhateverFailsAndHoweverManyTasksThereAre(t *testing.T) {
	for name, sink := range map[string]func(*target) txn.Bolt{
		"two phases": func(x *target) txn.Bolt { return &twoPhase{t: x} },
		"staged":     func(x *target) txn.Bolt { return &stagedSink{t: x} },
	} {
		t.Run(name, func(t *testing.T) {
			in, want := sample(2, 900)
			x, store := newTarget(), memstore.New()
			var calls atomic.Int64
			for run, tasks := range []int{2, 3, 1} {
				ctx, stop := context.WithCancel(t.Context())
				var lines atomic.Int64
				spout := func() txn.Spout {
					l := newLines(in...)
					l.gate = func(int, int) bool {
						n := lines.Add(1)
						if run < 2 && n == 500 {
							stop()
						}
						return n%15 != 0 // idles, so that there are many batches
					}
					return l
				}
				tb := engine.NewTopologyBuilder()
				tb.SetSpout("lines", spout, 2)
				tb.SetBolt("split", func() txn.Bolt { return failing{n: &calls} }, 1).ShuffleGrouping("lines")
				tb.SetBolt("sink", func() txn.Bolt { return sink(x) }, tasks).FieldsGrouping("split", "word")
				topo, err := tb.Build()
				if err != nil {
					t.Fatal(err)
				}
				res, err := engine.Run(ctx, topo, conf(t, map[string]any{"topology.restart.max": 0}),
					engine.WithStore(store, memstore.NewOpener(store)))
				stop()
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("run %d ended as %v from %v after %d checkpoints and %d restarts", run, res.Outcome, res.From, res.Committed, res.Restarts)
			}
			if !maps.Equal(x.words, want) {
				t.Errorf("the target holds %d words, want %d; a = %d, want %d", len(x.words), len(want), x.words["a"], want["a"])
			}
			if len(x.prepared) > 0 {
				t.Errorf("%d transactions were left behind", len(x.prepared))
			}
		})
	}
}

// ordered writes to the outside in Commit, and keeps the number of the batch beside
// each word, as Trident's transactional states do.
type ordered struct {
	t     *target
	words map[string]int64
	rows  map[string]orderedRow // of all tasks
}

type orderedRow struct {
	batch     txn.BatchID
	now, then int64 // the count, and that before batch
}

func (o *ordered) CommitsInOrder() {}

func (o *ordered) InitState([]txn.Handle) error { o.words = map[string]int64{}; return nil }

func (o *ordered) Rollback(h []txn.Handle) error { return o.InitState(h) }

func (o *ordered) Execute(t *tuple.Tuple, _ *txn.Collector) error { o.words[t.Str(0)]++; return nil }

func (o *ordered) FinishBatch(txn.BatchID, *txn.Collector) (any, error) {
	out := o.words
	o.words = map[string]int64{}
	return out, nil
}

func (o *ordered) Commit(_ context.Context, n txn.BatchID, state any) ([]byte, error) {
	err := o.t.call(func() error {
		if last := len(o.t.batches); last > 0 && n != o.t.batches[last-1] && n != o.t.batches[last-1]+1 {
			return txn.Fatal(fmt.Errorf("batch %d is committed after %d", n, o.t.batches[last-1]))
		}
		o.t.batches = append(o.t.batches, n)
		for w, c := range state.(map[string]int64) {
			r := o.rows[w]
			if r.batch == n { // again, perhaps with other tuples: opaque
				r.now = r.then
			}
			o.rows[w] = orderedRow{batch: n, then: r.now, now: r.now + c}
		}
		for w, r := range o.rows { // what the lost batch had and this one has not
			if _, ok := state.(map[string]int64)[w]; !ok && r.batch == n {
				o.rows[w] = orderedRow{batch: n - 1, now: r.then, then: r.then}
			}
		}
		return nil
	})
	return nil, err
}

func (o *ordered) AckCommit(context.Context, txn.BatchID, txn.BatchID) error { return nil }

func TestOrderedCommitterIsNeverMoreThanOneBatchAhead(t *testing.T) {
	in, want := sample(2, 600)
	x := newTarget()
	rows := map[string]orderedRow{}
	var calls atomic.Int64
	tb := engine.NewTopologyBuilder()
	var lines atomic.Int64
	tb.SetSpout("lines", func() txn.Spout {
		l := newLines(in...)
		l.gate = func(int, int) bool { return lines.Add(1)%15 != 0 }
		return l
	}, 2)
	tb.SetBolt("split", func() txn.Bolt { return failing{n: &calls} }, 2).ShuffleGrouping("lines")
	tb.SetBolt("state", func() txn.Bolt { return &ordered{t: x, rows: rows} }, 1).GlobalGrouping("split")
	topo, err := tb.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.restart.max": 0, "transaction.max.pending.batch": 5})); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for w, r := range rows {
		got[w] = r.now
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d words, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
	}
}

func TestStatefulBoltWithoutRescaleIsRefusedWithOtherTasks(t *testing.T) {
	store := memstore.New()
	run := func(tasks int) error {
		tb := engine.NewTopologyBuilder()
		tb.SetSpout("lines", func() txn.Spout { return newLines([]string{"a b"}) }, 1)
		tb.SetBolt("state", func() txn.Bolt { return &ordered{t: newTarget(), rows: map[string]orderedRow{}} }, tasks).FieldsGrouping("lines", "line")
		topo, err := tb.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		return err
	}
	if err := run(1); err != nil {
		t.Fatal(err)
	}
	if err := run(2); err == nil || !strings.Contains(err.Error(), `holds 1 tasks and now there are 2`) {
		t.Errorf("error %v", err)
	}
}
