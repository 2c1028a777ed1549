package engine_test

import (
	"context"
	"errors"
	"io"
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

// opened is a spout that tells when it is opened.
type opened struct {
	*lines
	open func(ctx *txn.Context)
}

func (o *opened) Open(ctx *txn.Context) error { o.open(ctx); return nil }

// The healthy region works through its input while the other one is down.
func TestRegionFailsAloneAndOthersGoOn(t *testing.T) {
	ill, well := numbered("i", 200), numbered("w", 200)
	synctest.Test(t, func(t *testing.T) {
		down, wellDone := make(chan struct{}), make(chan struct{})
		var made [2]atomic.Int64 // instances of the healthy region: spout, sink
		var failed atomic.Bool
		var published atomic.Int64
		gens := map[txn.Generation]bool{}
		iOut, wOut, log := newOutside(), newOutside(), &calls{}
		b := engine.NewTopologyBuilder()
		b.SetSpout("ill", func() txn.Spout {
			l := newLines(ill)
			l.gate = paced(20)
			return &opened{l, func(*txn.Context) {
				if failed.Load() {
					<-wellDone // down until the other region is done
				}
			}}
		}, 1)
		b.SetBolt("illsink", func() txn.Bolt {
			return &sink{o: iOut, log: log, execute: func(tp *tuple.Tuple) error {
				if tp.Str(0) == "i150" && failed.CompareAndSwap(false, true) {
					close(down)
					return errors.New("ill")
				}
				return nil
			}}
		}, 1).ShuffleGrouping("ill")
		b.SetSpout("well", func() txn.Spout {
			made[0].Add(1)
			l := newLines(well)
			pace := paced(3)
			l.gate = func(part, line int) bool {
				if line == 50 {
					<-down // most of it is read while the other region is down
				}
				return pace(part, line)
			}
			return &opened{l, func(ctx *txn.Context) { gens[ctx.Generation] = true }}
		}, 1)
		b.SetBolt("wellsink", func() txn.Bolt {
			made[1].Add(1)
			return &sink{o: wOut, log: &calls{}, ack: func(context.Context, txn.BatchID) error {
				published.Add(1)
				return nil
			}}
		}, 1).ShuffleGrouping("well")
		topo := build(t, b)
		made[0].Store(0) // Build has looked at one of each
		made[1].Store(0)
		run := start(t.Context(), topo, conf(t, nil))
		<-down
		for len(wOut.rows()) < len(well) {
			time.Sleep(time.Millisecond)
			if len(iOut.rows()) > 150 {
				t.Error("the failed region is not down")
			}
		}
		close(wellDone)
		e := <-run
		if e.err != nil || e.res.Restarts != 1 || log.inits != 2 {
			t.Errorf("%v, %d restarts, %d InitState", e.err, e.res.Restarts, log.inits)
		}
		if made[0].Load() != 1 || made[1].Load() != 1 || len(gens) != 1 || published.Load() < 5 {
			t.Errorf("healthy region: %d spouts, %d sinks, generations %v, %d batches published", made[0].Load(), made[1].Load(), gens, published.Load())
		}
		iOut.check(t, ill)
		wOut.check(t, well)
	})
}

// outageStore refuses to write while it is down; a write that reaches it on the edge
// has an unknown outcome.
type outageStore struct {
	*memstore.Store
	down    atomic.Bool
	refused atomic.Int64
}

var errDown = errors.New("the store is down")

func (s *outageStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if s.down.Load() {
		s.refused.Add(1)
		return errDown
	}
	return s.Store.Put(ctx, name, body, size, crc)
}

func (s *outageStore) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	v, err := s.Store.SwapHead(ctx, old, data)
	if s.down.Load() {
		s.refused.Add(1)
		return "", errDown
	}
	return v, err
}

func (s *outageStore) ReadHead(ctx context.Context) ([]byte, checkpoint.Version, error) {
	if s.down.Load() {
		return nil, "", errDown
	}
	return s.Store.ReadHead(ctx)
}

