package engine_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// These cases are about starts from another checkpoint, rollbacks and savepoints that
// meet a failure.

// fragile is a counter that fails when it is told to.
type fragile struct {
	count
	fail *atomic.Bool
}

func (f *fragile) Execute(t *tuple.Tuple, out *txn.Collector) error {
	if f.fail.CompareAndSwap(true, false) {
		return errors.New("no luck")
	}
	return f.count.Execute(t, out)
}

// double counts each word twice.
type double struct{ count }

func (d *double) Execute(*tuple.Tuple, *txn.Collector) error { return d.n.Add(2) }

func times(n int64, words map[string]int64) map[string]int64 {
	for w := range words {
		words[w] *= n
	}
	return words
}

func plus(a, b map[string]int64) map[string]int64 {
	for w, n := range b {
		a[w] += n
	}
	return a
}

// fragileCounting counts the words of the first limit lines, with two counters, of which the one
// called b counts each word twice.
func fragileCounting(t *testing.T, limit *atomic.Int64, fail *atomic.Bool, lines []string, a, b *board) *engine.Topology {
	t.Helper()
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", limited(limit, 10, lines), 1)
	tb.SetBolt("split", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
	tb.SetBolt("a", func() txn.Bolt { return &fragile{fail: fail} }, 2).FieldsGrouping("split", "word")
	tb.SetBolt("b", func() txn.Bolt { return &double{} }, 2).FieldsGrouping("split", "word")
	tb.SetBolt("sink-a", func() txn.Bolt { return &latest{b: a} }, 1).GlobalGrouping("a")
	tb.SetBolt("sink-b", func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping("b")
	return build(t, tb)
}

// Case: a flag that leaves state behind, or gives it to another component, was heeded
// again by each restart after a failure, so that what had been counted since was lost.
func TestStateIsDroppedAndRenamedOnceNotByEachRestart(t *testing.T) {
	in, _ := sample(1, 300)
	lines := in[0]
	for name, c := range map[string]struct {
		start engine.Start
		a, b  func() map[string]int64 // what is counted in the end
	}{
		"dropped": {engine.Start{Drop: []string{"a", "sink-a"}},
			func() map[string]int64 { return wordsOf(lines[100:], 200) }, func() map[string]int64 { return times(2, wordsOf(lines, 300)) }},
		"renamed in a circle": {engine.Start{Map: map[string]string{"a": "b", "b": "a", "sink-a": "sink-b", "sink-b": "sink-a"}},
			func() map[string]int64 { return plus(times(2, wordsOf(lines, 100)), wordsOf(lines[100:], 200)) },
			func() map[string]int64 { return plus(wordsOf(lines, 100), times(2, wordsOf(lines[100:], 200))) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var limit atomic.Int64
				var fail atomic.Bool
				limit.Store(100)
				run := func(s engine.Start) (a, b *board, stop func() ended) {
					a, b = &board{}, &board{}
					ctx, cancel := context.WithCancel(t.Context())
					t.Cleanup(cancel)
					e := start(ctx, fragileCounting(t, &limit, &fail, lines, a, b), engine.WithStore(store, memstore.NewOpener(store)),
						engine.WithStart(s), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 50}))
					time.Sleep(time.Second)
					return a, b, func() ended { cancel(); return <-e }
				}
				_, _, stop := run(engine.Start{})
				if e := stop(); e.err != nil {
					t.Fatal(e.err)
				}
				limit.Store(200)
				a, b, stop := run(c.start)
				fail.Store(true)
				limit.Store(300)
				time.Sleep(time.Minute)
				if e := stop(); e.err != nil || e.res.Restarts != 1 {
					t.Fatalf("%v, %d restarts", e.err, e.res.Restarts)
				}
				if !maps.Equal(a.get(), c.a()) || !maps.Equal(b.get(), c.b()) {
					t.Errorf("the word a was counted %d and %d times, want %d and %d", a.get()["a"], b.get()["a"], c.a()["a"], c.b()["a"])
				}
			})
		})
	}
}

// slowHead is a store whose head moves only when the test lets it.
type slowHead struct {
	*memstore.Store
	slow    atomic.Bool
	arrived chan struct{}
	goOn    chan struct{}
}

func newSlowHead() *slowHead {
	return &slowHead{Store: memstore.New(), arrived: make(chan struct{}), goOn: make(chan struct{})}
}

func (s *slowHead) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	if s.slow.CompareAndSwap(true, false) {
		s.arrived <- struct{}{}
		<-s.goOn
	}
	return s.Store.SwapHead(ctx, old, data)
}

