package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// bytesOfHead returns what is stored of the head, and which version it is.
func bytesOfHead(t *testing.T, s checkpoint.Store) string {
	t.Helper()
	data, v, err := s.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s", v, data)
}

// refusesForward fails unless err refuses to go forward to a checkpoint.
func refusesForward(t *testing.T, err error, ref checkpoint.Ref) {
	t.Helper()
	for _, want := range []string{"checkpoint " + ref.String(), `"phased"`, `"staged"`, "go back to a checkpoint before it", "--drop-unpublished"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v; it does not say %q", ref, err, want)
		}
	}
}

// undoneWhileDown has 20 lines committed that are never published, because the target is
// down when they are undone. It returns the checkpoint that was undone and the one before.
func (b *branches) undoneWhileDown() (lost, before checkpoint.Ref) {
	b.limit.Store(30)
	b.start("", 2)
	before = b.current()
	b.ledger.set(true, false)
	b.limit.Store(50)
	b.settle()
	lost = b.current()
	b.rollback(before.String(), op{})
	b.settle()
	b.ledger.set(false, false)
	b.settle()
	b.checkWithout(30)
	return lost, before
}

// checkWithout fails unless the lines from 30 to 50, and they alone, are lost.
func (b *branches) checkWithout(until int) {
	b.t.Helper()
	if got, want := b.board.get(), wordsOf(b.lines, until); !maps.Equal(got, want) {
		b.t.Errorf("%d words of %d lines are shown, want %d", len(got), until, len(want))
	}
	want := map[string]int64{}
	for i, line := range b.lines[:until] {
		if i < 30 || i >= 50 {
			want[line] = 1
		}
	}
	for _, component := range []string{"phased", "staged"} {
		if got := b.ledger.counts(component); !maps.Equal(got, want) {
			b.t.Errorf("%s has published %d lines, want %d", component, len(got), len(want))
		}
	}
	if len(b.ledger.prepared) > 0 {
		b.t.Errorf("%d transactions are left prepared", len(b.ledger.prepared))
	}
	b.ledger.wrongs.check(b.t)
}

func (b *branches) forgetBoard() {
	b.board.mu.Lock()
	defer b.board.mu.Unlock()
	b.board.n = 0
}

// Case: the target was down while a checkpoint was undone, what it had prepared was
// discarded, and going forward to it again lost that without a word.
func TestForwardToWhatWasNeverPublishedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBranches(t)
		lost, _ := b.undoneWhileDown()
		before := bytesOfHead(t, b.store)
		refusesForward(t, b.control.Rollback(t.Context(), lost.String(), false), lost)
		if after := bytesOfHead(t, b.store); after != before {
			t.Errorf("the refusal has changed the head from\n%s\nto\n%s", before, after)
		}
		b.limit.Store(80)
		b.forgetBoard()
		if err := b.control.Rollback(t.Context(), lost.String(), true); err != nil {
			t.Fatal(err)
		}
		b.settle()
		b.checkWithout(80)
		b.end()
	})
}

// The same at a start; and what an operator has accepted holds for all who start later.
func TestStartForwardLeavesBehindWhatWasAccepted(t *testing.T) {
	for name, byHand := range map[string]bool{"at the start": false, "by hand": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBranches(t)
				lost, _ := b.undoneWhileDown()
				b.end()
				before := bytesOfHead(t, b.store)
				b.start(lost.String(), 2)
				refusesForward(t, (<-b.ended).err, lost)
				if after := bytesOfHead(t, b.store); after != before {
					t.Errorf("the refusal has changed the head from\n%s\nto\n%s", before, after)
				}
				b.limit.Store(50) // nothing more, so nothing is committed
				from := engine.Start{From: lost.String(), DropUnpublished: true}
				if byHand {
					b.edit(checkpoint.RollbackEdit(lost.Generation, lost.Batch, true))
					from = engine.Start{}
				}
				b.startFrom(from, 3)
				b.checkWithout(50)
				b.ledger.set(false, true)
				b.fail.Store(true)
				b.limit.Store(70)
				b.settle()
				if e := <-b.ended; !errors.Is(e.err, errKilled) {
					t.Fatal(e.err)
				}
				b.ledger.set(false, false)
				b.start("", 1)
				b.checkWithout(70)
				b.end()
			})
		})
	}
}

