// Package verses is the topology that clusters run while they are broken: it counts the
// words of the King James Bible at a steady pace, so that a run lasts as long as a test
// wants, on any machine.
package verses

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/internal/kjv"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// What a program may do wrong.
const (
	PanicsInOpen = "panic" // its counting bolt panics when it is opened
	Fails        = "fail"  // it fails with every tuple, so that nothing is ever committed
	Hangs        = "hang"  // it does not return from the first tuple
)

// What it reads from its working folder with --notes, and adds to the mark.
const (
	NoteEach = "each.txt" // in each batch
	NoteOnce = "once.txt" // when its counting bolt is opened
)

// partitions are more than tasks, so that each task has several.
const partitions = 8

var lines = sync.OnceValue(func() []string { return strings.Split(strings.TrimSuffix(kjv.Text, "\n"), "\n") })

// Build returns what builds the topology. Each line of its output is a word, its count
// and the mark, with tabs between them.
func Build(mark string) func(*app.Flags) (*engine.Topology, error) {
	return func(f *app.Flags) (*engine.Topology, error) {
		copies := f.Int("copies", 1, "count the words of `N` copies of the text")
		rate := f.Int("rate", 0, "read `N` lines a second; 0: as many as possible")
		out := f.Path("output", "words.tsv", "write the counts to `FILE`")
		wrong := f.String("wrong", "", "do something wrong: `WHAT` is panic, fail or hang")
		notes := f.Bool("notes", "add to the mark what is in files of the working folder")

		b := engine.NewTopologyBuilder()
		b.SetSpout("lines", func() txn.Spout {
			return generator.New(generator.Options{
				Fields: tuple.Fields{"line"}, Partitions: partitions,
				Tuples: uint64(*copies) * uint64(len(lines())), Rate: float64(*rate),
				Emit: func(i uint64, out *txn.Collector) {
					out.Emit1(tuple.String(lines()[i%uint64(len(lines()))]))
				},
			})
		}, 2)
		b.SetBolt("split", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
		b.SetBolt("count", func() txn.Bolt { return &count{mark: mark, wrong: *wrong, notes: *notes} }, 2).FieldsGrouping("split", "word")
		b.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(*out) }, 1).GlobalGrouping("count")
		return b.Build()
	}
}

// split emits the words of a line: its runs of ASCII letters, in lower case.
type split struct{}

func (split) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (split) Execute(t *tuple.Tuple, out *txn.Collector) error {
	letter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	for word := range strings.FieldsFuncSeq(t.Str(0), func(r rune) bool { return !letter(r) }) {
		out.Emit1(tuple.String(strings.ToLower(word)))
	}
	return nil
}

// count keeps a total for each word, and emits those that a batch has changed.
type count struct {
	total       *txn.Aggregate[int64]
	mark, wrong string
	notes       bool
}

func (*count) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "total", "mark") }

func (c *count) Open(_ *txn.Context, s *txn.State) error {
	if c.wrong == PanicsInOpen {
		panic(fmt.Sprintf("mark %s panics, as it was told to", c.mark))
	}
	c.total = txn.NewAggregate(s, "total", txn.Sum())
	return c.note(NoteOnce)
}

// note adds what is in a file to the mark.
func (c *count) note(file string) error {
	if !c.notes {
		return nil
	}
	text, err := os.ReadFile(file)
	c.mark += " " + string(text)
	return err
}

func (c *count) Execute(*tuple.Tuple, *txn.Collector) error {
	switch c.wrong {
	case Fails:
		return errors.New("it fails, as it was told to")
	case Hangs:
		select {}
	}
	return c.total.Add(1)
}

func (c *count) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	defer func(mark string) { c.mark = mark }(c.mark)
	if err := c.note(NoteEach); err != nil {
		return err
	}
	for changed.Next() {
		total, _, err := c.total.Get()
		if err != nil {
			return err
		}
		out.Emit(changed.Key()[0], tuple.Int64(total), tuple.String(c.mark))
	}
	return nil
}
