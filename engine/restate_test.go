package engine_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// pages are what tallies publish: counts of words by the name of the state.
type pages struct {
	mu   sync.Mutex
	rows map[string]map[string]int64
}

// tally counts words in each of its states.
type tally struct {
	names []string
	out   *pages
	n     []*txn.Aggregate[int64]
}

func (l *tally) Open(_ *txn.Context, s *txn.State) error {
	for _, name := range l.names {
		l.n = append(l.n, txn.NewAggregate(s, name, txn.Sum()))
	}
	return nil
}

func (l *tally) Execute(*tuple.Tuple, *txn.Collector) error {
	for _, n := range l.n {
		if err := n.Add(1); err != nil {
			return err
		}
	}
	return nil
}

func (l *tally) Publish(_ context.Context, _ txn.BatchID, view txn.View, _ bool) error {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	for i, n := range l.n {
		err := n.Scan(view, func(key []tuple.Value, v int64) error {
			if l.out.rows[l.names[i]] == nil {
				l.out.rows[l.names[i]] = map[string]int64{}
			}
			l.out.rows[l.names[i]][key[0].Str()] = v
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tallies runs tallies over more and more lines, from one store.
type tallies struct {
	lines []string
	store checkpoint.Store
	state checkpoint.StateOpener
	named string // the component, if it is not "count"
}

// run counts the lines until one, in states of these names, and returns what is published.
func (l *tallies) run(t *testing.T, s engine.Start, until int, names ...string) (map[string]map[string]int64, engine.Result, error) {
	t.Helper()
	out := &pages{rows: map[string]map[string]int64{}}
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", func() txn.Spout { return newLines(l.lines[:until]) }, 1)
	tb.SetBolt("split", func() txn.Bolt { return split{} }, 1).ShuffleGrouping("lines")
	tb.SetBolt(cmp.Or(l.named, "count"), func() txn.Bolt { return &tally{names: names, out: out} }, 2).FieldsGrouping("split", "word")
	res, err := engine.Run(t.Context(), build(t, tb), conf(t, map[string]any{"checkpoint.retained": 100}), engine.WithName("books"),
		engine.WithStore(l.store, l.state), engine.WithStart(s))
	return out.rows, res, err
}

// counts runs tallies until a line; want says from which line on each state has counted.
func (l *tallies) counts(t *testing.T, s engine.Start, until int, want map[string]int) {
	t.Helper()
	names := slices.Collect(maps.Keys(want)) // in any order
	rows, _, err := l.run(t, s, until, names...)
	if err != nil {
		t.Fatalf("with %+v: %v", s, err)
	}
	for name, from := range want {
		if right := wordsOf(l.lines[from:], until-from); !maps.Equal(rows[name], right) {
			t.Errorf("with %+v state %q has counted %d words, want %d from line %d on to %d", s, name, len(rows[name]), len(right), from, until)
		}
	}
}

// refused runs tallies that are to be refused, and are to say all of words.
func (l *tallies) refused(t *testing.T, s engine.Start, until int, names []string, words ...string) {
	t.Helper()
	_, res, err := l.run(t, s, until, names...)
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Fatalf("%q with %+v: %v, want it refused with %s", names, s, err, w)
		}
	}
	if res.Committed > 0 {
		t.Errorf("%q with %+v: %d checkpoints", names, s, res.Committed)
	}
}

// Case: a program that called a state by another name began it anew, and nobody was told.
func TestStatesThatAreNotRegisteredAnyMoreAreMissed(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (checkpoint.Store, checkpoint.StateOpener){
		"memory": func(*testing.T) (checkpoint.Store, checkpoint.StateOpener) {
			s := memstore.New()
			return s, memstore.NewOpener(s)
		},
		"directory": func(t *testing.T) (checkpoint.Store, checkpoint.StateOpener) {
			s, err := filestore.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			o := pebblestate.New(pebblestate.Options{Dir: t.TempDir(), Store: s})
			t.Cleanup(func() { o.Close() })
			return s, o
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := sample(1, 600)
			l := &tallies{lines: in[0]}
			l.store, l.state = open(t)
			l.renameAndDrop(t)
		})
	}
}

func (l *tallies) renameAndDrop(t *testing.T) {
	_, first, err := l.run(t, engine.Start{}, 100, "total", "seen")
	if err != nil {
		t.Fatal(err)
	}
	missed := []string{`topology "books"`, `component "count"`, `["total" "seen"]`, "--drop count/NAME", "--map count/OLD=count/NEW"}
	l.refused(t, engine.Start{}, 150, []string{"total2"}, missed...)
	l.refused(t, engine.Start{Drop: []string{"count/total"}}, 150, []string{"total2"}, `["seen"]`)
	l.counts(t, engine.Start{}, 150, map[string]int{"total": 0, "seen": 0}) // nothing was lost by it

	changed := engine.Start{Map: map[string]string{"count/total": "count/sum"}, Drop: []string{"count/seen"}}
	l.counts(t, changed, 200, map[string]int{"sum": 0, "more": 150})
	l.counts(t, engine.Start{}, 250, map[string]int{"sum": 0, "more": 150})
	// A state of a name that was dropped is another one.
	l.counts(t, engine.Start{}, 300, map[string]int{"sum": 0, "more": 150, "seen": 250})
	l.counts(t, engine.Start{Drop: []string{"count/sum"}}, 350, map[string]int{"sum": 300, "more": 150, "seen": 250})
	l.counts(t, engine.Start{Map: map[string]string{"count/sum": "count/seen", "count/seen": "count/sum"}}, 400, map[string]int{"sum": 250, "more": 150, "seen": 300})
	l.refused(t, engine.Start{Map: map[string]string{"count/more": "count/seen"}}, 400, []string{"seen", "sum"}, `two states would be "seen"`)

	// To a checkpoint from before: what it has that is gone by now is missed.
	from := first.Last.String()
	l.refused(t, engine.Start{From: from}, 400, []string{"sum", "more", "seen"}, `["total"]`)
	l.counts(t, engine.Start{From: from, Map: map[string]string{"count/total": "count/sum"}}, 450, map[string]int{"sum": 0, "seen": 0, "more": 100})
	l.counts(t, engine.Start{From: from}, 450, map[string]int{"total": 0, "seen": 0})
	// The component gets another name, too: states go by the new one.
	l.refused(t, engine.Start{Map: map[string]string{"count/total": "books/sum"}}, 500, []string{"sum"}, "a state stays one of its component")
	l.named = "books"
	l.refused(t, engine.Start{Map: map[string]string{"count": "books"}}, 500, []string{"sum"}, `["total" "seen"]`, "--drop books/NAME")
	l.counts(t, engine.Start{Map: map[string]string{"count": "books", "books/total": "books/sum"}, Drop: []string{"books/seen"}}, 500, map[string]int{"sum": 0})
}

// A task that holds nothing of a state does not vouch for the others.
func TestStateOfASingleKeyIsMissed(t *testing.T) {
	for _, word := range []string{"a", "b", "c", "d"} {
		store := memstore.New()
		l := &tallies{lines: []string{word, word, word}, store: store, state: memstore.NewOpener(store)}
		l.counts(t, engine.Start{}, 2, map[string]int{"total": 0})
		l.refused(t, engine.Start{}, 3, []string{"total2"}, `["total"]`)
	}
}

// custom is a bolt that does what it is told with its state.
type custom struct {
	open    func(s *txn.State) (execute func() error)
	execute func() error
}

func (c *custom) Open(_ *txn.Context, s *txn.State) error { c.execute = c.open(s); return nil }

func (c *custom) Execute(*tuple.Tuple, *txn.Collector) error { return c.execute() }

func (c *custom) OnTimer(txn.Timer, *txn.Collector) error { return nil }

// What would not be lost is not missed; what would be is, also timers. The ways out are
// heeded, also for a state that has become one of another kind.
func TestOnlyWhatWouldBeLostIsMissed(t *testing.T) {
	nothing := func(*txn.State) func() error { return func() error { return nil } }
	value := func(opts ...txn.StateOption) func(s *txn.State) func() error {
		return func(s *txn.State) func() error {
			v := txn.NewValue(s, "n", txn.Int64Codec(), opts...)
			return func() error { return v.Set(1) }
		}
	}
	empty := func(s *txn.State) func() error { value()(s); return nothing(s) }
	both := func(s *txn.State) func() error {
		txn.NewList(s, "m", txn.Int64Codec())
		return value()(s)
	}
	sum := func(s *txn.State) func() error {
		n := txn.NewAggregate(s, "n", txn.Sum())
		return func() error { return n.Add(1) }
	}
	timers := func(s *txn.State) func() error {
		timers := s.Timers()
		return func() error { timers.SetProcessing(time.Now().Add(time.Hour), "x"); return nil }
	}
	for name, c := range map[string]struct {
		before, after func(s *txn.State) func() error
		away          time.Duration // from the first program to the second
		start         engine.Start
		want          string // "": it is not refused
	}{
		"value":             {value(), nothing, 0, engine.Start{}, `["n"]`},
		"dropped":           {value(), nothing, 0, engine.Start{Drop: []string{"bolt/n"}}, ""},
		"with an empty one": {both, nothing, 0, engine.Start{}, `["m" "n"]`},
		"empty":             {empty, nothing, 0, engine.Start{}, ""},
		"with a TTL":        {value(txn.WithTTL(time.Hour)), nothing, 0, engine.Start{}, `["n"]`},
		"expired":           {value(txn.WithTTL(time.Hour)), nothing, 2 * time.Hour, engine.Start{}, ""},
		"other kind":        {value(), sum, 0, engine.Start{}, "--drop bolt/n"},
		"other, dropped":    {value(), sum, 0, engine.Start{Drop: []string{"bolt/n"}}, ""},
		"timers":            {timers, nothing, 0, engine.Start{}, `["isobar.timers.processing"]`},
		"timers, fired":     {timers, func(s *txn.State) func() error { s.Timers(); return nothing(s) }, 2 * time.Hour, engine.Start{}, ""},
		"timers, dropped":   {timers, nothing, 0, engine.Start{Drop: []string{"bolt/isobar.timers.processing"}}, ""},
		"renamed to ours":   {value(), nothing, 0, engine.Start{Map: map[string]string{"bolt/n": "bolt/isobar.dropped.1"}}, "the engine's own"},
		"renamed to nobody": {value(), nothing, 0, engine.Start{Map: map[string]string{"bolt/n": "bolt/m"}}, `["m"]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var limit atomic.Int64
				run := func(open func(s *txn.State) func() error, length time.Duration, s engine.Start) error {
					tb := engine.NewTopologyBuilder()
					tb.SetSpout("lines", limited(&limit, 10, []string{"a", "b", "c", "d"}), 1)
					tb.SetBolt("bolt", func() txn.Bolt { return &custom{open: open} }, 2).FieldsGrouping("lines", "line")
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					ended := start(ctx, build(t, tb), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)), engine.WithStart(s))
					time.Sleep(length)
					stop()
					return (<-ended).err
				}
				limit.Store(3)
				if err := run(c.before, time.Minute, engine.Start{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.away)
				err := run(c.after, time.Minute, c.start)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if c.want != "" {
					return
				}
				// What the second one has dropped, let fire or never missed, nobody will.
				if err := run(nothing, time.Minute, engine.Start{}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}
