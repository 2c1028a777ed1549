package engine_test

import (
	"bytes"
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
	"github.com/isobar-io/isobar/txn"
)

// counting is a word count over lines of which limit says how many there are so far.
func counting(t *testing.T, limit *atomic.Int64, lines []string, b *board, names ...string) *engine.Topology {
	t.Helper()
	name := func(s string) string {
		for i := 0; i+1 < len(names); i += 2 {
			if names[i] == s {
				return names[i+1]
			}
		}
		return s
	}
	tb := engine.NewTopologyBuilder()
	tb.SetSpout(name("lines"), limited(limit, 10, lines), 1)
	tb.SetBolt(name("split"), func() txn.Bolt { return split{} }, 2).ShuffleGrouping(name("lines"))
	tb.SetBolt(name("count"), func() txn.Bolt { return &count{} }, 2).FieldsGrouping(name("split"), "word")
	tb.SetBolt(name("sink"), func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping(name("count"))
	return build(t, tb)
}

func headOf(t *testing.T, s checkpoint.Store) *checkpoint.Head {
	t.Helper()
	data, _, err := s.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wordsOf returns how often each word is in the first n lines.
func wordsOf(lines []string, n int) map[string]int64 {
	want := map[string]int64{}
	for _, l := range lines[:n] {
		for w := range strings.FieldsSeq(l) {
			want[w]++
		}
	}
	return want
}

// A run begins from any kept checkpoint, or anew, and what it undoes can be gone back to.
func TestRunsBeginFromAnyKeptCheckpoint(t *testing.T) {
	in, _ := sample(1, 400)
	lines := in[0]
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var limit atomic.Int64
		run := func(from string, until int) (b *board, res engine.Result, err error) {
			b = &board{}
			limit.Store(int64(until))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := start(ctx, counting(t, &limit, lines, b), engine.WithStore(store, memstore.NewOpener(store)),
				engine.WithStart(engine.Start{From: from}), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 50}))
			time.Sleep(time.Second)
			stop()
			e := <-ended
			return b, e.res, e.err
		}
		check := func(b *board, res engine.Result, err error, n int) checkpoint.Ref {
			t.Helper()
			if err != nil || res.Last == nil {
				t.Fatalf("%v, last %v", err, res.Last)
			}
			if got, want := b.get(), wordsOf(lines, n); !maps.Equal(got, want) {
				t.Fatalf("%d words published, want %d", len(got), len(want))
			}
			return *res.Last
		}
		go1 := func(from string, until int) checkpoint.Ref {
			t.Helper()
			b, res, err := run(from, until)
			return check(b, res, err, until)
		}
		if _, _, err := run("latest", 100); err == nil || !strings.Contains(err.Error(), `"topology" has no checkpoints in its store`) {
			t.Errorf("from the latest of none: %v", err)
		}
		first := go1("", 100)
		second := go1("", 200)
		if again := go1(first.String(), 150); again.Generation <= second.Generation || again.Batch <= first.Batch {
			t.Errorf("from %s it went on to %s after %s", first, again, second)
		}
		if h := headOf(t, store); len(h.Regions["count"].Superseded) == 0 {
			t.Errorf("what was undone is not kept: %+v", h.Regions)
		}
		// Forth to what was undone, and anew.
		go1(second.String(), 250)
		if _, res, err := run("empty", 50); err != nil || res.From != nil {
			t.Errorf("an empty start went on from %v: %v", res.From, err)
		}
		if b, _, err := run("latest", 60); err != nil || !maps.Equal(b.get(), wordsOf(lines, 60)) {
			t.Errorf("after an empty start: %v", err)
		}
		go1(second.String(), 400)
		for from, words := range map[string]string{"77.1": "it keeps", "x": "GENERATION.BATCH", "1.1,1.1": "keeps no"} {
			if _, _, err := run(from, 400); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("from %s: %v", from, err)
			}
		}
	})
}

