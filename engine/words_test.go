package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// lines is a spout over lines in memory, one partition for each of parts.
type lines struct {
	parts [][]string
	own   []int
	at    map[int]int
	moved map[int]bool
	// gate, if set, is asked before each line; false means idle.
	gate func(part, line int) bool
}

func newLines(parts ...[]string) *lines {
	return &lines{parts: parts, at: map[int]int{}, moved: map[int]bool{}}
}

func (l *lines) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line") }

func (l *lines) Partitions(context.Context) ([]txn.PartitionID, error) {
	var ids []txn.PartitionID
	for i := range l.parts {
		ids = append(ids, txn.PartitionID(fmt.Sprint(i)))
	}
	return ids, nil
}

func (l *lines) Seek(p txn.PartitionID, pos []byte) error {
	var i int
	if _, err := fmt.Sscan(string(p), &i); err != nil {
		return err
	}
	l.own = append(l.own, i)
	if pos != nil {
		l.at[i] = int(binary.BigEndian.Uint64(pos))
	}
	return nil
}

func (l *lines) NextTuple(out *txn.Collector) (txn.Status, error) {
	for _, i := range l.own {
		n := l.at[i]
		if n == len(l.parts[i]) {
			continue
		}
		if l.gate != nil && !l.gate(i, n) {
			return txn.Idle, nil
		}
		out.Emit1(tuple.String(l.parts[i][n]))
		l.at[i]++
		l.moved[i] = true
		return txn.Emitted, nil
	}
	return txn.Finished, nil
}

func (l *lines) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	var ps []txn.Position
	for i := range l.moved {
		ps = append(ps, txn.Position{
			Partition: txn.PartitionID(fmt.Sprint(i)),
			Data:      binary.BigEndian.AppendUint64(nil, uint64(l.at[i])),
		})
	}
	clear(l.moved)
	return ps, nil
}

// split emits the words of a line.
type split struct{}

func (split) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (split) Execute(t *tuple.Tuple, out *txn.Collector) error {
	for w := range strings.FieldsSeq(t.Str(0)) {
		out.Emit1(tuple.String(w))
	}
	return nil
}

// count keeps a sum for each word and emits those that changed.
type count struct{ n *txn.Aggregate[int64] }

func (c *count) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "n") }

func (c *count) Open(_ *txn.Context, s *txn.State) error {
	c.n = txn.NewAggregate(s, "n", txn.Sum())
	return nil
}

func (c *count) Execute(*tuple.Tuple, *txn.Collector) error { return c.n.Add(1) }

func (c *count) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		n, _, err := c.n.Get()
		if err != nil {
			return err
		}
		out.Emit2(changed.Key()[0], tuple.Int64(n))
	}
	return nil
}

// board is where latest puts what it publishes.
type board struct {
	mu   sync.Mutex
	rows map[string]int64
	n    txn.BatchID
}

func (b *board) get() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows
}

// latest keeps the latest count of each word and publishes all of them.
type latest struct {
	state *txn.State // of failures
	v     *txn.Value[int64]
	b     *board
}

func (l *latest) KeyFields() []string { return []string{"word"} }

func (l *latest) Open(_ *txn.Context, s *txn.State) error {
	l.v = txn.NewValue(s, "latest", txn.Int64Codec())
	return nil
}

func (l *latest) Execute(t *tuple.Tuple, _ *txn.Collector) error { return l.v.Set(t.Int64(1)) }

func (l *latest) Publish(_ context.Context, n txn.BatchID, view txn.View, _ bool) error {
	rows := map[string]int64{}
	err := l.v.Scan(view, func(key []tuple.Value, v int64) error {
		rows[key[0].Str()] = v
		return nil
	})
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if n < l.b.n {
		return fmt.Errorf("batch %d published after %d", n, l.b.n)
	}
	l.b.rows, l.b.n = rows, n
	return err
}

// conf returns configuration for tests, with frames poisoned.
func conf(t testing.TB, kv map[string]any) engine.Option {
	t.Helper()
	all := map[string]any{"topology.debug.poison.frames": true, "transaction.schedule.batch.delay.ms": 5}
	for k, v := range kv {
		all[k] = v
	}
	v, err := config.Of(all)
	if err != nil {
		t.Fatal(err)
	}
	return engine.WithConfig(v)
}

func wordCount(t testing.TB, spout func() txn.Spout, splitter func() txn.Bolt, b *board) *engine.Topology {
	t.Helper()
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", spout, 2)
	tb.SetBolt("split", splitter, 2).ShuffleGrouping("lines")
	tb.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("split", "word")
	tb.SetBolt("sink", func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping("count")
	topo, err := tb.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func sample(parts, n int) (in [][]string, want map[string]int64) {
	want = map[string]int64{}
	for p := range parts {
		var ls []string
		for i := range n {
			l := fmt.Sprintf("a w%d x%d p%d", i%7, i%131, p)
			ls = append(ls, l)
			for _, w := range strings.Fields(l) {
				want[w]++
			}
		}
		in = append(in, ls)
	}
	return in, want
}
