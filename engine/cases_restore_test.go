package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

// These cases are about what a run begins with and what becomes of it.

// limited returns lines that let only so many through; -1 is no limit.
func limited(limit *atomic.Int64, pace int, ls []string) func() txn.Spout {
	return func() txn.Spout {
		l := newLines(ls)
		idle := paced(pace)
		l.gate = func(part, line int) bool {
			return (limit.Load() < 0 || int64(line) < limit.Load()) && idle(part, line)
		}
		return l
	}
}

// dying is a two-phase sink whose process is killed while it publishes: before
// anything was published, or after, so that nobody learns of it.
type dying struct {
	twoPhase
	when *atomic.Value // "", "before" or "after"
}

var errKilled = txn.Fatal(errors.New("killed"))

func (d *dying) Publish(ctx context.Context, id txn.TransactionID, data []byte) error {
	if d.when.Load() == "before" {
		return errKilled
	}
	err := d.twoPhase.Publish(ctx, id, data)
	if err == nil && d.when.Load() == "after" {
		return errKilled
	}
	return err
}

// publishingTwice is a topology whose runs can be killed while they publish.
type publishingTwice struct {
	x     *target
	limit atomic.Int64
	when  atomic.Value
	store *memstore.Store
	lines []string
}

func newPublishingTwice(lines []string) *publishingTwice {
	p := &publishingTwice{x: newTarget(), store: memstore.New(), lines: lines}
	p.when.Store("")
	return p
}

func (p *publishingTwice) run(t *testing.T) (engine.Result, error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", limited(&p.limit, 1000, p.lines), 1)
	b.SetBolt("sink", func() txn.Bolt { return &dying{twoPhase{t: p.x}, &p.when} }, 1).ShuffleGrouping("lines")
	return engine.Run(t.Context(), build(t, b), engine.WithStore(p.store, memstore.NewOpener(p.store)),
		conf(t, map[string]any{"topology.restart.max": 1}))
}

func once(lines []string) map[string]int64 {
	want := map[string]int64{}
	for _, l := range lines {
		want[l] = 1
	}
	return want
}

// Case: a checkpoint was restored a second time, after a crash while its transactions
// were published, and they were published twice or the restore failed for ever.
func TestRestoringTwiceFromOneCheckpointPublishesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublishingTwice(numbered("n", 200))
		p.limit.Store(100)
		var from []checkpoint.Ref
		for i, when := range []string{"before", "before", "after", "after", "before"} {
			p.when.Store(when)
			res, err := p.run(t)
			if !errors.Is(err, errKilled) {
				t.Fatalf("run %d: %v", i, err)
			}
			if i > 0 {
				from = append(from, *res.From)
			}
		}
		if len(slices.Compact(from)) != 1 {
			t.Fatalf("the runs began from %v", from)
		}
		p.when.Store("")
		p.limit.Store(-1)
		if _, err := p.run(t); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(p.x.words, once(p.lines)) || len(p.x.prepared) != 0 {
			t.Errorf("the target holds %d words of %d, n0 %d times; %d transactions are left",
				len(p.x.words), len(p.lines), p.x.words["n0"], len(p.x.prepared))
		}
	})
}

// Case: the process was down for longer than the target keeps prepared transactions;
// the committed data were lost without a word.
func TestTransactionThatTimedOutAtTheTargetStopsTheRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublishingTwice(numbered("n", 200))
		p.limit.Store(100)
		p.when.Store("before")
		if _, err := p.run(t); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		p.when.Store("")
		lost := p.x.prepared
		p.x.prepared = map[txn.TransactionID][]string{}
		if len(lost) == 0 {
			t.Fatal("nothing was prepared")
		}
		for range 2 {
			_, err := p.run(t)
			named := err != nil && slices.ContainsFunc(slices.Collect(maps.Keys(lost)), func(id txn.TransactionID) bool {
				return strings.Contains(err.Error(), id.String()+" is not prepared")
			})
			if !named || len(p.x.words) != 0 {
				t.Fatalf("%d words are published; error %v, want one that names a transaction of %v", len(p.x.words), err, slices.Collect(maps.Keys(lost)))
			}
		}
		// Someone puts them back.
		maps.Copy(p.x.prepared, lost)
		p.limit.Store(-1)
		if _, err := p.run(t); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(p.x.words, once(p.lines)) {
			t.Errorf("the target holds %d words of %d", len(p.x.words), len(p.lines))
		}
	})
}

