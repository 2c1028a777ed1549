package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// latency measures how old words are when they arrive at their counter. Lines are due
// at a fixed rate, whatever becomes of those before, and a word's age counts from the
// moment at which its line was due: what the spout or a full channel holds back grows
// old. A spout that has nothing to emit idles, for a millisecond or so; how late lines
// are emitted because of that, or of anything else, is shown too.
type latency struct{}

func (latency) name() string    { return "latency" }
func (latency) heeds() []string { return []string{"modes", "shapes", "loads"} }

var latencyColumns = []column{
	{"p50_ms", "p50 ms", 1, 2},
	{"p99_ms", "p99 ms", 1, 2},
	{"p99.9_ms", "p99.9 ms", 1, 2},
	{"max_ms", "max ms", 1, 1},
	{"emitted_late_p99_ms", "emitted p99 ms", 1, 2},
	{"tuples_per_s", "M words/s", 1e6, 2},
	{"of_offered", "of offered", 1, 2},
	{"cpu_cores", "cores", 1, 2},
}

func (latency) comparisons(o options) ([]comparison, error) {
	shapes, shapesErr := parseShapes(o.shapes, "1/2/2")
	modes, modesErr := parseModes(o.modes, "at-most-once,exactly-once@1000,exactly-once@100")
	loads, loadsErr := list(o.loads, parseLoad)
	lines, textErr := textOf("wordcount")
	var all []comparison
	for _, s := range shapes {
		t := &timedCount{o: o, modes: modes, shape: s, lines: lines}
		for _, load := range loads {
			all = append(all, comparison{
				label: fmt.Sprintf("%s at %d %%", s, load), columns: latencyColumns, compared: 1,
				bases: []string{"at-most-once"}, open: t.findHighest,
				variants: byMode(modes, func(ctx context.Context, m mode) (sample, error) {
					return t.measure(ctx, m, float64(load)/100)
				}),
			})
		}
	}
	return all, errors.Join(shapesErr, modesErr, loadsErr, textErr)
}

func parseLoad(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("load %q: it is a number of percent such as 50", text)
	}
	return n, nil
}

// timedCount is a word count that knows how old its words are.
type timedCount struct {
	o       options
	modes   []mode
	shape   shape
	lines   []string
	highest float64 // lines a second that all modes can count; 0: not known yet
}

// findHighest measures how much the slowest of the modes counts when there is always
// more: in the best of some windows, since all that disturbs makes it less.
func (t *timedCount) findHighest(ctx context.Context) error {
	if t.highest > 0 {
		return nil
	}
	o := t.o
	o.duration = min(o.duration, time.Second)
	best := make([]float64, len(t.modes)) // words a second
	for range min(o.rounds, 3) {
		for i, m := range t.modes {
			x, err := pace(ctx, o, t.shape.counts, func(ctx context.Context, counted []paddedCounter) error {
				return t.run(ctx, m, 0, newAges(t.shape, counted))
			})
			if err != nil {
				return fmt.Errorf("measure the highest rate of %s: %w", m, err)
			}
			best[i] = max(best[i], x[0])
		}
	}
	t.highest = slices.Min(best) / t.wordsPerLine()
	return nil
}

func (t *timedCount) wordsPerLine() float64 {
	words := 0
	for _, line := range t.lines {
		for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
			words++
		}
	}
	return float64(words) / float64(len(t.lines))
}

// ages is what a run tells of its words.
type ages struct {
	epoch time.Time       // when time began: moments are told from then on
	words []paddedCounter // counted, by counter
	late  []*histogram    // how late lines were emitted, by spout
	old   []*histogram    // how old words were that arrived, by counter
}

func newAges(s shape, words []paddedCounter) *ages {
	return &ages{epoch: time.Now(), words: words, late: newHistograms(s.spouts), old: newHistograms(s.counts)}
}

func (a *ages) now() time.Duration { return time.Since(a.epoch) }

