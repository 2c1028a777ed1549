package sim

import (
	"errors"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// restore reads the manifest and makes new tasks from it.
func (l *lead) restore(a checkpoint.Restore) {
	w := l.m.w
	if !l.m.alive || l.over || l.gen != a.Generation {
		return
	}
	if a.From == nil {
		l.restoreTasks(a, nil)
		return
	}
	w.store.get(a.From.Manifest, func(v any, err error) {
		switch {
		case errors.Is(err, checkpoint.ErrNotFound):
			w.missing(l, a.Generation, err)
		case err != nil:
			w.after(w.timing.StoreRetry, func() { l.restore(a) })
		default:
			l.restoreTasks(a, v.(*checkpoint.Manifest))
		}
	})
}

func (l *lead) restoreTasks(a checkpoint.Restore, man *checkpoint.Manifest) {
	if man != nil {
		l.m.w.count("restored")
	}
	if c := l.m.chief; c != nil {
		l.tasks = c.crew.make(l, a.Generation, c.m.fit(man, a.From, l.region))
		return
	}
	for _, spec := range l.region.tasks {
		s := l.m.shape.slots[spec.ID]
		from := l.m.w.originOf(man, s)
		l.m.w.after(l.m.w.hop(), func() { l.replace(s, a, from) })
	}
}

// replace makes the incarnation of a slot for a new generation: after the older
// ones have ended (invariant I9), except those that nobody can reach.
func (l *lead) replace(s *slot, a checkpoint.Restore, from origin) {
	w := l.m.w
	refuse := func() {
		w.count("restore refused")
		w.after(w.hop(), func() {
			l.step(checkpoint.TaskFailed{Generation: a.Generation, Task: s.id, Err: errors.New("a newer generation is there")})
		})
	}
	if a.Generation <= s.newest {
		refuse()
		return
	}
	s.newest = a.Generation
	var wait time.Duration
	for _, t := range s.tasks {
		if t.m != l.m && !t.cut { // its own master sees the connection go
			t.sayFailed(errors.New("replaced by another master"))
		}
		switch {
		case t.cut:
		case w.strikes(w.faults.Zombie):
			t.becomeZombie()
		default:
			d := w.hop()
			w.after(d, t.end)
			wait = max(wait, d)
		}
	}
	w.after(wait, func() {
		if s.newest != a.Generation {
			refuse()
			return
		}
		newTask(l, s, a.Generation, from).restore()
	})
}

// missing handles an object that is not there: the generation that the head names
// must find everything.
func (w *world) missing(l *lead, g generation, err error) {
	if h := w.store.head; h != nil && h.Regions[l.region.name].Generation == g {
		w.violate("restore generation %d of %s: %v", g, l.region.name, err)
		return
	}
	l.step(checkpoint.RestoreFailed{Generation: g, Err: err})
}

// missing handles an object that is not there for a task.
func (t *task) missing(err error) {
	if t.home == nil {
		t.w.missing(t.m.regions[t.comp.region.index], t.gen, err)
		return
	}
	if h := t.w.store.head; h != nil && h.Regions[t.comp.region.name].Generation == t.gen {
		t.w.violate("%s: %v", t, err)
	}
	t.fail(err)
}

// hopeless reports whether an error of restoring is one that no restart will cure.
func hopeless(err error) bool { return errors.Is(err, checkpoint.ErrNotFound) || txn.IsFatal(err) }

// origin is what a task is restored from.
type origin struct {
	batch batchID                    // 0 = from the beginning
	old   []*checkpoint.TaskSnapshot // of all tasks that the component had, by index
}

// own returns what the task of an index contributed, or nil on a fresh start. The
// number of tasks is what it was.
func (o origin) own(index int) *checkpoint.TaskSnapshot {
	if o.old == nil {
		return nil
	}
	return o.old[index]
}

// originOf returns what a manifest has for the tasks of a component.
func (w *world) originOf(man *checkpoint.Manifest, s *slot) origin {
	if man == nil {
		return origin{}
	}
	o := origin{batch: man.Batch, old: snapshots(man, s.comp.name)}
	for i, t := range o.old {
		if t.Index != i {
			w.violate("batch %d has task %d of %s where task %d should be", man.Batch, t.Index, t.Component, i)
		}
	}
	if s.reports && (o.old == nil || len(o.old) != s.comp.tasks && !s.comp.resizable()) {
		w.violate("batch %d has %d tasks of %s", man.Batch, len(o.old), s.comp.name)
	}
	return o
}
