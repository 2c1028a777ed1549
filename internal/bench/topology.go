package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// The components are written as a user would write them: one tuple at a time.

// lineSpout emits the lines of a workload for ever. Each task has one partition,
// whose position is the number of lines emitted from it.
type lineSpout struct {
	lines     []string
	partition txn.PartitionID
	tasks     int
	emitted   uint64
	finished  uint64 // emitted at the last FinishBatch
}

// linesPerCall is how many lines a NextTuple emits.
const linesPerCall = 64

func (s *lineSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line") }

func (s *lineSpout) Open(ctx *txn.Context) error {
	s.tasks = ctx.TaskCount
	return nil
}

// Partitions names one partition for each task, such that it belongs to it.
func (s *lineSpout) Partitions(context.Context) ([]txn.PartitionID, error) {
	ids := make([]txn.PartitionID, s.tasks)
	for found, n := 0, 0; found < s.tasks; n++ {
		id := txn.PartitionID("part" + strconv.Itoa(n))
		if task := txn.PartitionTask(id, s.tasks); ids[task] == "" {
			ids[task] = id
			found++
		}
	}
	return ids, nil
}

func (s *lineSpout) Seek(p txn.PartitionID, pos []byte) error {
	s.partition = p
	if pos == nil {
		return nil
	}
	if len(pos) != 8 {
		return fmt.Errorf("seek in %s: the position has %d bytes, want 8", p, len(pos))
	}
	s.emitted = binary.BigEndian.Uint64(pos)
	s.finished = s.emitted
	return nil
}

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

func (s *lineSpout) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	if s.emitted == s.finished {
		return nil, nil
	}
	s.finished = s.emitted
	return []txn.Position{{Partition: s.partition, Data: binary.BigEndian.AppendUint64(nil, s.emitted)}}, nil
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