// forth goes to any kept checkpoint while the target is down, unless that is refused.
func (b *branches) forth(o op) {
	h := headOf(b.t, b.store)
	kept := h.Kept("count")
	ref := kept[o.n%len(kept)]
	b.ledger.set(true, false)
	b.do(op{kind: "run", more: o.more})
	stays, limit := len(b.stays), b.limit.Load()
	r := headOf(b.t, b.store).Regions["count"]
	if r.LeavesBehind(ref) {
		b.t.Logf("%s is unsettled", ref)
	}
	before := bytesOfHead(b.t, b.store)
	b.leave(ref.String(), o.more)
	err := b.control.Rollback(b.t.Context(), ref.String(), false)
	switch {
	case err == nil:
		b.forgetBoard()
	case strings.Contains(err.Error(), "keeps no checkpoint"), strings.Contains(err.Error(), "--drop-unpublished"):
		if r.LeavesBehind(ref) != strings.Contains(err.Error(), "--drop-unpublished") || bytesOfHead(b.t, b.store) != before {
			b.t.Errorf("to %s: %v", ref, err)
		}
		b.stays = b.stays[:stays]
		b.limit.Store(limit)
	default:
		b.t.Errorf("to %s: %v", ref, err)
	}
	b.settle()
	b.ledger.set(false, false)
	b.settle()
}

// An operator goes back and forth while the target is down now and then: what is not
// refused loses nothing.
func TestForwardThatIsNotRefusedLosesNothing(t *testing.T) {
	kinds := []string{"run", "rollback", "from", "latest", "forth", "forth", "forth"}
	ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{
			kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
			n:     rapid.IntRange(0, 7).Draw(t, "n"),
			more:  rapid.IntRange(0, 40).Draw(t, "more"),
			tasks: rapid.IntRange(1, 3).Draw(t, "tasks"),
		}
	}), 1, 10)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		ops := ops.Draw(rt, "ops")
		n++
		if !t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBranches(t)
				b.limit.Store(30)
				b.start("", 2)
				for _, o := range ops {
					switch o.kind {
					case "run":
						b.do(o)
					case "forth":
						b.forth(o)
					default:
						b.outage(o)
					}
					b.checkNothingLost(fmt.Sprintf("%+v", o))
				}
				b.end()
				b.checkNothingLost("end")
			})
		}) {
			rt.Fatalf("operations %+v", ops)
		}
	})
}

