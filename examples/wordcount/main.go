// Wordcount counts the words of text files, each word exactly once, however often it
// is killed and started again: the counts are in a file that always shows a
// committed batch as a whole.
//
//	go run ./examples/wordcount                        counts the King James Bible
//	go run ./examples/wordcount --input 'logs/*.txt'   counts files of your own
//	go run ./examples/wordcount --input 'logs/*' --follow
//	                                                   and what is added to them
//
// A word is a run of ASCII letters within a line, in lower case.
package main

import (
	"os"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func main() { app.Main("wordcount", build) }

func build(f *app.Flags) (*engine.Topology, error) {
	in := f.Paths("input", nil, "count the files that match `GLOB` (repeatable; default: the King James Bible)")
	follow := f.Bool("follow", "wait for what is added to the files, rotated or not, until interrupted")
	out := f.Path("output", "wordcount.tsv", "write the counts to `FILE`")
	f.Progress(progress)

	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return newLines(*in, *follow, f.Data()) }, 1)
	b.SetBolt("split", func() txn.Bolt { return &split{} }, 2).ShuffleGrouping("lines")
	b.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("split", "word")
	b.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(*out) }, 1).GlobalGrouping("count")
	b.OnFinished(func(r engine.Result) { report(os.Stdout, r, *out) })
	return b.Build()
}

// split emits the words of a line.
type split struct{ word []byte }

func (*split) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (s *split) Execute(t *tuple.Tuple, out *txn.Collector) error {
	word := s.word[:0]
	for _, c := range t.Bytes(0) {
		if c |= 0x20; 'a' <= c && c <= 'z' {
			word = append(word, c)
		} else if len(word) > 0 {
			out.Emit1(tuple.Bytes(word))
			word = word[:0]
		}
	}
	if len(word) > 0 {
		out.Emit1(tuple.Bytes(word))
	}
	s.word = word
	return nil
}

// count keeps a total for each word, and emits those that a batch has changed.
type count struct{ total *txn.Aggregate[int64] }

func (*count) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "total") }

func (c *count) Open(_ *txn.Context, s *txn.State) error {
	c.total = txn.NewAggregate(s, "total", txn.Sum())
	return nil
}

func (c *count) Execute(*tuple.Tuple, *txn.Collector) error { return c.total.Add(1) }

func (c *count) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		total, _, err := c.total.Get()
		if err != nil {
			return err
		}
		out.Emit2(changed.Key()[0], tuple.Int64(total))
	}
	return nil
}
