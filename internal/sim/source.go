package sim

import (
	"encoding/binary"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// sourceLogic reads the partitions that belong to its task.
type sourceLogic struct {
	t         *task
	reads     []*reading
	positions map[batchID][]txn.Position
}

// reading is a partition and how far it has been read.
type reading struct {
	*partition
	pos, end int // end is what was there when the task was made
}

func (l *sourceLogic) restore(from origin, done func()) {
	for _, p := range l.t.comp.partitions {
		if txn.PartitionTask(p.name, l.t.comp.tasks) != l.t.index {
			continue
		}
		r := &reading{partition: p, end: p.open}
		for _, snap := range from.old {
			r.pos = max(r.pos, positionOf(snap, p))
		}
		l.reads = append(l.reads, r)
	}
	if from.batch > 0 {
		l.positions[from.batch] = l.now()
	}
	done()
}

// positionOf returns how many items of p a snapshot says are read.
func positionOf(snap *checkpoint.TaskSnapshot, p *partition) int {
	for _, pos := range snap.Positions {
		if pos.Partition == p.name {
			return int(binary.LittleEndian.Uint32(pos.Data))
		}
	}
	return 0
}

// next emits a few tuples, if there are any now. It has finished when there never will be.
func (l *sourceLogic) next() (emitted, finished bool) {
	var open []*reading
	finished = true
	for _, r := range l.reads {
		if r.pos < l.there(r) {
			open = append(open, r)
		}
		finished = finished && r.pos >= r.end
	}
	if len(open) == 0 {
		return false, finished
	}
	r := open[l.t.w.rng.IntN(len(open))]
	for range 1 + l.t.w.rng.IntN(3) {
		if r.pos < l.there(r) {
			l.t.emit(r.items[r.pos])
			r.pos++
		}
	}
	return true, false
}

// there returns how many items of a partition can be read now: on a cluster they come
// bit by bit, so that the topology runs for a while.
func (l *sourceLogic) there(r *reading) int {
	if f := l.t.w.fleet; f != nil && l.t.w.now < f.inputUntil {
		return int(int64(r.end) * int64(l.t.w.now) / int64(f.inputUntil))
	}
	return r.end
}

func (l *sourceLogic) finish(n batchID, _ tuple.MarkKind) { l.positions[n] = l.now() }

func (l *sourceLogic) now() []txn.Position {
	var ps []txn.Position
	for _, r := range l.reads {
		ps = append(ps, txn.Position{Partition: r.name, Data: binary.LittleEndian.AppendUint32(nil, uint32(r.pos))})
	}
	return ps
}

func (l *sourceLogic) execute(item)                               {}
func (l *sourceLogic) commit(_ batchID, done func([]byte, error)) { done(nil, nil) }

func (l *sourceLogic) snapshot(n batchID, s *checkpoint.TaskSnapshot) {
	s.Handles, s.Positions = nil, l.positions[n]
	s.Finished = l.t.saidFinished
}

// acknowledge trims the partitions below the oldest batch that can be gone back to.
func (l *sourceLogic) acknowledge(a protocol.Acknowledge, done func(error)) {
	oldest := a.Oldest
	if !l.t.w.is(RetainedSources) {
		oldest = a.Batch
	}
	for i, p := range l.positions[oldest] {
		r := l.reads[i]
		r.trimmed = max(r.trimmed, int(binary.LittleEndian.Uint32(p.Data)))
	}
	for n := range l.positions {
		if n < oldest {
			delete(l.positions, n)
		}
	}
	done(nil)
}
