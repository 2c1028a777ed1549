package sim

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

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
		var upTo batchID // some sinks leave it to the AckCommit that comes after the start
		if len(l.pending) > 0 && t.w.rng.IntN(2) == 0 {
			upTo = l.pending[len(l.pending)-1].batch
		}
		t.persist(func(reply func(error)) { l.publish(upTo, reply) }, func() {
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

func (l *twoPhaseLogic) acknowledge(a protocol.Acknowledge, done func(error)) {
	l.publish(a.Batch, done)
}

func (l *twoPhaseLogic) snapshot(batchID, *checkpoint.TaskSnapshot) {}

// orderedLogic is a sink that writes to the outside in Commit: what each batch adds
// to a sum. A batch that comes again after a rollback, with other tuples, replaces
// what it had added before (the update rule of Trident's opaque states).
type orderedLogic struct {
	t      *task
	sum    item
	closed map[batchID]item
}

func (l *orderedLogic) restore(_ *checkpoint.TaskSnapshot, done func()) {
	l.t.persist(func(reply func(error)) { l.t.w.target.raise(l.t.id, l.t.gen, reply) }, done)
}

func (l *orderedLogic) execute(it item) { l.sum = item{l.sum.key + 1, l.sum.n + it.n} }

func (l *orderedLogic) finish(n batchID, _ tuple.MarkKind) {
	l.closed[n] = l.sum
	l.sum = item{}
}

func (l *orderedLogic) commit(n batchID, done func([]byte, error)) {
	l.t.w.target.add(l.t.id, l.t.gen, n, l.closed[n], func(err error) { done(nil, fatalIfFenced(err)) })
}

func (l *orderedLogic) acknowledge(_ protocol.Acknowledge, done func(error)) { done(nil) }
func (l *orderedLogic) snapshot(n batchID, _ *checkpoint.TaskSnapshot)       { delete(l.closed, n) }