// Components get other names, and are left behind; otherwise they are missed.
func TestComponentsAreRenamedAndDropped(t *testing.T) {
	in, _ := sample(1, 300)
	lines := in[0]
	store := memstore.New()
	var limit atomic.Int64
	run := func(s engine.Start, until int, names ...string) (*board, error) {
		b := &board{}
		limit.Store(-1)
		_, err := engine.Run(t.Context(), counting(t, &limit, lines[:until], b, names...), conf(t, nil),
			engine.WithStore(store, memstore.NewOpener(store)), engine.WithStart(s))
		return b, err
	}
	if _, err := run(engine.Start{}, 100); err != nil {
		t.Fatal(err)
	}
	names := []string{"count", "tally", "lines", "source"}
	if _, err := run(engine.Start{}, 200, names...); err == nil || !strings.Contains(err.Error(), "--map") || !strings.Contains(err.Error(), "count") {
		t.Errorf("renamed without a word: %v", err)
	}
	mapped := engine.Start{Map: map[string]string{"count": "tally", "lines": "source"}}
	b, err := run(mapped, 200, names...)
	if err != nil || !maps.Equal(b.get(), wordsOf(lines, 200)) {
		t.Fatalf("renamed: %v", err)
	}
	if b, err = run(engine.Start{}, 250, names...); err != nil || !maps.Equal(b.get(), wordsOf(lines, 250)) {
		t.Fatalf("after the first commit under the new names: %v", err)
	}
	if _, err := run(engine.Start{Map: map[string]string{"tally": "split"}}, 250, "lines", "source"); err == nil || !strings.Contains(err.Error(), "split") {
		t.Errorf("two components of one name: %v", err)
	}
	// Without its state a counter begins anew, and has nothing to count but the rest.
	names[1] = "other"
	b, err = run(engine.Start{Drop: []string{"tally", "sink"}}, 300, names...)
	want := wordsOf(lines[250:], 50)
	if err != nil || !maps.Equal(b.get(), want) {
		t.Errorf("dropped: %v, %d words, want %d", err, len(b.get()), len(want))
	}
}

// A savepoint is a checkpoint that stays, and a running topology goes back to it.
func TestSavepointAndRollbackWhileItRuns(t *testing.T) {
	in, _ := sample(1, 3000)
	lines := in[0]
	synctest.Test(t, func(t *testing.T) {
		store, b, control := memstore.New(), &board{}, engine.NewControl()
		var limit atomic.Int64
		limit.Store(500)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := start(ctx, counting(t, &limit, lines, b), engine.WithStore(store, memstore.NewOpener(store)),
			engine.WithControl(control), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000, "checkpoint.retained": 2}))
		time.Sleep(time.Second)
		refs, err := control.Savepoint(ctx, "before")
		if err != nil || len(refs) != 1 {
			t.Fatalf("savepoint: %v, %v", refs, err)
		}
		if _, err := control.Savepoint(ctx, "before"); err == nil || !strings.Contains(err.Error(), "another name") {
			t.Errorf("two savepoints of one name: %v", err)
		}
		limit.Store(1000)
		for range 5 {
			time.Sleep(time.Second)
			if _, err := control.Savepoint(ctx, ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // for it to be published
		if got := b.get(); !maps.Equal(got, wordsOf(lines, 1000)) {
			t.Fatalf("%d words published", len(got))
		}
		// From outside, as another process would.
		if _, _, after, err := checkpoint.EditHead(ctx, store, "operator-1", checkpoint.PruneEdit(1)); err != nil || len(after.Kept("count")) < 2 {
			t.Fatalf("prune: %v", err)
		}
		if err := control.Rollback(ctx, "9.9", false); err == nil || !strings.Contains(err.Error(), "keeps no checkpoint 9.9") {
			t.Errorf("back to nowhere: %v", err)
		}
		limit.Store(700)
		if err := control.Rollback(ctx, refs[0].String(), false); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.n = 0 // what is published now is older, and meant to be
		b.mu.Unlock()
		h, err := control.Head(ctx)
		if err != nil || *h.Regions["count"].Current() != refs[0] && h.Regions["count"].Current().Manifest != h.Pins[0].Manifest {
			t.Errorf("the head says %+v, %v", h, err)
		}
		time.Sleep(10 * time.Second)
		if _, err := control.Savepoint(ctx, "after"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := b.get(); !maps.Equal(got, wordsOf(lines, 700)) {
			t.Errorf("after the rollback %d words are published", len(got))
		}
		stop()
		e := <-ended
		if e.err != nil {
			t.Fatal(e.err)
		}
		if _, err := control.Savepoint(timeout(t), "late"); err == nil {
			t.Error("a savepoint of a run that has ended")
		}
	})
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A run from a copy leaves the transactions of the original alone, unless it takes over.
// What a stateful bolt has handed in may be such, and may be its state: neither is guessed.
func TestCopiedCheckpointLeavesTransactionsAlone(t *testing.T) {
	lines := numbered("n", 100)
	for name, takeOver := range map[string]bool{"alone": false, "take over": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, world := memstore.New(), newOutside()
				run := func(store *memstore.Store, o *outside, s engine.Start, hook func(string)) error {
					t.Helper()
					topo := publishing(t, pacedLines(10, lines), never, func() *sink { return &sink{o: o, log: &calls{}} }, 2)
					_, err := engine.Run(t.Context(), topo, engine.WithStore(store, memstore.NewOpener(store)), engine.WithStart(s),
						engine.WithHook(hook), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000}))
					return err
				}
				// The copy is of the moment when everything is committed and nothing published.
				var copied *memstore.Store
				then := newOutside()
				var once sync.Once
				err := run(store, world, engine.Start{}, func(step string) {
					if step == "ack.before" {
						once.Do(func() {
							copied = copyOf(t, store, "copy")
							maps.Copy(then.prepared, world.prepared)
						})
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				world.check(t, lines)
				err = run(copied, then, engine.Start{TakeOver: takeOver}, func(string) {})
				if takeOver {
					then.check(t, lines)
				} else if err == nil || !strings.Contains(err.Error(), "may be its state") || len(then.published) > 0 {
					t.Errorf("without --take-over: %v, published %d; want it refused", err, len(then.published))
				}
			})
		})
	}
}

