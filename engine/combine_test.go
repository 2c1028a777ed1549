package engine_test

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// ones emits the words of a line, each with the number 1.
type ones struct{}

func (ones) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "n") }

func (ones) Execute(t *tuple.Tuple, out *txn.Collector) error {
	for w := range strings.FieldsSeq(t.Str(0)) {
		out.Emit2(tuple.String(w), tuple.Int64(1))
	}
	return nil
}

// sums adds up the numbers of a word. It fails once.
type sums struct {
	count
	tuples *atomic.Int64
	failed *atomic.Bool
}

func (s *sums) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if s.tuples.Add(1) > 40 && s.failed.CompareAndSwap(false, true) {
		return errors.New("once")
	}
	return s.n.Add(t.Int64(1))
}

// Senders combine what they send; the counts are the same, also after a rollback.
func TestCombinedWordsAreCountedOnce(t *testing.T) {
	in, want := sample(2, 200)
	b := &board{}
	var tuples atomic.Int64
	var failed atomic.Bool
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", func() txn.Spout { return newLines(in...) }, 2)
	tb.SetBolt("split", func() txn.Bolt { return ones{} }, 2).ShuffleGrouping("lines")
	tb.SetBolt("count", func() txn.Bolt { return &sums{tuples: &tuples, failed: &failed} }, 2).
		Grouping("split", tuple.DefaultStream, engine.Fields("word").Combine("n", txn.CombineSum))
	tb.SetBolt("sink", func() txn.Bolt { return &latest{b: b} }, 1).GlobalGrouping("count")
	store := memstore.New()
	res, err := engine.Run(t.Context(), build(t, tb), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
	if err != nil || res.Restarts != 1 {
		t.Fatalf("%d restarts, %v", res.Restarts, err)
	}
	if got := b.get(); !maps.Equal(got, want) {
		t.Errorf("%d words published, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
	}
	words := int64(0)
	for _, n := range want {
		words += n
	}
	if tuples.Load() >= words {
		t.Errorf("%d tuples came for %d words", tuples.Load(), words)
	}
}