// What cannot be restored is refused before the head says that it was gone back to.
func TestRefusedStartChangesNothing(t *testing.T) {
	in, _ := sample(1, 300)
	lines := in[0]
	for words, change := range map[string]func(t *testing.T, s *memstore.Store, first checkpoint.Ref) (engine.Start, []string, map[string]any){
		"has 256 key groups": func(*testing.T, *memstore.Store, checkpoint.Ref) (engine.Start, []string, map[string]any) {
			return engine.Start{}, nil, map[string]any{"topology.key.groups": 128}
		},
		"no longer has": func(*testing.T, *memstore.Store, checkpoint.Ref) (engine.Start, []string, map[string]any) {
			return engine.Start{}, []string{"lines", "source"}, nil
		},
		"would both be": func(*testing.T, *memstore.Store, checkpoint.Ref) (engine.Start, []string, map[string]any) {
			return engine.Start{Map: map[string]string{"sink": "count"}}, nil, nil
		},
		"not found": func(t *testing.T, s *memstore.Store, first checkpoint.Ref) (engine.Start, []string, map[string]any) {
			if err := s.Delete(t.Context(), first.Manifest); err != nil {
				t.Fatal(err)
			}
			return engine.Start{}, nil, nil
		},
	} {
		t.Run(words, func(t *testing.T) {
			store := memstore.New()
			var limit atomic.Int64
			limit.Store(-1)
			run := func(s engine.Start, until int, names []string, kv map[string]any) (engine.Result, error) {
				return engine.Run(t.Context(), counting(t, &limit, lines[:until], &board{}, names...),
					conf(t, map[string]any{"checkpoint.retained": 20}), conf(t, kv),
					engine.WithStore(store, memstore.NewOpener(store)), engine.WithStart(s))
			}
			first, err := run(engine.Start{}, 100, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run(engine.Start{}, 200, nil, nil); err != nil {
				t.Fatal(err)
			}
			s, names, kv := change(t, store, *first.Last)
			s.From = first.Last.String()
			before := bytesOfHead(t, store)
			if _, err := run(s, 300, names, kv); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "start from "+s.From) {
				t.Errorf("the start: %v", err)
			}
			if after := bytesOfHead(t, store); after != before {
				t.Errorf("the head was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// The same while it runs: a checkpoint that cannot be read is not gone back to.
func TestRollbackToWhatCannotBeReadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBranches(t)
		b.limit.Store(30)
		b.start("", 1)
		first := b.current()
		b.do(op{kind: "run", more: 10})
		before := bytesOfHead(t, b.store)
		if err := b.store.Delete(t.Context(), first.Manifest); err != nil {
			t.Fatal(err)
		}
		if err := b.control.Rollback(t.Context(), first.String(), false); !errors.Is(err, checkpoint.ErrNotFound) || !strings.Contains(err.Error(), first.Manifest) {
			t.Errorf("the rollback: %v", err)
		}
		if after := bytesOfHead(t, b.store); after != before {
			t.Errorf("the head was\n%s\nand is\n%s", before, after)
		}
		b.end()
	})
}

// A checkpoint from before a component got another name does not fit a run that is not
// told of it.
func TestRollbackToWhatDoesNotFitIsRefused(t *testing.T) {
	in, _ := sample(1, 300)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var limit atomic.Int64
		run := func(c *engine.Control, until int64, s engine.Start, names ...string) func() {
			limit.Store(until)
			ctx, cancel := context.WithCancel(t.Context())
			e := start(ctx, counting(t, &limit, in[0], &board{}, names...), engine.WithControl(c), engine.WithStart(s),
				engine.WithStore(store, memstore.NewOpener(store)), conf(t, map[string]any{"checkpoint.retained": 20}))
			time.Sleep(10 * time.Second)
			return func() {
				cancel()
				if e := <-e; e.err != nil {
					t.Fatal(e.err)
				}
			}
		}
		stop := run(engine.NewControl(), 100, engine.Start{})
		first := *headOf(t, store).Regions["count"].Current()
		stop()
		stop = run(engine.NewControl(), 200, engine.Start{Map: map[string]string{"count": "tally"}}, "count", "tally")
		stop()
		c := engine.NewControl()
		stop = run(c, 250, engine.Start{}, "count", "tally")
		before := bytesOfHead(t, store)
		if err := c.Rollback(t.Context(), first.String(), false); err == nil || !strings.Contains(err.Error(), `no longer has: ["count"]`) {
			t.Errorf("the rollback: %v", err)
		}
		if after := bytesOfHead(t, store); after != before {
			t.Errorf("the head was\n%s\nand is\n%s", before, after)
		}
		stop()
	})
}

// A component that holds transactions is not dropped, and the head not moved for it.
func TestRefusedDropChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBranches(t)
		b.limit.Store(30)
		b.start("", 1)
		b.do(op{kind: "run", more: 10})
		b.end()
		first := b.kept()[0]
		before := bytesOfHead(t, b.store)
		b.startFrom(engine.Start{From: first.String(), Drop: []string{"phased"}}, 1)
		if e := <-b.ended; e.err == nil || !strings.Contains(e.err.Error(), `component "phased" cannot be dropped`) {
			t.Errorf("the start: %v", e.err)
		}
		if after := bytesOfHead(t, b.store); after != before {
			t.Errorf("the head was\n%s\nand is\n%s", before, after)
		}
	})
}

// headSwaps counts the swaps of a head, and may fail or hold up some of them.
type headSwaps struct {
	*memstore.Store
	n      atomic.Int64
	before func(ctx context.Context, data []byte) error
}

func (s *headSwaps) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	s.n.Add(1)
	if s.before != nil {
		if err := s.before(ctx, data); err != nil {
			return "", err
		}
	}
	return s.Store.SwapHead(ctx, old, data)
}

