// Victim is a word count that kills itself at a named step of the commit protocol.
//
//	CRASH_STEP=head.before CRASH_OCCURRENCE=3 victim --input 'in/*' --output out.tsv
//
// See package death.
package main

import (
	"fmt"
	"os"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/internal/crash/death"
	"github.com/isobar-io/isobar/spout/file"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func main() {
	hook, err := death.FromEnvironment(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(2)
	}
	os.Exit(app.Run("victim", build, os.Args[1:], os.Stdout, os.Stderr, engine.WithHook(hook)))
}

func build(f *app.Flags) (*engine.Topology, error) {
	in := f.Strings("input", nil, "count the files that match `GLOB`")
	out := f.String("output", "", "write the counts to `FILE`")
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return &lines{Spout: file.NewSpout(*in)} }, 1)
	b.SetBolt("split", func() txn.Bolt { return &split{} }, 2).ShuffleGrouping("lines")
	b.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("split", "word")
	b.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(*out) }, 1).GlobalGrouping("count")
	return b.Build()
}

// lines emits in each batch what one call of the file spout does, so that the number
// of batches, and of steps, does not depend on the speed of the machine.
type lines struct {
	*file.Spout
	full bool
}

func (l *lines) NextTuple(out *txn.Collector) (txn.Status, error) {
	if l.full {
		return txn.Idle, nil
	}
	status, err := l.Spout.NextTuple(out)
	l.full = status == txn.Emitted
	return status, err
}

func (l *lines) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	l.full = false
	return l.Spout.FinishBatch(n)
}

// split emits the words of a line.
type split struct{ word []byte }

func (*split) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (s *split) Execute(t *tuple.Tuple, out *txn.Collector) error {
	s.word = s.word[:0]
	for _, c := range t.Bytes(0) {
		if c |= 0x20; 'a' <= c && c <= 'z' {
			s.word = append(s.word, c)
		} else {
			s.end(out)
		}
	}
	s.end(out)
	return nil
}

func (s *split) end(out *txn.Collector) {
	if len(s.word) > 0 {
		out.Emit1(tuple.Bytes(s.word))
		s.word = s.word[:0]
	}
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
