package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/isobar-io/isobar/txn"
)

// source is what all spouts here have in common. Each task has one partition, whose
// position is the number of tuples emitted from it.
type source struct {
	partition txn.PartitionID
	task      int
	tasks     int
	emitted   uint64
	finished  uint64 // emitted at the last FinishBatch
}

func (s *source) Open(ctx *txn.Context) error {
	s.task, s.tasks = ctx.TaskIndex, ctx.TaskCount
	return nil
}

// Partitions names one partition for each task, such that it belongs to it.
func (s *source) Partitions(context.Context) ([]txn.PartitionID, error) {
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

func (s *source) Seek(p txn.PartitionID, pos []byte) error {
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

func (s *source) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	if s.emitted == s.finished {
		return nil, nil
	}
	s.finished = s.emitted
	return []txn.Position{{Partition: s.partition, Data: binary.BigEndian.AppendUint64(nil, s.emitted)}}, nil
}
