// Changer keeps state of every kind for each word of its input, and copies the lines
// into files that roll. Its numbers of tasks and the name of its keeper can be changed
// from run to run, and it can be made to stop reading after some calls. It kills itself
// at a named step of the commit protocol; see package death. With --armed the steps
// count once that file exists.
package main

import (
	"fmt"
	"os"
	"time"

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
		fmt.Fprintln(os.Stderr, "changer:", err)
		os.Exit(2)
	}
	armed := ""
	build := func(f *app.Flags) (*engine.Topology, error) {
		armed = *f.String("armed", "", "count steps once `FILE` exists")
		return build(f)
	}
	os.Exit(app.Run("changer", build, os.Args[1:], os.Stdout, os.Stderr, engine.WithHook(func(step string) {
		if armed != "" {
			if _, err := os.Stat(armed); err != nil {
				return
			}
		}
		hook(step)
	})))
}

func build(f *app.Flags) (*engine.Topology, error) {
	in := f.Strings("input", nil, "read the files that match `GLOB`")
	out := f.String("output", "", "write what is kept for each word to `FILE`")
	rolled := f.String("rolled", "", "copy the lines to files in `FOLDER`")
	tasks := f.Int("tasks", 1, "run the keeper as `N` tasks")
	name := f.String("keeper", "keeper", "call the keeper `NAME`")
	calls := f.Int("calls", 0, "read no more after `N` calls (0: all)")
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return &lines{Spout: file.NewSpout(*in), limit: *calls} }, 1)
	b.SetBolt("split", func() txn.Bolt { return &split{} }, 2).ShuffleGrouping("lines")
	b.SetBolt(*name, func() txn.Bolt { return &keeper{} }, *tasks).FieldsGrouping("split", "word")
	b.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(*out) }, 1).GlobalGrouping(*name)
	b.SetBolt("copier", func() txn.Bolt {
		return filesink.NewRolling(*rolled, filesink.RollingOptions{RollBatches: 1})
	}, 2).ShuffleGrouping("lines")
	return b.Build()
}

// lines emits in each batch what one call of the file spout does, so that the number
// of batches, and of steps, does not depend on the speed of the machine.
type lines struct {
	*file.Spout
	full         bool
	calls, limit int
}

func (l *lines) NextTuple(out *txn.Collector) (txn.Status, error) {
	if l.full || l.limit > 0 && l.calls == l.limit {
		return txn.Idle, nil
	}
	status, err := l.Spout.NextTuple(out)
	if l.full = status == txn.Emitted; l.full {
		l.calls++
	}
	return status, err
}

func (l *lines) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	l.full = false
	return l.Spout.FinishBatch(n)
}

// split emits the words of a line, with its length.
type split struct{ word []byte }

func (*split) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "length") }

func (s *split) Execute(t *tuple.Tuple, out *txn.Collector) error {
	line := t.Bytes(0)
	s.word = s.word[:0]
	for i := range len(line) + 1 {
		c := byte(' ')
		if i < len(line) {
			c = line[i] | 0x20
		}
		switch {
		case 'a' <= c && c <= 'z':
			s.word = append(s.word, c)
		case len(s.word) > 0:
			out.Emit2(tuple.Bytes(s.word), tuple.Int64(int64(len(line))))
			s.word = s.word[:0]
		}
	}
	return nil
}

// keeper keeps state of every kind for each word, and emits what it adds up to when the
// word's timer fires, at the end of all input.
type keeper struct {
	total  *txn.Aggregate[int64]
	word   *txn.Value[string]
	length *txn.Value[int64]
	rests  *txn.Map[int64, int64]
	all    *txn.List[int64]
	timers *txn.Timers
	early  *txn.Aggregate[int64] // how often the first timer has fired
}

func (*keeper) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "kept") }

func (k *keeper) Open(_ *txn.Context, s *txn.State) error {
	k.total = txn.NewAggregate(s, "total", txn.Sum())
	k.word = txn.NewValue(s, "word", txn.StringCodec())
	k.length = txn.NewValue(s, "length", txn.Int64Codec())
	k.rests = txn.NewMap(s, "rests", txn.Int64Codec(), txn.Int64Codec())
	k.all = txn.NewList(s, "all", txn.Int64Codec())
	k.early = txn.NewAggregate(s, "early", txn.Sum())
	k.timers = s.Timers()
	return nil
}

// The timers of a word are due before anything else is, and at the end of all input.
var (
	atOnce = time.UnixMilli(1)
	atEnd  = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (k *keeper) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	n := t.Int64(1)
	length, known, err := k.length.Get()
	if err != nil {
		return err
	}
	if !known {
		k.timers.SetProcessing(atOnce, "first")
		k.timers.SetEvent(atEnd, "last")
		if err := k.word.Set(t.Str(0)); err != nil {
			return err
		}
	}
	if err := k.length.Set(length + n); err != nil {
		return err
	}
	rest, _, err := k.rests.Get(n % 7)
	if err != nil {
		return err
	}
	if err := k.rests.Put(n%7, rest+1); err != nil {
		return err
	}
	if err := k.all.Append(n); err != nil {
		return err
	}
	return k.total.Add(1)
}

func (k *keeper) OnTimer(t txn.Timer, out *txn.Collector) error {
	if t.Name == "first" {
		return k.early.Add(1)
	}
	word, _, err := k.word.Get()
	if err != nil {
		return err
	}
	total, _, err := k.total.Get()
	if err != nil {
		return err
	}
	length, _, err := k.length.Get()
	if err != nil {
		return err
	}
	early, _, err := k.early.Get()
	if err != nil {
		return err
	}
	kept := fmt.Sprint(total, length, early > 1)
	var rests [7]int64
	for rest, n := range k.rests.All(&err) {
		rests[rest] = n
	}
	if err != nil {
		return err
	}
	items, sum := 0, int64(0)
	for n := range k.all.All(&err) {
		items, sum = items+1, sum+n
	}
	if err != nil {
		return err
	}
	out.Emit2(tuple.String(word), tuple.String(fmt.Sprint(kept, rests, items, sum)))
	return nil
}
