package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// pass hands its input on and can be made to fail.
type pass struct{ fail func() error }

func (pass) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line") }

func (p pass) Execute(t *tuple.Tuple, out *txn.Collector) error {
	if err := p.fail(); err != nil {
		return err
	}
	out.Emit1(t.Value(0))
	return nil
}

// publishing is a spout, a bolt that may fail, and a sink with tasks.
func publishing(t testing.TB, spout func() txn.Spout, fail func() error, newSink func() *sink, tasks int) *engine.Topology {
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", spout, 2)
	b.SetBolt("pass", func() txn.Bolt { return pass{fail} }, 2).ShuffleGrouping("lines")
	b.SetBolt("sink", func() txn.Bolt { return newSink() }, tasks).FieldsGrouping("pass", "line")
	return build(t, b)
}

func never() error { return nil }

func TestTwoPhaseSinkPublishesExactlyOnce(t *testing.T) {
	left, right := numbered("l", 1500), numbered("r", 1500)
	rollbacks := 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, log := newOutside(), &calls{}
				var executed, acks atomic.Int64
				random := rand.New(rand.NewPCG(seed, 1))
				var failAt []int64
				for at := int64(0); len(failAt) < 6; {
					at += 1 + random.Int64N(900)
					failAt = append(failAt, at)
				}
				failing := func() error {
					if slices.Contains(failAt, executed.Add(1)) {
						return errors.New("no luck")
					}
					return nil
				}
				fail, failSink := failing, func(*tuple.Tuple) error { return nil }
				if seed%3 == 2 { // the sink itself fails: its instances are made anew
					fail, failSink = never, func(*tuple.Tuple) error { return failing() }
				}
				topo := publishing(t, pacedLines(20, left, right), fail, func() *sink {
					return &sink{o: o, log: log, execute: failSink, ack: func(context.Context, txn.BatchID) error {
						// So that some committed batches are not published when a task fails.
						if acks.Add(1)%3 != 0 {
							return errors.New("cannot publish now")
						}
						return nil
					}}
				}, 3)
				res, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.restart.max": 0}))
				if err != nil {
					t.Fatal(err)
				}
				o.check(t, left, right)
				failed := 0
				if seed%3 == 2 {
					failed = res.Restarts // at least; two tasks may fail in one generation
				}
				if res.Restarts == 0 || log.inits < 3+failed || log.inits+log.rollbacks != 3*(res.Restarts+1) || log.closings != log.inits {
					t.Errorf("%d restarts, %d InitState, %d Rollback, %d Close", res.Restarts, log.inits, log.rollbacks, log.closings)
				}
				if seed%3 != 2 && log.inits != 3 {
					t.Errorf("%d InitState: a healthy instance was thrown away", log.inits)
				}
				rollbacks += log.rollbacks
			})
		})
	}
	if rollbacks == 0 {
		t.Error("no instance was rolled back")
	}
}

func TestFailedCommitIsTriedAgain(t *testing.T) {
	lines := numbered("n", 300)
	synctest.Test(t, func(t *testing.T) {
		o, log := newOutside(), &calls{}
		tries := map[txn.BatchID]int{}
		topo := publishing(t, pacedLines(20, lines), never, func() *sink {
			return &sink{o: o, log: log, commit: func(_ context.Context, n txn.BatchID) error {
				if tries[n]++; tries[n] <= 3 {
					return errors.New("try later")
				}
				return nil
			}}
		}, 1)
		res, err := engine.Run(t.Context(), topo, conf(t, nil))
		if err != nil || res.Restarts != 0 || log.rollbacks != 0 {
			t.Errorf("%v, %d restarts, %d rollbacks", err, res.Restarts, log.rollbacks)
		}
		for n, tried := range tries {
			if tried != 4 {
				t.Errorf("batch %d was committed %d times", n, tried)
			}
		}
		if len(tries) < 3 {
			t.Errorf("%d batches", len(tries))
		}
		o.check(t, lines)
	})
}