// copyOf returns a copy of a store that belongs to another run.
func copyOf(t *testing.T, from checkpoint.Store, runID string) *memstore.Store {
	t.Helper()
	to := memstore.New()
	for o, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		body, size, err := from.Open(t.Context(), o.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		if err == nil {
			err = to.Put(t.Context(), o.Name, bytes.NewReader(data), size, checkpoint.CRC(data))
		}
		if err := errors.Join(err, body.Close()); err != nil {
			t.Fatal(err)
		}
	}
	h := headOf(t, from)
	h.RunID = runID
	data, err := checkpoint.EncodeHead(h)
	if err == nil {
		_, err = to.SwapHead(t.Context(), "", data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// A start that has a name takes its regions back once: the same start made again, by a
// process in the place of one that died, goes on from what the first has committed. A
// start that must be new refuses what others have committed.
func TestNamedStartGoesBackOnce(t *testing.T) {
	in, _ := sample(1, 400)
	lines := in[0]
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var limit atomic.Int64
		run := func(s engine.Start, until int) (*board, engine.Result, error) {
			b := &board{}
			limit.Store(int64(until))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := start(ctx, counting(t, &limit, lines, b), engine.WithStore(store, memstore.NewOpener(store)),
				engine.WithStart(s), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 50, "checkpoint.retained": 1}))
			time.Sleep(time.Second)
			stop()
			e := <-ended
			return b, e.res, e.err
		}
		fresh := engine.Start{From: engine.FromNew, Once: "a"}
		if _, _, err := run(fresh, 100); err != nil {
			t.Fatal(err)
		}
		b, res, err := run(fresh, 200)
		if err != nil || res.From == nil {
			t.Fatalf("the same start again goes on from %v (%v), want from what is committed", res.From, err)
		}
		if got, want := b.get(), wordsOf(lines, 200); !maps.Equal(got, want) {
			t.Errorf("the same start again shows other counts than those of 200 lines")
		}
		if _, _, err := run(engine.Start{From: engine.FromNew, Once: "b"}, 200); err == nil || !strings.Contains(err.Error(), "has checkpoints") {
			t.Errorf("another start that must be new: %v, want it refused", err)
		}
		anew := engine.Start{From: "empty", Once: "b"}
		for i, want := range []bool{true, false} {
			_, res, err := run(anew, 250+i)
			if err != nil || (res.From == nil) != want {
				t.Errorf("start %d from nothing goes on from %v (%v)", i+1, res.From, err)
			}
		}
		last := headOf(t, store).Regions["count"].Current().String()
		if _, _, err := run(engine.Start{Once: "c", Unmoved: map[string]string{"count": "1.1"}}, 300); !errors.Is(err, engine.ErrElsewhere) {
			t.Errorf("a start for another head than the one there: %v, want %v", err, engine.ErrElsewhere)
		}
		if _, _, err := run(engine.Start{Once: "c", Unmoved: map[string]string{"count": last}}, 300); err != nil {
			t.Errorf("a start for the head that is there: %v", err)
		}
	})
}