// forgetfulStore says that it has stored an object and has not.
type forgetfulStore struct {
	*memstore.Store
	mu     sync.Mutex
	forgot string
}

func (s *forgetfulStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgot == "" && strings.HasPrefix(name, "data/") {
		s.forgot = name
		return nil
	}
	return s.Store.Put(ctx, name, body, size, crc)
}

// Case: a published snapshot refers to a file that never reached the store, and only
// readers found out, much later.
func TestCheckpointThatRefersToAMissingFileIsRefused(t *testing.T) {
	in, _ := sample(2, 50)
	store := &forgetfulStore{Store: memstore.New()}
	run := func() error {
		topo := wordCount(t, func() txn.Spout { return newLines(in...) }, func() txn.Bolt { return split{} }, &board{})
		_, err := engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		return err
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // not only the first time
		if err := run(); !errors.Is(err, checkpoint.ErrNotFound) || !strings.Contains(err.Error(), store.forgot) {
			t.Fatalf("error %v, want one that names %s", err, store.forgot)
		}
	}
}

// greedyStore reads all of what it is given and then fails, every other time.
type greedyStore struct {
	*memstore.Store
	puts atomic.Int64
}

func (s *greedyStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if s.puts.Add(1)%2 == 1 {
		n, err := io.Copy(io.Discard, body)
		return errors.Join(fmt.Errorf("503 after %d bytes", n), err)
	}
	return s.Store.Put(ctx, name, body, size, crc)
}

// Case: an upload that was tried again sent what was left of its reader: nothing.
func TestRetriedPutSendsTheWholeObject(t *testing.T) {
	in, want := sample(2, 100)
	synctest.Test(t, func(t *testing.T) {
		store := &greedyStore{Store: memstore.New()}
		for range 2 { // the second run restores what the first has stored
			b := &board{}
			topo := wordCount(t, pacedLines(20, in...), func() txn.Bolt { return split{} }, b)
			res, err := engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
			if err != nil || res.Restarts != 0 || !maps.Equal(b.get(), want) {
				t.Errorf("%v, %d restarts, %d words", err, res.Restarts, len(b.get()))
			}
		}
		if n := store.puts.Load(); n < 8 {
			t.Errorf("%d puts", n)
		}
	})
}

// Case: state that is written once was carried by reference to a checkpoint that
// retention had removed long ago, so that no restart ever worked.
func TestStateUnchangedForAThousandCheckpointsIsRestored(t *testing.T) {
	words := numbered("w", 64)
	synctest.Test(t, func(t *testing.T) {
		store, b := memstore.New(), &board{}
		var limit atomic.Int64
		const always = 2200
		run := func(ctx context.Context) <-chan ended {
			tb := engine.NewTopologyBuilder()
			tb.SetSpout("words", limited(&limit, 10, slices.Concat(words, words)), 1)
			tb.SetSpout("busy", pacedLines(1, slices.Repeat([]string{"always"}, always)), 1)
			tb.SetBolt("count", func() txn.Bolt { return &count{} }, 4).FieldsGrouping("words", "line").FieldsGrouping("busy", "line")
			tb.SetBolt("sink", func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping("count")
			return start(ctx, build(t, tb), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 1, "checkpoint.retained": 3}),
				engine.WithStore(store, memstore.NewOpener(store)))
		}
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		limit.Store(int64(len(words)))
		first := run(ctx)
		time.Sleep(time.Minute)
		kill()
		if e := <-first; e.err != nil || e.res.Committed < 1000 {
			t.Fatalf("%v, %d checkpoints", e.err, e.res.Committed)
		}
		limit.Store(-1)
		if e := <-run(t.Context()); e.err != nil {
			t.Fatal(e.err)
		}
		want := map[string]int64{"always": always}
		for _, w := range words {
			want[w] = 2
		}
		if got := b.get(); !maps.Equal(got, want) {
			t.Errorf("%d words, want %d; always = %d, w0 = %d", len(got), len(want), got["always"], got["w0"])
		}
	})
}
