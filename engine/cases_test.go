package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// The tests of the cases_ files are what went wrong in other engines, each named after
// it. These are about inputs, barriers and time.

// endless returns lines of which the last is never let through.
func endless(pace int, ls ...string) func() txn.Spout {
	return func() txn.Spout {
		l := newLines(append(slices.Clone(ls), "never"))
		idle, hold := paced(pace), held(len(ls)+1)
		l.gate = func(part, line int) bool { return hold(part, line) && idle(part, line) }
		return l
	}
}

// Case: a step that merges two sources had no state, or waited for ever, when one of
// them had never brought anything.
func TestSourceWithoutAnyRecordHoldsUpNothing(t *testing.T) {
	words := numbered("w", 200)
	for name, empty := range map[string]func() txn.Spout{
		"no partition":  func() txn.Spout { return newLines() },
		"no record":     func() txn.Spout { return newLines(nil) },
		"no record yet": endless(1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &board{}
				tb := engine.NewTopologyBuilder()
				tb.SetSpout("empty", empty, 1)
				tb.SetSpout("full", endless(10, words...), 1)
				tb.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("empty", "line").FieldsGrouping("full", "line")
				tb.SetBolt("sink", func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping("count")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				run := start(ctx, build(t, tb), conf(t, nil))
				time.Sleep(time.Minute)
				got := b.get()
				for _, w := range words {
					if got[w] != 1 {
						t.Fatalf("%s was counted %d times; %d words are published, want %d", w, got[w], len(got), len(words))
					}
				}
				stop()
				if e := <-run; e.err != nil || e.res.Restarts != 0 {
					t.Errorf("%v, %d restarts", e.err, e.res.Restarts)
				}
			})
		})
	}
}

// Case: one input is a hundred times slower than the other. While barriers wait for
// it what waits with them has a bound, their checkpoints are given up, and a later one
// covers all of it once the queue has drained.
func TestAlignmentThatOutlastsTheTimeoutIsGivenUp(t *testing.T) {
	const total = 100_000
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var emitted, executed, counted perBatch
		b := engine.NewTopologyBuilder()
		b.SetSpout("fast", func() txn.Spout { return &tagged{name: "fast", total: total, emitted: &emitted} }, 1)
		b.SetSpout("slow", func() txn.Spout { return &tagged{name: "slow", total: total / 100, emitted: &emitted} }, 1)
		b.SetBolt("through", func() txn.Bolt { return through{gate} }, 1).ShuffleGrouping("slow")
		b.SetBolt("join", func() txn.Bolt { return &join{executed: &executed, counted: &counted} }, 1).
			GlobalGrouping("fast").GlobalGrouping("through")
		var look atomic.Pointer[engine.Inspector]
		run := start(t.Context(), build(t, b), engine.WithInspector(look.Store),
			conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 1000, "transaction.batch.snapshot.timeout": 5}))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if r := look.Load().Regions()[0]; r.GivenUp < 2 || r.Committed != 0 {
			t.Errorf("while an input stands still %d checkpoints were given up and %d committed", r.GivenUp, r.Committed)
		}
		waiting := sum(emitted.of("fast")) - sum(executed.of("fast"))
		if most := 20 * 1024; waiting == 0 || waiting > most {
			t.Errorf("%d tuples wait in the fast input, at most %d should", waiting, most)
		}
		close(gate)
		e := <-run
		if e.err != nil || e.res.Restarts != 0 || e.res.Committed == 0 {
			t.Errorf("%v, %d restarts, %d commits", e.err, e.res.Restarts, e.res.Committed)
		}
		for source, want := range map[string]int{"fast": total, "slow": total / 100} {
			if sent, got := emitted.of(source), counted.of(source); !maps.Equal(sent, got) || sum(sent) != want {
				t.Errorf("%s input: %v emitted, %v counted", source, sent, got)
			}
		}
	})
}

func sum(n map[txn.BatchID]int) (all int) {
	for c := range maps.Values(n) {
		all += c
	}
	return all
}