// An orderly end leaves the head settled; if there is nothing to say it is left alone.
func TestOrderlyEndIsSettled(t *testing.T) {
	in, _ := sample(1, 100)
	store := &headSwaps{Store: memstore.New()}
	run := func() (engine.Result, int64) {
		t.Helper()
		var limit atomic.Int64
		limit.Store(-1)
		n := store.n.Load()
		res, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store.Store)))
		if err != nil {
			t.Fatal(err)
		}
		r := headOf(t, store).Regions["count"]
		if r.Settled != r.Current().Batch || r.Current().Batch != res.Last.Batch {
			t.Errorf("the run has ended with %s and is settled up to %d", r.Current(), r.Settled)
		}
		return res, store.n.Load() - n
	}
	if res, swaps := run(); swaps != int64(res.Committed)+2 {
		t.Errorf("%d swaps of the head for a start, %d commits and an end", swaps, res.Committed)
	}
	if res, swaps := run(); res.Committed != 0 || swaps != 1 {
		t.Errorf("a rerun with nothing to do: %d swaps of the head, %d commits", swaps, res.Committed)
	}
}

// A store that is away when all is published neither fails the run nor holds it up.
func TestStoreThatIsAwayAtTheEndIsNotWaitedFor(t *testing.T) {
	in, _ := sample(1, 100)
	for name, fault := range map[string]struct {
		swap func(ctx context.Context) error
		most time.Duration
	}{
		"fails":       {func(context.Context) error { return errors.New("store is away") }, 100 * time.Millisecond},
		"is silent":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 5 * time.Second},
		"has another": {func(context.Context) error { return checkpoint.ErrHeadMoved }, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &headSwaps{Store: memstore.New()}
				var at time.Time
				store.before = func(ctx context.Context, data []byte) error {
					h, err := checkpoint.DecodeHead("head", data)
					if err != nil {
						return err
					}
					r := h.Regions["count"]
					if current := r.Current(); current == nil || r.Settled < current.Batch {
						return nil
					}
					if at.IsZero() {
						at = time.Now()
					}
					return fault.swap(ctx)
				}
				var limit atomic.Int64
				limit.Store(-1)
				_, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store.Store)))
				if err != nil {
					t.Error(err)
				}
				if took := time.Since(at); at.IsZero() || took > fault.most {
					t.Errorf("the end was held up for %s", took)
				}
				if r := headOf(t, store).Regions["count"]; r.Settled >= r.Current().Batch {
					t.Errorf("the head is settled up to %d of %s", r.Settled, r.Current())
				}
			})
		})
	}
}

// Whoever asks a run that has ended is told so at once, also one that never began.
func TestEndedRunAnswersAtOnce(t *testing.T) {
	in, _ := sample(1, 50)
	for name, run := range map[string]func(c *engine.Control) error{
		"ended": func(c *engine.Control) error {
			var limit atomic.Int64
			limit.Store(-1)
			_, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}), engine.WithControl(c))
			return err
		},
		"at most once": func(c *engine.Control) error {
			var limit atomic.Int64
			limit.Store(-1)
			tb := engine.NewTopologyBuilder()
			tb.SetSpout("lines", limited(&limit, 10, in[0]), 1)
			tb.SetBolt("split", func() txn.Bolt { return split{} }, 1).ShuffleGrouping("lines")
			_, err := engine.Run(t.Context(), build(t, tb), engine.WithControl(c), conf(t, map[string]any{"transaction.topology": false}))
			return err
		},
		"refused": func(c *engine.Control) error {
			var limit atomic.Int64
			_, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}), engine.WithControl(c), engine.WithStart(engine.Start{From: "1.1"}))
			if err == nil {
				return errors.New("it was not refused")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := engine.NewControl()
			if err := run(c); err != nil {
				t.Fatal(err)
			}
			_, saved := c.Savepoint(t.Context(), "late")
			_, head := c.Head(t.Context())
			for _, err := range []error{saved, head, c.Rollback(t.Context(), "1.1", false)} {
				if err == nil || !strings.Contains(err.Error(), "the run has ended") {
					t.Errorf("the answer is %v", err)
				}
			}
		})
	}
}