// Case: a rollback was asked for while the region was coming back from a failure; it
// was said to be done, and was not.
func TestRollbackDuringARestartIsDoneOrRefused(t *testing.T) {
	in, _ := sample(1, 400)
	lines := in[0]
	synctest.Test(t, func(t *testing.T) {
		store, b, control := newSlowHead(), &board{}, engine.NewControl()
		var limit atomic.Int64
		var fail atomic.Bool
		limit.Store(100)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e := start(ctx, fragileCounting(t, &limit, &fail, lines, b, &board{}), engine.WithStore(store, memstore.NewOpener(store)),
			engine.WithControl(control), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000}))
		time.Sleep(time.Second)
		refs, err := control.Savepoint(ctx, "early")
		if err != nil {
			t.Fatal(err)
		}
		limit.Store(200)
		time.Sleep(time.Second)
		if _, err := control.Savepoint(ctx, "late"); err != nil {
			t.Fatal(err)
		}
		fail.Store(true)
		store.slow.Store(true)
		limit.Store(300)
		<-store.arrived // the generation is being raised
		answer := make(chan error, 1)
		go func() { answer <- control.Rollback(ctx, refs[0].String(), false) }()
		synctest.Wait()
		store.goOn <- struct{}{}
		err = <-answer
		time.Sleep(time.Minute)
		h, headErr := control.Head(ctx)
		if headErr != nil {
			t.Fatal(headErr)
		}
		undone := len(h.Regions["a"].Superseded) > 0
		if err == nil != undone || err != nil && !strings.Contains(err.Error(), "try again") {
			t.Errorf("the rollback returned %v; it was carried out: %t", err, undone)
		}
		stop()
		if e := <-e; e.err != nil {
			t.Fatal(e.err)
		}
	})
}

// Case: a savepoint was asked for, a task failed before its barrier was through, and no
// input came afterwards: who had asked waited for ever.
func TestSavepointIsTakenThoughATaskFailsMeanwhile(t *testing.T) {
	lines := numbered("n", 300)
	synctest.Test(t, func(t *testing.T) {
		store, o, control := memstore.New(), newOutside(), engine.NewControl()
		var limit, commits atomic.Int64
		limit.Store(100)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", limited(&limit, 10, lines), 1)
		b.SetBolt("sink", func() txn.Bolt {
			return &sink{o: o, log: &calls{}, commit: func(_ context.Context, n txn.BatchID) error {
				if n == 3 && commits.Add(1) == 1 { // that of the savepoint
					return txn.Fatal(errors.New("no luck"))
				}
				return nil
			}}
		}, 1).ShuffleGrouping("lines")
		e := start(ctx, build(t, b), engine.WithStore(store, memstore.NewOpener(store)),
			engine.WithControl(control), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000}))
		for range 2 {
			time.Sleep(time.Second)
			if _, err := control.Savepoint(ctx, ""); err != nil {
				t.Fatal(err)
			}
		}
		// Nothing has come since the second one: the third has nothing new to say.
		waiting, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		refs, err := control.Savepoint(waiting, "third")
		if err != nil || len(refs) != 1 || commits.Load() < 2 {
			t.Errorf("savepoint %v, %v, batch 3 was committed %d times", refs, err, commits.Load())
		}
		stop()
		if e := <-e; e.err != nil {
			t.Fatal(e.err)
		}
		o.check(t, lines[:100])
	})
}

// pruned is a store that an operator prunes just before the head moves for the first time.
type pruned struct {
	*memstore.Store
	once sync.Once
	t    *testing.T
}

func (s *pruned) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	s.once.Do(func() {
		if _, _, _, err := checkpoint.EditHead(ctx, s.Store, "operator", checkpoint.PruneEdit(1)); err != nil {
			s.t.Error(err)
		}
	})
	return s.Store.SwapHead(ctx, old, data)
}

// Case: the checkpoint that a start was to go on from was cleaned up at that moment, and
// it went on from another one.
func TestStartFromACheckpointThatIsPrunedMeanwhileIsRefused(t *testing.T) {
	in, _ := sample(1, 300)
	lines := in[0]
	store := memstore.New()
	var limit atomic.Int64
	var refs []checkpoint.Ref
	for _, until := range []int64{100, 200} {
		limit.Store(-1)
		res, err := engine.Run(t.Context(), counting(t, &limit, lines[:until], &board{}), conf(t, map[string]any{"checkpoint.retained": 1000}), engine.WithStore(store, memstore.NewOpener(store)))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, *res.Last)
	}
	b := &board{}
	_, err := engine.Run(t.Context(), counting(t, &limit, lines, b), conf(t, nil),
		engine.WithStore(&pruned{Store: store, t: t}, memstore.NewOpener(store)), engine.WithStart(engine.Start{From: refs[0].String()}))
	if err == nil || !strings.Contains(err.Error(), refs[0].String()) || !strings.Contains(err.Error(), "not kept any more") {
		t.Errorf("error %v, want one that says that %s is not kept any more", err, refs[0])
	}
	if b.get() != nil || *headOf(t, store).Regions["count"].Current() != refs[1] {
		t.Errorf("%d words are published; the head says %+v", len(b.get()), headOf(t, store).Regions)
	}
	if _, err := engine.Run(t.Context(), counting(t, &limit, lines, b), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store))); err != nil || !maps.Equal(b.get(), wordsOf(lines, 300)) {
		t.Errorf("the next start: %v, %d words", err, len(b.get()))
	}
}