// Case: a bounded source ends while another goes on; no checkpoint could be completed
// any more.
func TestCheckpointsGoOnAfterASourceHasEnded(t *testing.T) {
	short, long := numbered("s", 10), numbered("l", 2000)
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		var failed atomic.Bool
		b := engine.NewTopologyBuilder()
		b.SetSpout("short", pacedLines(3, short), 2) // one more task than partitions
		b.SetSpout("long", endless(5, long...), 1)
		b.SetBolt("sink", func() txn.Bolt {
			return &sink{o: o, log: &calls{}, execute: func(tp *tuple.Tuple) error {
				if tp.Str(0) == "l1000" && failed.CompareAndSwap(false, true) {
					return errors.New("once") // the ended source is restored as well
				}
				return nil
			}}
		}, 2).ShuffleGrouping("short").ShuffleGrouping("long")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		run := start(ctx, build(t, b), conf(t, nil))
		time.Sleep(time.Minute)
		o.check(t, short, long) // although the long one has not ended
		stop()
		if e := <-run; e.err != nil || e.res.Outcome != engine.Stopped || e.res.Restarts != 1 || e.res.Committed < 20 || int(e.res.Last.Batch) < e.res.Committed {
			t.Errorf("%v, outcome %v, %d restarts, %d commits, last %v", e.err, e.res.Outcome, e.res.Restarts, e.res.Committed, e.res.Last)
		}
	})
}

// Case: without acknowledgements nothing slowed a spout down before a slow bolt, and
// what was received piled up until the process died.
func TestSlowBoltHoldsItsSpoutBackInEveryMode(t *testing.T) {
	const total = 25_000
	for name, kv := range map[string]map[string]any{
		"exactly once":  {"transaction.max.pending.batch": 0},
		"at least once": {"transaction.max.pending.batch": 0, "transaction.exactly.once.mode": false},
		"at most once":  {"transaction.topology": false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				var emitted, executed, counted perBatch
				b := engine.NewTopologyBuilder()
				b.SetSpout("fast", func() txn.Spout { return &tagged{name: "fast", total: total, emitted: &emitted} }, 1)
				b.SetBolt("through", func() txn.Bolt { return through{gate} }, 1).ShuffleGrouping("fast")
				b.SetBolt("join", func() txn.Bolt { return &join{executed: &executed, counted: &counted} }, 1).GlobalGrouping("through")
				run := start(t.Context(), build(t, b), conf(t, kv))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n, most := sum(emitted.of("fast")), 20*1024; n == 0 || n > most {
					t.Errorf("%d tuples were emitted to a bolt that stands still, at most %d should be", n, most)
				}
				close(gate)
				if e := <-run; e.err != nil || sum(executed.of("fast")) != total {
					t.Errorf("%v, %d of %d tuples", e.err, sum(executed.of("fast")), total)
				}
			})
		})
	}
}

// slowTicker takes very long over its first tuple and notes when its ticks come.
type slowTicker struct {
	pause time.Duration
	at    *[]time.Duration
	began time.Time
}

func (s *slowTicker) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if t.Stream().Component != "__system" {
		time.Sleep(s.pause)
		return nil
	}
	*s.at = append(*s.at, time.Since(s.began))
	return nil
}

// Case: after a pause the periodic call was made many times in a row, once for each
// time that was missed.
func TestTicksAfterAPauseDoNotCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 10 * time.Minute
		var at []time.Duration
		began := time.Now()
		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", endless(1, "a"), 1)
		b.SetBolt("slow", func() txn.Bolt { return &slowTicker{pause: pause, at: &at, began: began} }, 1).ShuffleGrouping("lines").
			Config("topology.tick.tuple.freq.secs", 10)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		run := start(ctx, build(t, b), conf(t, nil))
		time.Sleep(pause + 35*time.Second)
		stop()
		if e := <-run; e.err != nil {
			t.Fatal(e.err)
		}
		if len(at) != 4 || at[0] < pause || at[0] > pause+time.Second {
			t.Fatalf("ticks came at %v, want one after the pause and three at their pace", at)
		}
		for i := range at[1:] {
			if d := at[i+1] - at[i]; d != 10*time.Second {
				t.Errorf("tick %d came %v after the one before", i+1, d)
			}
		}
	})
}