// measure runs a mode at a share of the highest rate.
func (t *timedCount) measure(ctx context.Context, m mode, share float64) (sample, error) {
	type seen struct {
		usage
		words     int64
		late, old spread
	}
	rate := t.highest * share
	a := newAges(t.shape, make([]paddedCounter, t.shape.counts))
	from, to, err := through(ctx, t.o,
		func(ctx context.Context) error { return t.run(ctx, m, rate, a) },
		func() bool { return sum(a.words) > 0 },
		func() seen { return seen{used(), sum(a.words), spreadOf(a.late), spreadOf(a.old)} })
	if err != nil {
		return nil, err
	}
	seconds := to.at.Sub(from.at).Seconds()
	perSecond := float64(to.words-from.words) / seconds
	old := to.old.since(from.old)
	return sample{
		milliseconds(old.quantile(0.5)), milliseconds(old.quantile(0.99)), milliseconds(old.quantile(0.999)), milliseconds(old.quantile(1)),
		milliseconds(to.late.since(from.late).quantile(0.99)),
		perSecond, perSecond / (rate * t.wordsPerLine()), (to.cpu - from.cpu).Seconds() / seconds,
	}, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// run counts words of so many lines a second until ctx ends; 0 stands for as many as
// go through.
func (t *timedCount) run(ctx context.Context, m mode, rate float64, a *ages) error {
	topology, err := t.topology(func() txn.Spout { return &timedSpout{ages: a, lines: t.lines, rate: rate} }, a)
	if err != nil {
		return err
	}
	return runTopology(ctx, m, topology)
}

func (t *timedCount) topology(spout func() txn.Spout, a *ages) (*engine.Topology, error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", spout, t.shape.spouts)
	b.SetBolt("split", func() txn.Bolt { return timedSplit{} }, t.shape.splits).ShuffleGrouping("lines")
	b.SetBolt("count", func() txn.Bolt { return &ageBolt{countBolt: countBolt{told: a.words}, ages: a} }, t.shape.counts).
		FieldsGrouping("split", "word")
	return b.Build()
}

// timedSpout emits lines with the moments, in nanoseconds, at which they are due.
type timedSpout struct {
	source
	ages  *ages
	lines []string
	rate  float64 // of all tasks, in lines a second; 0: they are always due
	began time.Duration
	late  *histogram
}

func (s *timedSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line", "due") }

func (s *timedSpout) Open(ctx *txn.Context) error {
	s.late = s.ages.late[ctx.TaskIndex]
	s.began = s.ages.now()
	return s.source.Open(ctx)
}

func (s *timedSpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	now := s.ages.now()
	t := timetable{began: s.began, rate: s.rate / float64(s.tasks)}
	n := min(linesPerCall, t.due(now, s.emitted))
	for range n {
		due := t.at(now, s.emitted)
		out.Emit2(tuple.String(s.lines[s.emitted%uint64(len(s.lines))]), tuple.Int64(int64(due)))
		s.late.observe(now-due, 1)
		s.emitted++
	}
	if n == 0 {
		return txn.Idle, nil
	}
	return txn.Emitted, nil
}

// timetable says when the tuples of a task are due, whatever becomes of those before.
type timetable struct {
	began time.Duration
	rate  float64 // tuples a second; 0: they are always due
}

// due returns how many tuples are due by now and not emitted yet.
func (t timetable) due(now time.Duration, emitted uint64) uint64 {
	if t.rate == 0 {
		return math.MaxUint64
	}
	due := uint64(float64(now-t.began) * t.rate / 1e9)
	return due - min(due, emitted)
}

// at returns the moment at which a tuple is due that now is.
func (t timetable) at(now time.Duration, number uint64) time.Duration {
	if t.rate == 0 {
		return now
	}
	return t.began + time.Duration(float64(number+1)*1e9/t.rate)
}

// timedSplit emits the words of a line with the moment at which that was due.
type timedSplit struct{}

func (timedSplit) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "due") }

func (timedSplit) Execute(t *tuple.Tuple, out *txn.Collector) error {
	line, due := t.Str(0), t.Value(1)
	for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
		out.Emit2(tuple.String(line[from:to]), due)
	}
	return nil
}

// ageBolt counts words and how old they are.
type ageBolt struct {
	countBolt
	ages *ages
	old  *histogram
}

func (b *ageBolt) Open(ctx *txn.Context, s *txn.State) error {
	b.old = b.ages.old[ctx.TaskIndex]
	return b.countBolt.Open(ctx, s)
}

// ExecuteKeyed looks at the clock once for a frame, and at the words of a line at
// once: they follow each other.
func (b *ageBolt) ExecuteKeyed(words *txn.KeyedBatch, out *txn.Collector) error {
	b.ages.arrived(b.old, words)
	return b.countBolt.ExecuteKeyed(words, out)
}

// arrived counts how old the tuples of a frame are, whose second field is the moment at
// which they were due.
func (a *ages) arrived(old *histogram, frame *txn.KeyedBatch) {
	now := int64(a.now())
	due, n := int64(0), uint64(0)
	observe := func() {
		if n > 0 {
			old.observe(time.Duration(now-due), n)
		}
	}
	for i := range frame.Len() {
		if d := frame.Row(i)[1].Int64(); d != due {
			observe()
			due, n = d, 0
		}
		n++
	}
	observe()
}
