package sim

import (
	"encoding/binary"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// logic is what a component does in one task.
type logic interface {
	// restore takes over what there was and calls done once. It sets the task's handles.
	restore(from origin, done func())
	execute(it item)
	// finish closes a batch; it may emit.
	finish(n batchID, kind tuple.MarkKind)
	commit(n batchID, done func(data []byte, err error))
	acknowledge(a protocol.Acknowledge, done func(error))
	// snapshot makes what the task contributes to the checkpoint of n of what has its
	// handles already.
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
	case twoPhase, staged:
		return newSinkLogic(t)
	case ordered:
		return &orderedLogic{t: t, closed: map[batchID]item{}}
	default:
		return &keyedLogic{t: t, cuts: map[batchID]*cut{}, views: map[batchID][keys]int32{}}
	}
}

// relayLogic keeps nothing.
type relayLogic struct{ t *task }

func (l *relayLogic) restore(_ origin, done func())                        { done() }
func (l *relayLogic) execute(it item)                                      { l.t.emit(coarser(it)) }
func (l *relayLogic) finish(batchID, tuple.MarkKind)                       {}
func (l *relayLogic) commit(_ batchID, done func([]byte, error))           { done(nil, nil) }
func (l *relayLogic) acknowledge(_ protocol.Acknowledge, done func(error)) { done(nil) }
func (l *relayLogic) snapshot(_ batchID, s *checkpoint.TaskSnapshot)       { s.Handles = nil }

// handleLogic is a stateful bolt whose whole state is its handle: of a tally the
// number of its tuples and the sum of their n as one item, of a buffer those held.
type handleLogic struct {
	t      *task
	state  []item
	closed map[batchID][]byte
}

func (l *handleLogic) restore(from origin, done func()) {
	if own := from.own(l.t.index); own != nil {
		l.state = newestItems(own)
		l.t.handles = own.Handles
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

func (l *handleLogic) commit(n batchID, done func([]byte, error))           { done(l.closed[n], nil) }
func (l *handleLogic) acknowledge(_ protocol.Acknowledge, done func(error)) { done(nil) }
func (l *handleLogic) snapshot(n batchID, _ *checkpoint.TaskSnapshot)       { delete(l.closed, n) }

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