// Case: after scaling out several tasks resumed the same work in flight, and each put
// it into the next checkpoint.
func TestTimerFiresOnceWhateverTheNumberOfTasks(t *testing.T) {
	words := numbered("w", 40)
	synctest.Test(t, func(t *testing.T) {
		store, o := memstore.New(), newOutside()
		begun := time.Now()
		for _, tasks := range []int{1, 2, 1, 3, 2} {
			b := engine.NewTopologyBuilder()
			b.SetSpout("words", endless(7, words...), 1)
			b.SetBolt("alarm", func() txn.Bolt {
				return &alarm{set: func(timers *txn.Timers, _ string) { timers.SetProcessing(begun.Add(10*time.Minute), "") }}
			}, tasks).FieldsGrouping("words", "line")
			b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("alarm")
			ctx, stop := context.WithCancel(t.Context())
			run := start(ctx, build(t, b), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
			time.Sleep(140 * time.Second)
			stop()
			if e := <-run; e.err != nil {
				t.Fatalf("%d tasks: %v", tasks, e.err)
			}
			if time.Since(begun) < 10*time.Minute {
				o.check(t) // nothing yet
			}
		}
		o.check(t, words)
	})
}

// crowd is a handler that is in the middle of a tuple when its generation ends.
type crowd struct {
	pass
	ctx    *txn.Context
	inside *atomic.Int64
	wait   *atomic.Bool
}

func (c *crowd) Open(ctx *txn.Context) error { c.ctx = ctx; return nil }

func (c *crowd) Execute(t *tuple.Tuple, out *txn.Collector) error {
	if c.wait.Load() {
		c.inside.Add(1)
		<-c.ctx.Context().Done()
		return fmt.Errorf("handle: %w", c.ctx.Context().Err())
	}
	out.Emit1(t.Value(0))
	return nil
}

// Case: a shutdown looked like an error of the handlers, so that good messages went to
// the dead letters and were acknowledged.
func TestDeadLettersAreNotFilledByAShutdown(t *testing.T) {
	const handlers = 20
	lines := numbered("n", 400)
	synctest.Test(t, func(t *testing.T) {
		o, dead := newOutside(), newOutside()
		var inside atomic.Int64
		var wait, failed atomic.Bool
		wait.Store(true)
		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", pacedLines(50, lines), 1)
		b.SetBolt("crowd", func() txn.Bolt { return &crowd{inside: &inside, wait: &wait} }, handlers).ShuffleGrouping("lines").
			Config("topology.poison.max.attempts", 1)
		b.SetBolt("other", func() txn.Bolt {
			return &pass{func() error {
				if failed.Load() {
					return nil
				}
				for inside.Load() < handlers {
					time.Sleep(time.Millisecond)
				}
				failed.Store(true)
				wait.Store(false)
				return errors.New("the shutdown is due to this one")
			}}
		}, 1).ShuffleGrouping("lines")
		b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("crowd")
		b.SetBolt("rest", func() txn.Bolt { return &sink{o: newOutside(), log: &calls{}} }, 1).ShuffleGrouping("other")
		b.SetBolt("dead", func() txn.Bolt { return &sink{o: dead, log: &calls{}} }, 1).Grouping("crowd", engine.FailedStream, engine.Global())
		res, err := engine.Run(t.Context(), build(t, b), conf(t, nil))
		if err != nil || res.Restarts != 1 || inside.Load() < handlers {
			t.Errorf("%v, %d restarts, %d handlers were interrupted", err, res.Restarts, inside.Load())
		}
		dead.check(t) // nothing
		o.check(t, lines)
	})
}

// Case: an executor had crashed, the report of its error failed, and the process lived
// on without it. Here several tasks panic at once, with what cannot even be printed.
func TestManyTasksThatPanicAtOnceAreRestarted(t *testing.T) {
	lines := numbered("n", 300)
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		var panics atomic.Int64
		together := make(chan struct{})
		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", pacedLines(20, lines), 1)
		b.SetBolt("pass", func() txn.Bolt {
			return pass{func() error {
				switch n := panics.Add(1); {
				case n < 4:
					<-together
					panic(unprintable{})
				case n == 4:
					close(together)
					panic(error(unprintable{}))
				}
				return nil
			}}
		}, 4).ShuffleGrouping("lines").Config("topology.poison.max.attempts", 3)
		b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("pass")
		b.SetBolt("failed", func() txn.Bolt { return pass{never} }, 1).Grouping("pass", engine.FailedStream, engine.Global())
		var last engine.Progress
		res, err := engine.Run(t.Context(), build(t, b), conf(t, nil),
			engine.WithProgress(func(p engine.Progress) { last = p }))
		if err != nil || res.Restarts == 0 || len(last.Errors) == 0 {
			t.Errorf("%v, %d restarts, %d errors shown", err, res.Restarts, len(last.Errors))
		}
		o.check(t, lines)
	})
}

// unprintable is an error whose text cannot be had.
type unprintable struct{}

func (unprintable) Error() string { panic("no text") }
