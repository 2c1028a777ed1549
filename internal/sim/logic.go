package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// logic is what a component does in one task.
type logic interface {
	// restore takes over a snapshot, nil on a fresh start, and calls done once.
	restore(snap *checkpoint.TaskSnapshot, done func())
	execute(it item)
	// finish closes a batch; it may emit.
	finish(n batchID, kind tuple.MarkKind)
	commit(n batchID, done func(data []byte, err error))
	acknowledge(n batchID, last bool, done func(error))
	// snapshot adds what the task contributes to the checkpoint of n, other than
	// handles.
	snapshot(n batchID, s *checkpoint.TaskSnapshot)
}

func newLogic(t *task) logic {
	switch t.comp.kind {
	case source:
		return &sourceLogic{t: t, positions: map[batchID][]txn.Position{}}
	case relay:
		return &relayLogic{t: t}
	case tally:
		return &handleLogic{t: t, closed: map[batchID][]byte{}}
	case buffer:
		return &handleLogic{t: t, closed: map[batchID][]byte{}}
	case twoPhase:
		return &twoPhaseLogic{t: t, closed: map[batchID][]item{}}
	default:
		return &keyedLogic{t: t, cuts: map[batchID]*cut{}, views: map[batchID][keys]int32{}}
	}
}

// relayLogic keeps nothing.
type relayLogic struct{ t *task }

func (l *relayLogic) restore(_ *checkpoint.TaskSnapshot, done func()) { done() }
func (l *relayLogic) execute(it item)                                 { l.t.emit(coarser(it)) }
func (l *relayLogic) finish(batchID, tuple.MarkKind)                  {}
func (l *relayLogic) commit(_ batchID, done func([]byte, error))      { done(nil, nil) }
func (l *relayLogic) acknowledge(_ batchID, _ bool, done func(error)) { done(nil) }
func (l *relayLogic) snapshot(_ batchID, _ *checkpoint.TaskSnapshot)  {}

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

func (l *sourceLogic) restore(snap *checkpoint.TaskSnapshot, done func()) {
	for _, p := range l.t.comp.partitions {
		if txn.PartitionTask(p.name, l.t.comp.tasks) != l.t.index {
			continue
		}
		r := &reading{partition: p, end: p.open}
		if snap != nil {
			r.pos = positionOf(snap, p)
		}
		l.reads = append(l.reads, r)
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

// next emits a few tuples; false if there are no more.
func (l *sourceLogic) next() bool {
	var open []*reading
	for _, r := range l.reads {
		if r.pos < r.end {
			open = append(open, r)
		}
	}
	if len(open) == 0 {
		return false
	}
	r := open[l.t.w.rng.IntN(len(open))]
	for range 1 + l.t.w.rng.IntN(3) {
		if r.pos < r.end {
			l.t.emit(r.items[r.pos])
			r.pos++
		}
	}
	return true
}

func (l *sourceLogic) finish(n batchID, _ tuple.MarkKind) {
	var ps []txn.Position
	for _, r := range l.reads {
		ps = append(ps, txn.Position{Partition: r.name, Data: binary.LittleEndian.AppendUint32(nil, uint32(r.pos))})
	}
	l.positions[n] = ps
}

func (l *sourceLogic) execute(item)                                    {}
func (l *sourceLogic) commit(_ batchID, done func([]byte, error))      { done(nil, nil) }
func (l *sourceLogic) acknowledge(_ batchID, _ bool, done func(error)) { done(nil) }
func (l *sourceLogic) snapshot(n batchID, s *checkpoint.TaskSnapshot) {
	s.Positions = l.positions[n]
	s.Finished = l.t.saidFinished
	delete(l.positions, n)
}

// handleLogic is a stateful bolt whose whole state is its handle: of a tally the
// number of its tuples and the sum of their n as one item, of a buffer those held.
type handleLogic struct {
	t      *task
	state  []item
	closed map[batchID][]byte
}

func (l *handleLogic) restore(snap *checkpoint.TaskSnapshot, done func()) {
	if snap != nil {
		l.state = newestItems(snap)
	}
	done()
}

func newestItems(snap *checkpoint.TaskSnapshot) []item {
	return decodeItems(snap.Handles[len(snap.Handles)-1].Data)
}

func (l *handleLogic) execute(it item) {
	if l.t.comp.kind == tally {
		if l.state == nil {
			l.state = []item{{}}
		}
		l.state[0].key++
		l.state[0].n += it.n
		l.t.emit(it)
		return
	}
	if l.state = append(l.state, it); len(l.state) == 3 {
		l.release()
	}
}

func (l *handleLogic) release() {
	for _, it := range l.state {
		l.t.emit(it)
	}
	l.state = nil
}

func (l *handleLogic) finish(n batchID, kind tuple.MarkKind) {
	if l.t.comp.kind == buffer && kind == tuple.MarkEnd {
		l.release()
	}
	l.closed[n] = encodeItems(l.state)
}

func (l *handleLogic) commit(n batchID, done func([]byte, error))      { done(l.closed[n], nil) }
func (l *handleLogic) acknowledge(_ batchID, _ bool, done func(error)) { done(nil) }
func (l *handleLogic) snapshot(n batchID, _ *checkpoint.TaskSnapshot)  { delete(l.closed, n) }

func encodeItems(items []item) []byte {
	var b []byte
	for _, it := range items {
		b = binary.LittleEndian.AppendUint32(b, uint32(it.key))
		b = binary.LittleEndian.AppendUint32(b, uint32(it.n))
	}
	return b
}

func decodeItems(b []byte) []item {
	var items []item
	for ; len(b) >= 8; b = b[8:] {
		items = append(items, item{int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:]))})
	}
	return items
}