// shut is a store that cannot open objects.
type shut struct{ *memstore.Store }

func (shut) Open(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, errors.New("503 slow down")
}

// A store that does not answer while the regions of its head are looked for is no reason to
// give the topology up.
func TestStoreThatIsAwayAtTheStart(t *testing.T) {
	in, _ := sample(1, 100)
	store := memstore.New()
	var limit atomic.Int64
	limit.Store(-1)
	run := func(s engine.Start, on checkpoint.Store, names ...string) error {
		_, err := engine.Run(t.Context(), counting(t, &limit, in[0], &board{}, names...), conf(t, nil),
			engine.WithStore(on, memstore.NewOpener(store)), engine.WithStart(s))
		return err
	}
	if err := run(engine.Start{}, store); err != nil {
		t.Fatal(err)
	}
	names := []string{"count", "tally"}
	if err := run(engine.Start{Map: map[string]string{"count": "tally"}}, store, names...); err != nil {
		t.Fatal(err)
	}
	if err := run(engine.Start{}, shut{store}, names...); !errors.Is(err, engine.ErrStoreUnreachable) {
		t.Errorf("%v, want %v", err, engine.ErrStoreUnreachable)
	}
}

// halfway is a store whose second swap of the head is never made: its process dies.
type halfway struct {
	*memstore.Store
	swaps atomic.Int32
	die   func()
}

func (d *halfway) SwapHead(ctx context.Context, old checkpoint.Version, head []byte) (checkpoint.Version, error) {
	if d.swaps.Add(1) == 2 {
		d.die()
		return "", errors.New("it was never sent")
	}
	return d.Store.SwapHead(ctx, old, head)
}

// A process that dies when one region of two has begun, and is started again, goes on with
// both, though the head has another start's name for the second.
func TestStartThatDiesBetweenItsRegions(t *testing.T) {
	in, _ := sample(1, 200)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var boards [2]*board
		run := func(on checkpoint.Store, s engine.Start, lines int, opts ...engine.Option) error {
			var limit atomic.Int64
			limit.Store(-1)
			tb := engine.NewTopologyBuilder()
			for i, suffix := range []string{"-1", "-2"} {
				boards[i] = &board{}
				tb.SetSpout("lines"+suffix, limited(&limit, 10, in[0][:lines]), 1)
				tb.SetBolt("split"+suffix, func() txn.Bolt { return split{} }, 1).ShuffleGrouping("lines" + suffix)
				tb.SetBolt("count"+suffix, func() txn.Bolt { return &count{} }, 1).FieldsGrouping("split"+suffix, "word")
				tb.SetBolt("sink"+suffix, func() txn.Bolt { return &latest{b: boards[i]} }, 1).GlobalGrouping("count" + suffix)
			}
			opts = append(opts, engine.WithStore(on, memstore.NewOpener(store)), engine.WithStart(s), conf(t, nil))
			_, err := engine.Run(t.Context(), build(t, tb), opts...)
			return err
		}
		if err := run(store, engine.Start{Once: "first"}, 100); err != nil {
			t.Fatal(err)
		}
		control := engine.NewControl()
		err := run(&halfway{Store: store, die: control.Abandon}, engine.Start{Once: "second"}, 200, engine.WithControl(control))
		if !errors.Is(err, engine.ErrAbandoned) {
			t.Fatal(err)
		}
		began := 0
		for _, r := range headOf(t, store).Regions {
			if r.Started == "second" {
				began++
			}
		}
		if began != 1 {
			t.Fatalf("%d regions have begun", began)
		}
		if err := run(store, engine.Start{Once: "second", Begun: true}, 200); err != nil {
			t.Fatal(err)
		}
		for _, b := range boards {
			if got := b.get(); !maps.Equal(got, wordsOf(in[0], 200)) {
				t.Errorf("%d words are published", len(got))
			}
		}
		if err := run(store, engine.Start{Once: "first", Begun: true}, 200); !errors.Is(err, engine.ErrReplaced) {
			t.Errorf("the one before: %v, want %v", err, engine.ErrReplaced)
		}
	})
}
