package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// wordCount measures how many words arrive at their counters. Its name is that of the
// text.
type wordCount struct{ text string }

func (w wordCount) name() string  { return w.text }
func (wordCount) heeds() []string { return []string{"modes", "shapes", "workers"} }

func (w wordCount) comparisons(o options) ([]comparison, error) {
	lines, err := textOf(w.text)
	if err != nil {
		return nil, err
	}
	shapes, shapesErr := parseShapes(o.shapes, "1/1/1,1/2/2")
	modes, modesErr := parseModes(o.modes, allModes+",exactly-once+combine@1000,exactly-once+combine@100")
	modes = onWorkers(modes, o.workers)
	bases := []string{limitMode, "at-most-once"}
	if o.workers > 1 {
		bases = append(bases, "exactly-once@1000", mode{name: "at-most-once", workers: o.workers}.String())
	}
	var all []comparison
	for _, s := range shapes {
		all = append(all, comparison{
			label: s.String(), columns: paceColumns("words"), bases: bases,
			variants: byMode(modes, func(ctx context.Context, m mode) (sample, error) {
				return pace(ctx, o, s.counts, func(ctx context.Context, counted []paddedCounter) error {
					return countWords(ctx, m, lines, s, counted)
				})
			}),
		})
	}
	return all, errors.Join(shapesErr, modesErr)
}

// countWords counts the words of a text in a mode until ctx ends.
func countWords(ctx context.Context, m mode, lines []string, s shape, counted []paddedCounter) error {
	if m.name == limitMode {
		runLimit(ctx, lines, s, 0, counted)
		return nil
	}
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return &lineSpout{lines: lines} }, s.spouts)
	if m.combine {
		b.SetBolt("split", func() txn.Bolt { return onesBolt{} }, s.splits).ShuffleGrouping("lines")
		b.SetBolt("count", func() txn.Bolt { return &sumBolt{countBolt{told: counted}} }, s.counts).
			Grouping("split", tuple.DefaultStream, engine.Fields("word").Combine("n", txn.CombineSum))
	} else {
		b.SetBolt("split", func() txn.Bolt { return splitBolt{} }, s.splits).ShuffleGrouping("lines")
		b.SetBolt("count", func() txn.Bolt { return &countBolt{told: counted} }, s.counts).FieldsGrouping("split", "word")
	}
	topology, err := b.Build()
	if err != nil {
		return err
	}
	return runTopology(ctx, m, topology)
}

// shape is how many tasks each component of a word count has.
type shape struct{ spouts, splits, counts int }

func (s shape) String() string { return fmt.Sprintf("%d/%d/%d", s.spouts, s.splits, s.counts) }

// parseShapes reads a list of shapes. usual is what an empty text stands for.
func parseShapes(text, usual string) ([]shape, error) {
	if text == "" {
		text = usual
	}
	return list(text, parseShape)
}

func parseShape(text string) (shape, error) {
	var s shape
	n, err := fmt.Sscanf(text, "%d/%d/%d", &s.spouts, &s.splits, &s.counts)
	if n != 3 || err != nil || s.String() != text || min(s.spouts, s.splits, s.counts) < 1 {
		return s, fmt.Errorf("shape %q: it is three counts of tasks such as 1/2/2", text)
	}
	return s, nil
}

// The components are written as a user would write them: one tuple at a time.

// lineSpout emits lines for ever.
type lineSpout struct {
	source
	lines []string
}

// linesPerCall is how many lines a NextTuple emits.
const linesPerCall = 64

func (s *lineSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line") }

func (s *lineSpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	at := int(s.emitted % uint64(len(s.lines)))
	for range linesPerCall {
		out.Emit1(tuple.String(s.lines[at]))
		if at++; at == len(s.lines) {
			at = 0
		}
	}
	s.emitted += linesPerCall
	return txn.Emitted, nil
}

// splitBolt emits the words of a line.
type splitBolt struct{}

func (splitBolt) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (splitBolt) Execute(t *tuple.Tuple, out *txn.Collector) error {
	line := t.Str(0)
	for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
		out.Emit1(tuple.String(line[from:to]))
	}
	return nil
}

// countBolt counts each word, and tells how many it has counted.
type countBolt struct {
	told    []paddedCounter // of all tasks
	counts  *txn.Aggregate[int64]
	counted *atomic.Int64
	untold  int64
}

// wordsPerTelling is how many words are counted before the others hear of it.
const wordsPerTelling = 1024

func (b *countBolt) Open(ctx *txn.Context, s *txn.State) error {
	b.counted = &b.told[ctx.TaskIndex].n
	b.counts = txn.NewAggregate(s, "count", txn.Sum())
	return nil
}

// ExecuteKeyed counts the words of a frame.
func (b *countBolt) ExecuteKeyed(words *txn.KeyedBatch, _ *txn.Collector) error {
	b.counted.Add(int64(words.Len()))
	return b.counts.AddAll(words, 1)
}

func (b *countBolt) Execute(*tuple.Tuple, *txn.Collector) error {
	if b.untold++; b.untold == wordsPerTelling {
		b.counted.Add(b.untold)
		b.untold = 0
	}
	return b.counts.Add(1)
}

// onesBolt emits the words of a line, each with the number 1.
type onesBolt struct{}

func (onesBolt) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "n") }

func (onesBolt) Execute(t *tuple.Tuple, out *txn.Collector) error {
	line, one := t.Str(0), tuple.Int64(1)
	for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
		out.Emit2(tuple.String(line[from:to]), one)
	}
	return nil
}

// sumBolt adds up the numbers of each word.
type sumBolt struct{ countBolt }

// ExecuteKeyed adds up the numbers of a frame.
func (b *sumBolt) ExecuteKeyed(words *txn.KeyedBatch, _ *txn.Collector) error {
	came := int64(0)
	err := b.counts.AddEach(words, func(row []tuple.Value) int64 {
		n := row[1].Int64()
		came += n
		return n
	})
	b.counted.Add(came)
	return err
}
