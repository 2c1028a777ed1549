package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// seen records what bolts got, by component and task. What a failed generation did
// before it was rolled back is in it too.
type seen struct {
	mu  sync.Mutex
	got map[string][]string
}

func (s *seen) add(where, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got == nil {
		s.got = map[string][]string{}
	}
	s.got[where] = append(s.got[where], what)
}

func (s *seen) at(where string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.got[where]))
}

// watcher records the first value of every tuple.
type watcher struct {
	seen *seen
	ctx  *txn.Context
}

func (w *watcher) Open(ctx *txn.Context) error { w.ctx = ctx; return nil }

func (w *watcher) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	w.seen.add(fmt.Sprintf("%s/%d", w.ctx.Component, w.ctx.TaskIndex), t.Value(0).Str())
	return nil
}

// fan emits each word on a named, a direct and a typed stream.
type fan struct{ ctx *txn.Context }

func (f *fan) Open(ctx *txn.Context) error { f.ctx = ctx; return nil }

func (*fan) DeclareOutputFields(d *txn.OutputDeclarer) {
	d.DeclareStream("named", "word")
	d.DeclareDirect("direct", "word")
	d.DeclareTyped("typed", txn.Field{Name: "word", Kind: tuple.KindString}, txn.Field{Name: "n", Kind: tuple.KindInt64})
}

func (f *fan) Execute(t *tuple.Tuple, out *txn.Collector) error {
	for w := range strings.FieldsSeq(t.Str(0)) {
		v := tuple.String(w)
		if ids := out.EmitTasks("named", v); len(ids) != 3 {
			return fmt.Errorf("emit went to tasks %v", ids)
		}
		ids := f.ctx.TaskIDs("direct")
		out.EmitDirect("direct", ids[len(w)%len(ids)], v)
		out.EmitTo("typed", v, tuple.Int(len(w)))
	}
	return nil
}

// byFirst sends words by their first letter: a to the first task, b to both, others
// to nobody.
type byFirst struct{ targets int }

func (g *byFirst) Prepare(c txn.GroupingContext) { g.targets = len(c.Targets) }

func (g *byFirst) Choose(dst []int, vals []tuple.Value) []int {
	switch vals[0].Str()[0] {
	case 'a':
		return append(dst, 0)
	case 'b':
		return append(dst, 0, g.targets-1)
	}
	return dst
}

func TestStreamsAndGroupingsReachTheRightTasks(t *testing.T) {
	var s seen
	watch := func() txn.Bolt { return &watcher{seen: &s} }
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return newLines([]string{"aa b ccc", "aa bb"}) }, 1)
	b.SetBolt("fan", func() txn.Bolt { return &fan{} }, 1).LocalOrShuffleGrouping("lines")
	b.SetBolt("all", watch, 2).Grouping("fan", "named", engine.All())
	b.SetBolt("none", watch, 1).Grouping("fan", "named", engine.None())
	b.SetBolt("direct", watch, 2).DirectGrouping("fan", "direct")
	b.SetBolt("custom", watch, 2).Grouping("fan", "typed", engine.Custom(func() txn.CustomGrouping { return &byFirst{} }))
	b.SetBolt("partial", watch, 4).Grouping("fan", "typed", engine.PartialKey("word"))
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(t.Context(), topo, conf(t, nil)); err != nil {
		t.Fatal(err)
	}
	everything := []string{"aa", "aa", "b", "bb", "ccc"}
	for where, want := range map[string][]string{
		"all/0": everything, "all/1": everything, "none/0": everything,
		"direct/0": {"aa", "aa", "bb"}, "direct/1": {"b", "ccc"},
		"custom/0": {"aa", "aa", "b", "bb"}, "custom/1": {"b", "bb"},
	} {
		if got := s.at(where); !slices.Equal(got, want) {
			t.Errorf("%s got %v, want %v", where, got, want)
		}
	}
	var partial []string
	for i := range 4 {
		partial = append(partial, s.at(fmt.Sprintf("partial/%d", i))...)
	}
	if slices.Sort(partial); !slices.Equal(partial, everything) {
		t.Errorf("partial key grouping delivered %v", partial)
	}
}

// touchy cannot stand a word, and says so or panics.
type touchy struct {
	split
	calls *atomic.Int64
}

func (f touchy) Execute(t *tuple.Tuple, out *txn.Collector) error {
	if strings.Contains(t.Str(0), "bad") {
		if f.calls.Add(1)%2 == 0 {
			panic("bad word")
		}
		return errors.New("bad word")
	}
	return f.split.Execute(t, out)
}

// touchyBatch is touchy about whole frames.
type touchyBatch struct{ touchy }

func (f touchyBatch) ExecuteBatch(fr *tuple.Frame, out *txn.Collector) error {
	var t tuple.Tuple
	for i := range fr.Len() {
		t.At(fr, i)
		if err := f.Execute(&t, out); err != nil {
			return err
		}
	}
	return nil
}