func TestStoreOutageDelaysCommitsAndClearsByItself(t *testing.T) {
	in, want := sample(2, 3000)
	for name, outage := range map[string]time.Duration{"short": 3 * time.Second, "longer than a snapshot may take": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &outageStore{Store: memstore.New()}
				b := &board{}
				topo := wordCount(t, pacedLines(20, in...), func() txn.Bolt { return split{} }, b)
				run := start(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
				batch := func() txn.BatchID {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.n
				}
				for batch() < 3 {
					time.Sleep(time.Millisecond)
				}
				store.down.Store(true)
				time.Sleep(time.Second)
				at := batch()
				time.Sleep(outage)
				if now := batch(); now != at || store.refused.Load() == 0 {
					t.Errorf("batch %d was shown as committed while the store was down, %d calls refused", now, store.refused.Load())
				}
				store.down.Store(false)
				e := <-run
				if e.err != nil || e.res.Restarts != 0 {
					t.Errorf("%v, %d restarts", e.err, e.res.Restarts)
				}
				if got := b.get(); !maps.Equal(got, want) {
					t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
				}
			})
		})
	}
}

// vagueStore does not tell how moving the head went: every other time it was done,
// every other time not.
type vagueStore struct {
	*memstore.Store
	calls atomic.Int64
}

func (s *vagueStore) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	switch s.calls.Add(1) % 4 {
	case 1:
		return "", errors.New("no answer, nothing was done")
	case 3:
		_, err := s.Store.SwapHead(ctx, old, data)
		return "", errors.Join(errors.New("no answer, it was done"), err)
	}
	return s.Store.SwapHead(ctx, old, data)
}

func TestHeadOfUnknownOutcomeIsReadAgain(t *testing.T) {
	in, want := sample(2, 600)
	synctest.Test(t, func(t *testing.T) {
		store := &vagueStore{Store: memstore.New()}
		b := &board{}
		topo := wordCount(t, pacedLines(20, in...), func() txn.Bolt { return split{} }, b)
		res, err := engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		if err != nil || res.Restarts != 0 || res.Committed < 3 || store.calls.Load() < 6 {
			t.Errorf("%v, %d restarts, %d commits, %d moves of the head", err, res.Restarts, res.Committed, store.calls.Load())
		}
		if got := b.get(); !maps.Equal(got, want) {
			t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
		}
	})
}

func TestShapesOfInputThatFinish(t *testing.T) {
	for name, c := range map[string]struct {
		parts [][]string
		tasks int
		res   checkpoint.Outcome
	}{
		"more tasks than partitions": {parts: [][]string{numbered("a", 100), numbered("b", 50)}, tasks: 4},
		"fewer tasks":                {parts: [][]string{numbered("a", 9), nil, numbered("b", 1), numbered("c", 30), {}}, tasks: 2},
		"empty partitions":           {parts: [][]string{nil, nil}, tasks: 2},
		"no partition":               {tasks: 3},
		"one line":                   {parts: [][]string{{"x"}}, tasks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutside()
				b := engine.NewTopologyBuilder()
				b.SetSpout("lines", func() txn.Spout { return newLines(c.parts...) }, c.tasks)
				b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 2).ShuffleGrouping("lines")
				finished := 0
				b.OnFinished(func(r engine.Result) {
					finished++
					if r.Outcome != engine.Completed {
						t.Errorf("outcome %v", r.Outcome)
					}
				})
				res, err := engine.Run(t.Context(), build(t, b), conf(t, nil))
				if err != nil || res.Restarts != 0 || res.Committed == 0 || finished != 1 {
					t.Errorf("%v, %d restarts, %d commits, finished %d times", err, res.Restarts, res.Committed, finished)
				}
				o.check(t, c.parts...)
			})
		})
	}
}

// stuck does not return from Execute until it is released, whatever ends.
type stuck struct {
	pass
	entered chan struct{}
	release chan struct{}
}

func (s *stuck) Execute(*tuple.Tuple, *txn.Collector) error {
	close(s.entered)
	s.neverReturns()
	return nil
}

func (s *stuck) neverReturns() { <-s.release }

func TestHungBoltEndsTheRunWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", func() txn.Spout { return newLines([]string{"a"}) }, 1)
		b.SetBolt("stuck", func() txn.Bolt { return &stuck{entered: entered, release: release} }, 1).ShuffleGrouping("lines")
		b.SetBolt("failing", func() txn.Bolt {
			return pass{func() error { <-entered; return errors.New("the other one fails") }}
		}, 1).ShuffleGrouping("lines")
		o, log := newOutside(), &calls{}
		b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: log} }, 1).ShuffleGrouping("failing")
		began := time.Now()
		res, err := engine.Run(t.Context(), build(t, b), conf(t, map[string]any{"topology.task.stop.timeout.secs": 1}))
		if !errors.Is(err, engine.ErrHung) || !strings.Contains(err.Error(), "neverReturns") || !strings.Contains(err.Error(), "within 1s") {
			t.Errorf("error %.300v, want ErrHung with the stack of the bolt", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(o.rows()) != 0 || res.Committed != 0 {
			t.Errorf("rows %q, %d commits", o.rows(), res.Committed)
		}
		close(release)
	})
}

