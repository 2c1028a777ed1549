package main

import (
	"slices"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// collect calls a spout some times and returns what it has emitted.
func collect(t *testing.T, s interface {
	txn.Spout
	txn.Declarer
}, calls int) (rows [][]tuple.Value, last txn.Status) {
	t.Helper()
	var d txn.OutputDeclarer
	s.DeclareOutputFields(&d)
	streams, _ := d.Streams()
	out := txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) { rows = append(rows, slices.Clone(vals)) })
	for range calls {
		var err error
		if last, err = s.NextTuple(out); err != nil {
			t.Fatal(err)
		}
	}
	return rows, last
}

func TestSpoutReplaysFromAPosition(t *testing.T) {
	text, err := textOf("fastwordcount")
	if err != nil {
		t.Fatal(err)
	}
	const tasks, task = 3, 2
	read := func(pos []byte, calls int) (lines []string, positions []txn.Position) {
		s := &lineSpout{source: source{tasks: tasks}, lines: text}
		ids, err := s.Partitions(t.Context())
		if err != nil || len(ids) != tasks || txn.PartitionTask(ids[task], tasks) != task {
			t.Fatalf("partitions %q (%v), the one of task %d should be there", ids, err, task)
		}
		if err := s.Seek(ids[task], pos); err != nil {
			t.Fatal(err)
		}
		rows, _ := collect(t, s, calls)
		for _, row := range rows {
			lines = append(lines, row[0].Str())
		}
		if positions, err = s.FinishBatch(1); err != nil {
			t.Fatal(err)
		}
		return lines, positions
	}
	whole, _ := read(nil, 3)
	first, pos := read(nil, 1)
	rest, _ := read(pos[0].Data, 2)
	if !slices.Equal(whole, slices.Concat(first, rest)) {
		t.Error("reading on from a position gives other lines than reading through")
	}
}