func TestPoisonTupleGoesToTheFailedStreamAndTheRestIsCountedOnce(t *testing.T) {
	for name, splitter := range map[string]func(calls *atomic.Int64) txn.Bolt{
		"one by one": func(calls *atomic.Int64) txn.Bolt { return touchy{calls: calls} },
		"frames":     func(calls *atomic.Int64) txn.Bolt { return touchyBatch{touchy{calls: calls}} },
	} {
		t.Run(name, func(t *testing.T) {
			in, want := sample(2, 300)
			in[0] = slices.Insert(in[0], 150, "bad a")
			in[1] = slices.Insert(in[1], 20, "a worse bad one")
			var calls atomic.Int64
			board, failed := &board{}, &board{}
			tb := engine.NewTopologyBuilder()
			tb.SetSpout("lines", func() txn.Spout { return newLines(in...) }, 2)
			tb.SetBolt("split", func() txn.Bolt { return splitter(&calls) }, 2).ShuffleGrouping("lines").
				Config("topology.poison.max.attempts", 2)
			tb.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("split", "word")
			tb.SetBolt("sink", func() txn.Bolt { return &latest{b: board} }, 1).GlobalGrouping("count")
			tb.SetBolt("failed", func() txn.Bolt { return &failures{latest{b: failed}} }, 1).Grouping("split", engine.FailedStream, engine.Global())
			topo, err := tb.Build()
			if err != nil {
				t.Fatal(err)
			}
			res, err := engine.Run(t.Context(), topo, conf(t, nil))
			if err != nil {
				t.Fatal(err)
			}
			if got := board.get(); !maps.Equal(got, want) {
				t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
			}
			if got := failed.get(); !maps.Equal(got, map[string]int64{"bad a": 2, "a worse bad one": 2}) {
				t.Errorf("failed tuples with their attempts: %v", got)
			}
			if res.Restarts == 0 {
				t.Error("nothing failed")
			}
		})
	}
}

// failures publishes how often each failed line was tried.
type failures struct{ latest }

func (*failures) KeyFields() []string { return []string{"source"} }

func (f *failures) Open(ctx *txn.Context, s *txn.State) error {
	f.state = s
	return f.latest.Open(ctx, s)
}

func (f *failures) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	vals := t.ByName("values").Any().([]tuple.Value)
	if !strings.Contains(t.ByName("reason").Str(), "bad word") || t.ByName("source").Str() != "lines" {
		return fmt.Errorf("unexpected failure %s", t)
	}
	if err := f.state.SetKey(vals[0]); err != nil {
		return err
	}
	return f.v.Set(t.ByName("attempts").Int64())
}

func TestPoisonAttemptsMustBeFewerThanRestarts(t *testing.T) {
	b := &board{}
	topo := wordCount(t, func() txn.Spout { return newLines() }, func() txn.Bolt { return split{} }, b)
	_, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.poison.max.attempts": 5, "topology.restart.max": 5}))
	if err == nil || !strings.Contains(err.Error(), "topology.poison.max.attempts is 5 and must be lower than topology.restart.max") {
		t.Errorf("error %v", err)
	}
}

// ticking counts its ticks and reports errors.
type ticking struct {
	ticks *atomic.Int64
	ctx   *txn.Context
	n     *txn.Aggregate[int64]
}

func (*ticking) ComponentConfiguration() map[string]any {
	return map[string]any{"topology.tick.tuple.freq.secs": 100}
}

func (c *ticking) Open(ctx *txn.Context, s *txn.State) error {
	c.ctx, c.n = ctx, txn.NewAggregate(s, "n", txn.Sum())
	return nil
}

func (c *ticking) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if t.Stream().Component != "__system" {
		return c.n.Add(1)
	}
	if err := c.n.Add(1); err == nil || !strings.Contains(err.Error(), "tick tuple has none") {
		return fmt.Errorf("adding without a key: %w", err)
	}
	for i := range 12 {
		c.ctx.ReportError(fmt.Errorf("report %d", i))
	}
	c.ticks.Add(t.Int64(0))
	return nil
}

func TestTickTuplesComeByTheClockAndReportsAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ticks atomic.Int64
		var last engine.Progress
		start := time.Now()
		spout := func() txn.Spout {
			l := newLines([]string{"a", "b"})
			l.gate = func(_, n int) bool { return n == 0 || time.Since(start) > 25*time.Second }
			return l
		}
		tb := engine.NewTopologyBuilder()
		tb.SetSpout("lines", spout, 1)
		tb.SetBolt("ticking", func() txn.Bolt { return &ticking{ticks: &ticks} }, 1).FieldsGrouping("lines", "line").
			Config("topology.tick.tuple.freq.secs", 10)
		topo, err := tb.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Run(t.Context(), topo, conf(t, nil), engine.WithProgress(func(p engine.Progress) { last = p }))
		if err != nil {
			t.Fatal(err)
		}
		if got := ticks.Load(); got != 20 {
			t.Errorf("ticks of %d seconds, want two of 10", got)
		}
		var texts []string
		for _, e := range last.Errors {
			texts = append(texts, fmt.Sprintf("%s/%d %v", e.Component, e.Task, e.Err))
		}
		if len(texts) != 10 || texts[0] != "ticking/0 report 0" || texts[5] != "ticking/0 report 0 (7 more were not reported)" {
			t.Errorf("reported:\n%s", strings.Join(texts, "\n"))
		}
	})
}

// counter counts what a hook sees.
type counter struct {
	txn.NopHook
	opened, closed, tuples atomic.Int64
}

func (c *counter) Opened(*txn.Context) { c.opened.Add(1) }
func (c *counter) Closed(*txn.Context) { c.closed.Add(1) }
func (c *counter) Executed(_ *txn.Context, f *tuple.Frame, _ time.Duration) {
	c.tuples.Add(int64(f.Len()))
}

func TestHooksSeeEveryTaskAndTuple(t *testing.T) {
	var c counter
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return newLines([]string{"a", "b", "c"}) }, 1)
	b.SetBolt("watch", func() txn.Bolt { return &watcher{seen: &seen{}} }, 3).AllGrouping("lines").NumTasks(2)
	b.AddTaskHook(&c)
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(t.Context(), topo, conf(t, nil)); err != nil {
		t.Fatal(err)
	}
	if c.opened.Load() != 3 || c.closed.Load() != 3 || c.tuples.Load() != 6 {
		t.Errorf("%d opened, %d closed, %d tuples; want 3, 3, 6", c.opened.Load(), c.closed.Load(), c.tuples.Load())
	}
}