func TestCancelTakesALastCheckpointAndARerunGoesOn(t *testing.T) {
	all := numbered("n", 1000)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		in := engine.WithStore(store, memstore.NewOpener(store))
		// An interval that no barrier comes by: the last checkpoint is the only one.
		lazy := conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 3_600_000})
		o := newOutside()
		var emitted, limit atomic.Int64
		topo := func() *engine.Topology {
			return publishing(t, func() txn.Spout {
				l := newLines(all)
				l.gate = func(_, line int) bool {
					if int64(line) == limit.Load() {
						return false
					}
					emitted.Add(1)
					return true
				}
				return l
			}, never, func() *sink { return &sink{o: o, log: &calls{}} }, 2)
		}
		for i, until := range []int64{500, 500, 800, -1} {
			limit.Store(until)
			emitted.Store(0)
			ctx, stop := context.WithCancel(t.Context())
			run := start(ctx, topo(), in, lazy)
			time.Sleep(time.Minute)
			synctest.Wait()
			if until >= 0 {
				stop()
			}
			e := <-run
			stop()
			want, commits, outcome := []int64{500, 0, 300, 200}[i], []int{1, 1, 1, 1}[i], engine.Stopped
			if until < 0 {
				outcome = engine.Completed
			}
			if e.err != nil || e.res.Outcome != outcome || e.res.Committed != commits || emitted.Load() != want {
				t.Errorf("run %d: %v, outcome %v, %d commits, %d lines emitted", i, e.err, e.res.Outcome, e.res.Committed, emitted.Load())
			}
			if (e.res.From != nil) != (i > 0) {
				t.Errorf("run %d began from %v", i, e.res.From)
			}
			if until >= 0 {
				o.check(t, all[:until])
			}
		}
		o.check(t, all)
	})
}

// mail is a spout whose input comes from a goroutine that wakes it.
type mail struct {
	*lines
	mu      sync.Mutex
	items   []time.Time // offered and not yet emitted
	ctx     *txn.Context
	offered func(*mail)
	late    time.Duration
	asked   int
	emitted int
	selfish bool // wakes itself from within NextTuple
}

func (m *mail) Open(ctx *txn.Context) error {
	m.ctx = ctx
	go m.offered(m)
	return nil
}

func (m *mail) put() {
	m.mu.Lock()
	m.items = append(m.items, time.Now())
	m.mu.Unlock()
	m.ctx.Wake()
}

func (m *mail) NextTuple(out *txn.Collector) (txn.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if len(m.items) == 0 {
		if m.selfish { // what comes now comes too late for this call
			m.items = append(m.items, time.Now())
			m.ctx.Wake()
		}
		if m.emitted == 50 {
			return txn.Finished, nil
		}
		return txn.Idle, nil
	}
	m.late = max(m.late, time.Since(m.items[0]))
	m.items = m.items[1:]
	m.emitted++
	out.Emit1(tuple.String("x"))
	return txn.Emitted, nil
}

func TestWakeEndsIdlingAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		offered func(*mail)
		selfish bool
	}{
		"from another goroutine": {offered: func(m *mail) {
			for range 50 {
				time.Sleep(1234567 * time.Microsecond)
				m.put()
			}
		}},
		"between the look and the sleep": {offered: func(*mail) {}, selfish: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mail{lines: newLines([]string{}), offered: c.offered, selfish: c.selfish}
				o := newOutside()
				b := engine.NewTopologyBuilder()
				b.SetSpout("mail", func() txn.Spout { return m }, 1)
				b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("mail")
				if _, err := engine.Run(t.Context(), build(t, b), conf(t, nil)); err != nil {
					t.Fatal(err)
				}
				if m.late != 0 || len(o.rows()) != 50 {
					t.Errorf("%d tuples, up to %v late", len(o.rows()), m.late)
				}
				if most := 50 * 30; !c.selfish && m.asked > most {
					t.Errorf("asked %d times in a minute: it does not idle", m.asked)
				}
			})
		})
	}
}