func TestFatalErrorOfCommitOrAckRollsBack(t *testing.T) {
	lines := numbered("n", 300)
	for _, where := range []string{"commit", "ack"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, log := newOutside(), &calls{}
				failed := false
				once := func(_ context.Context, n txn.BatchID) error {
					if n >= 2 && !failed {
						failed = true
						return fmt.Errorf("wrapped: %w", txn.Fatal(errors.New("fenced")))
					}
					return nil
				}
				topo := publishing(t, pacedLines(20, lines), never, func() *sink {
					s := &sink{o: o, log: log}
					if where == "commit" {
						s.commit = once
					} else {
						s.ack = once
					}
					return s
				}, 1)
				res, err := engine.Run(t.Context(), topo, conf(t, nil))
				if err != nil || res.Restarts != 1 || log.rollbacks != 0 || log.inits != 2 {
					t.Errorf("%v, %d restarts, %d Rollback, %d InitState", err, res.Restarts, log.rollbacks, log.inits)
				}
				o.check(t, lines)
			})
		})
	}
}

func TestFailedAckCommitIsRepeated(t *testing.T) {
	lines := numbered("n", 100)
	synctest.Test(t, func(t *testing.T) {
		o, log := newOutside(), &calls{}
		tries := 0
		topo := publishing(t, pacedLines(20, lines), never, func() *sink {
			return &sink{o: o, log: log, ack: func(context.Context, txn.BatchID) error {
				if tries++; tries%3 != 0 {
					return errors.New("cannot publish now")
				}
				return nil
			}}
		}, 1)
		res, err := engine.Run(t.Context(), topo, conf(t, nil))
		if err != nil || res.Restarts != 0 || tries < 3 {
			t.Errorf("%v, %d restarts, %d tries", err, res.Restarts, tries)
		}
		o.check(t, lines) // Run returned only when all was published
	})
}

// Case: barriers pile up. A commit that hangs lets max.pending batches be closed and
// then pauses the spout, so that what waits stays small; afterwards all is as before.
func TestSlowCommitPausesTheSpout(t *testing.T) {
	const pending = 2
	lines := numbered("n", 100_000)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		o, log := newOutside(), &calls{}
		var slow atomic.Bool
		release := make(chan struct{})
		var emitted, closed atomic.Int64
		topo := publishing(t, func() txn.Spout {
			l := newLines(lines)
			pace := paced(1)
			l.gate = func(part, line int) bool {
				if !pace(part, line) {
					return false
				}
				emitted.Store(int64(line) + 1)
				return true
			}
			return &closing{lines: l, n: &closed}
		}, never, func() *sink {
			return &sink{o: o, log: log, commit: func(ctx context.Context, _ txn.BatchID) error {
				if !slow.Load() {
					return nil
				}
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
		}, 1)
		run := start(ctx, topo, conf(t, map[string]any{"transaction.max.pending.batch": pending, "transaction.batch.snapshot.timeout": 3600}))
		// latency is from the emission of the newest tuple to its publication.
		latency := func() time.Duration {
			began, want := time.Now(), emitted.Load()
			for int64(len(o.rows())) < want {
				time.Sleep(time.Millisecond)
				if time.Since(began) > time.Minute {
					t.Fatalf("%d of %d rows published after a minute", len(o.rows()), want)
				}
			}
			return time.Since(began)
		}
		time.Sleep(time.Second)
		before := latency()
		slow.Store(true)
		time.Sleep(time.Second)
		atPause, closedAtPause := emitted.Load(), closed.Load()
		committed := len(o.rows())
		time.Sleep(10 * time.Minute)
		if emitted.Load() != atPause || closed.Load() != closedAtPause || len(o.rows()) != committed {
			t.Errorf("while a commit hangs, tuples went from %d to %d, closed batches from %d to %d, rows from %d to %d",
				atPause, emitted.Load(), closedAtPause, closed.Load(), committed, len(o.rows()))
		}
		if waiting := int(atPause) - committed; waiting < 1 || waiting > 100 {
			t.Errorf("%d tuples wait for the commit", waiting)
		}
		slow.Store(false)
		close(release)
		time.Sleep(time.Second)
		if emitted.Load() <= atPause {
			t.Error("the spout is still paused")
		}
		if after := latency(); before > 50*time.Millisecond || after > 2*before+10*time.Millisecond {
			t.Errorf("latency was %v and is %v", before, after)
		}
		stop()
		e := <-run
		if e.err != nil || e.res.Restarts != 0 {
			t.Errorf("%v, %d restarts", e.err, e.res.Restarts)
		}
		o.check(t, lines[:emitted.Load()])
	})
}

// closing counts the batches that a spout closes.
type closing struct {
	*lines
	n *atomic.Int64
}

func (c *closing) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	c.n.Add(1)
	return c.lines.FinishBatch(n)
}