// twoPhaseLogic is a sink that prepares a transaction for each batch in Commit and
// publishes it in AckCommit. A batch without tuples has none.
type twoPhaseLogic struct {
	t       *task
	items   []item
	closed  map[batchID][]item
	pending []txnID // prepared and not published, in batch order
}

// txnOf returns the transaction that a handle of a sink task names.
func txnOf(id taskID, h txn.Handle) (txnID, bool) {
	return txnID{id, h.Generation, h.Batch}, len(h.Data) > 0
}

func (l *twoPhaseLogic) restore(snap *checkpoint.TaskSnapshot, done func()) {
	t := l.t
	keep := map[txnID]bool{}
	if snap != nil && t.w.is(RestoredHandles) {
		for _, h := range snap.Handles {
			if id, ok := txnOf(t.id, h); ok {
				l.pending = append(l.pending, id)
				keep[id] = true
			}
		}
	}
	t.persist(func(reply func(error)) { t.w.target.raise(t.id, t.gen, reply) }, func() {
		t.persist(func(reply func(error)) { l.publish(1<<62, reply) }, func() {
			t.persist(func(reply func(error)) { t.w.target.discard(t.id, t.gen, keep, reply) }, done)
		})
	})
}

// persist repeats a request of a task that is being restored until it succeeds.
func (t *task) persist(ask func(reply func(error)), done func()) {
	if t.state == ended {
		return
	}
	ask(func(err error) {
		switch {
		case t.state == ended:
		case err == nil:
			done()
		case errors.Is(err, errFenced):
			t.fail(err)
		default:
			t.w.after(t.w.timing.RetryMin, func() { t.persist(ask, done) })
		}
	})
}

func (l *twoPhaseLogic) execute(it item) { l.items = append(l.items, it) }

func (l *twoPhaseLogic) finish(n batchID, _ tuple.MarkKind) {
	l.closed[n] = l.items
	l.items = nil
}

func (l *twoPhaseLogic) commit(n batchID, done func([]byte, error)) {
	items := l.closed[n]
	if len(items) == 0 {
		delete(l.closed, n)
		done(nil, nil)
		return
	}
	id := txnID{l.t.id, l.t.gen, n}
	l.t.w.target.prepare(id, items, l.t.gen, func(err error) {
		if err != nil {
			done(nil, fatalIfFenced(err))
			return
		}
		delete(l.closed, n)
		l.pending = append(l.pending, id)
		done([]byte(fmt.Sprint(id)), nil)
	})
}

func fatalIfFenced(err error) error {
	if errors.Is(err, errFenced) {
		return txn.Fatal(err)
	}
	return err
}

// publish publishes what is pending up to batch n, one after the other.
func (l *twoPhaseLogic) publish(n batchID, done func(error)) {
	if len(l.pending) == 0 || l.pending[0].batch > n {
		done(nil)
		return
	}
	l.t.w.target.publish(l.pending[0], l.t.gen, func(err error) {
		switch {
		case l.t.state == ended:
		case err != nil:
			done(fatalIfFenced(err))
		default:
			l.pending = l.pending[1:]
			l.publish(n, done)
		}
	})
}

func (l *twoPhaseLogic) acknowledge(n batchID, _ bool, done func(error)) { l.publish(n, done) }
func (l *twoPhaseLogic) snapshot(batchID, *checkpoint.TaskSnapshot)      {}
