package sim

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn/protocol"
)

// stateFile is an object of keyed state: the values of some keys; 0 is not there.
type stateFile struct{ values [keys]int32 }

func (f *stateFile) over(values [keys]int32) [keys]int32 {
	for k, v := range f.values {
		if v != 0 {
			values[k] = v
		}
	}
	return values
}

// cut is what one batch changed, and where it is put.
type cut struct {
	file *stateFile // nil: nothing changed
	refs []checkpoint.FileRef
}

// deltasMax is after how many deltas a task writes a new base.
const deltasMax = 3

// keyedLogic keeps a number for each key: counters and digests how often it came,
// latest-value sinks what came last. Each batch's changes are one object.
type keyedLogic struct {
	t      *task
	values [keys]int32
	dirty  [keys]bool
	cuts   map[batchID]*cut
	views  map[batchID][keys]int32 // of latest-value sinks, as of each batch

	applied [keys]int32 // as of the last committed batch
	files   []checkpoint.FileRef
}

func (l *keyedLogic) restore(from origin, done func()) {
	ready := done
	if l.t.comp.kind == latest {
		ready = func() {
			l.t.persist(func(reply func(error)) { l.t.w.target.raise(l.t.comp.name, l.t.gen, reply) }, done)
		}
	}
	own := from.own(l.t.index)
	if own == nil {
		ready()
		return
	}
	l.files = own.Files
	l.load(own.Files, func() {
		l.applied = l.values
		l.views[from.batch] = l.values
		ready()
	})
}

// load reads files one after the other.
func (l *keyedLogic) load(files []checkpoint.FileRef, done func()) {
	if len(files) == 0 {
		done()
		return
	}
	t := l.t
	t.persist(func(reply func(error)) {
		t.w.store.get(files[0].Name, func(v any, err error) {
			if errors.Is(err, checkpoint.ErrNotFound) {
				t.missing(err)
				return
			}
			if err == nil {
				l.values = v.(*stateFile).over(l.values)
			}
			reply(err)
		})
	}, func() { l.load(files[1:], done) })
}

func (l *keyedLogic) execute(it item) {
	l.dirty[it.key] = true
	switch l.t.comp.kind {
	case latest:
		l.values[it.key] = it.n
	case counter:
		l.values[it.key]++
		l.t.emit(item{it.key, l.values[it.key]})
	default:
		l.values[it.key]++
	}
}

func (l *keyedLogic) finish(n batchID, _ tuple.MarkKind) {
	c := &cut{}
	for k, dirty := range l.dirty {
		if !dirty {
			continue
		}
		if c.file == nil {
			c.file = &stateFile{}
		}
		c.file.values[k] = l.values[k]
		if l.t.comp.kind == digest {
			l.t.emit(item{int32(k), l.values[k]})
		}
	}
	l.dirty = [keys]bool{}
	l.cuts[n] = c
	if l.t.comp.kind == latest {
		l.views[n] = l.values
	}
}

// commit puts what batch n changed, or a new base. Trying again puts the same
// object under the same name.
func (l *keyedLogic) commit(n batchID, done func([]byte, error)) {
	c := l.cuts[n]
	if c.refs == nil {
		l.place(n, c)
	}
	if c.file == nil {
		l.apply(n, c)
		done(nil, nil)
		return
	}
	l.t.w.store.put(c.refs[len(c.refs)-1].Name, c.file, func(err error) {
		if l.t.state == ended {
			return
		}
		if err == nil {
			l.apply(n, c)
		} else {
			l.t.cannotStore(err)
		}
		done(nil, err)
	})
}

// cannotStore tells the master that the task could not store what it commits.
func (t *task) cannotStore(err error) {
	t.w.count("store failed")
	if t.w.is(StoreFailures) {
		t.storeFailed = true
		t.tell(checkpoint.StoreFailed{Generation: t.gen, Task: t.id, Err: err})
	}
}

// place decides what object holds batch n.
func (l *keyedLogic) place(n batchID, c *cut) {
	c.refs = l.files[:len(l.files):len(l.files)]
	if c.file == nil {
		return
	}
	ref := checkpoint.FileRef{Batch: n, Generation: l.t.gen, Size: 1, GroupTo: 1}
	ref.Name = checkpoint.DataName(l.t.gen, l.t.comp.name, l.t.index, n, l.t.w.unique())
	if len(c.refs) == 0 || len(c.refs) > deltasMax {
		ref.Base = true
		c.refs = nil
		c.file = &stateFile{c.file.over(l.applied)}
	}
	c.refs = append(c.refs, ref)
}

func (l *keyedLogic) apply(n batchID, c *cut) {
	if c.file != nil {
		l.applied = c.file.over(l.applied)
	}
	l.files = c.refs
	delete(l.cuts, n)
}

func (l *keyedLogic) snapshot(_ batchID, s *checkpoint.TaskSnapshot) {
	s.Handles, s.Files = nil, l.files
}

// acknowledge lets a latest-value sink publish its state as of batch n, which it
// may leave out unless it is the last.
func (l *keyedLogic) acknowledge(a protocol.Acknowledge, done func(error)) {
	n := a.Batch
	if l.t.comp.kind != latest {
		done(nil)
		return
	}
	view, ok := l.views[n]
	if !ok {
		if n > 0 {
			l.t.w.violate("%s: batch %d is to be published, but its view is gone", l.t, n)
		}
		return
	}
	for b := range l.views {
		if b < n {
			delete(l.views, b)
		}
	}
	if !a.Last && l.t.w.rng.IntN(2) == 0 {
		done(nil)
		return
	}
	l.t.w.target.show(l.t, n, view, func(err error) { done(fatalIfFenced(err)) })
}

// unique returns the random part of an object name.
func (w *world) unique() string { return fmt.Sprintf("%08x", w.rng.Uint32()) }
