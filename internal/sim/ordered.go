package sim

import (
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn/protocol"
)

// orderedLogic is a sink that writes to the outside in Commit: what each batch adds
// to a sum. A batch that comes again after a rollback, with other tuples, replaces
// what it had added before (the update rule of Trident's opaque states).
type orderedLogic struct {
	t      *task
	sum    item
	closed map[batchID]item
}

func (l *orderedLogic) restore(from origin, done func()) {
	if own := from.own(l.t.index); own != nil {
		l.t.handles = own.Handles
	}
	l.t.persist(func(reply func(error)) { l.t.w.target.raise(l.t.comp.name, l.t.gen, reply) }, done)
}

func (l *orderedLogic) execute(it item) { l.sum = item{l.sum.key + 1, l.sum.n + it.n} }

func (l *orderedLogic) finish(n batchID, _ tuple.MarkKind) {
	l.closed[n] = l.sum
	l.sum = item{}
}

func (l *orderedLogic) commit(n batchID, done func([]byte, error)) {
	l.t.w.target.add(l.t, n, l.closed[n], func(err error) { done(nil, fatalIfFenced(err)) })
}

func (l *orderedLogic) acknowledge(_ protocol.Acknowledge, done func(error)) { done(nil) }
func (l *orderedLogic) snapshot(n batchID, _ *checkpoint.TaskSnapshot)       { delete(l.closed, n) }
