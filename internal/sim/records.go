package sim

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// What the coordination store may say.
var (
	errUnavailable = errors.New("the coordination store does not answer")
	errAbsent      = errors.New("not found")
	errChanged     = errors.New("changed by somebody else")
)

// records is the coordination store: values by key, BUCKET/NAME. They are never changed.
type records struct {
	w        *world
	kept     map[string]*entry
	revision uint64
	watches  []*watch
	awayTill time.Duration
	lives    int // goes up when it has lost everything
}

// entry is a value and what was there before it, for those who read behind.
type entry struct {
	key      string
	value    any // nil: deleted
	revision uint64
	before   *entry
	since    time.Duration
}

// watch is a follower of all keys with a prefix.
type watch struct {
	p      *process
	prefix string
	told   func(entry) // an entry without a key: that is all there is
	lands  time.Duration
	sent   map[string]uint64 // revisions
	behind bool              // something was missed
}

func newRecords(w *world) *records { return &records{w: w, kept: map[string]*entry{}} }

func (r *records) away() bool {
	return r.w.now < r.awayTill && r.w.now < r.w.faults.Until
}

// reachable reports whether a process can use it.
func (r *records) reachable(p *process) bool { return !r.away() && p.reaches(toRecords) }

// ask carries out do in the store. Requests of one process may fail, but do not overtake
// each other.
func ask[T any](r *records, do func() (T, error), reply func(T, error)) {
	w, p := r.w, r.w.on
	answer := func(v T, err error) {
		if p == nil {
			reply(v, err)
			return
		}
		p.deliver(func() { reply(v, err) })
	}
	fails, lost, reachable := w.strikes(w.faults.RequestFail/2), w.strikes(w.faults.RequestLost/2), r.reachable(p)
	at := w.now + w.hop()
	if p != nil {
		at = max(at, p.asks)
		p.asks = at
	}
	w.outside(func() {
		w.at(at, func() {
			var v T
			err := errUnavailable
			if reachable && !fails && !r.away() {
				v, err = do()
			}
			if lost {
				var none T
				v, err = none, errUnavailable
			}
			w.after(w.hop(), func() { answer(v, err) })
		})
	})
}

// stale returns an entry as somebody reads it who may be a little behind.
func (r *records) stale(e *entry) *entry {
	if e != nil && e.before != nil && r.w.now-e.since < 2*time.Second && r.w.strikes(0.1) {
		r.w.count("stale read")
		return e.before
	}
	return e
}

func (r *records) get(key string, reply func(entry, error)) {
	ask(r, func() (entry, error) {
		e := r.stale(r.kept[key])
		if e == nil || e.value == nil {
			return entry{}, errAbsent
		}
		return *e, nil
	}, reply)
}

// list returns all entries with a prefix, in the order of their keys; exact says that
// none may be behind.
func (r *records) list(prefix string, exact bool, reply func([]entry, error)) {
	ask(r, func() ([]entry, error) {
		var all []entry
		for _, key := range r.keys(prefix) {
			e := r.kept[key]
			if !exact {
				e = r.stale(e)
			}
			if e.value != nil {
				all = append(all, *e)
			}
		}
		return all, nil
	}, reply)
}

func (r *records) keys(prefix string) []string {
	var keys []string
	for key := range r.kept {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// put sets a key whatever it was.
func (r *records) put(key string, value any, reply func(uint64, error)) {
	ask(r, func() (uint64, error) { return r.set(key, value), nil }, reply)
}

// update sets a key that must have that revision; 0: it must not exist.
func (r *records) update(key string, value any, revision uint64, reply func(uint64, error)) {
	ask(r, func() (uint64, error) {
		var now uint64
		if e := r.kept[key]; e != nil && e.value != nil {
			now = e.revision
		}
		switch now {
		case revision:
			return r.set(key, value), nil
		case 0:
			return 0, errAbsent
		}
		return 0, errChanged
	}, reply)
}

func (r *records) set(key string, value any) uint64 {
	r.revision++
	before := r.kept[key]
	e := &entry{key: key, value: value, revision: r.revision, before: before, since: r.w.now}
	if before != nil {
		cut := *before
		cut.before = nil
		e.before = &cut
	}
	r.kept[key] = e
	if r.w.trace != nil && !strings.HasPrefix(key, "supervisors/") {
		r.w.tracef("records: %s = %s", key, r.w.fleet.show(value))
	}
	r.w.fleet.orders.written(key, before, value)
	for _, v := range r.watches {
		if strings.HasPrefix(key, v.prefix) {
			r.notify(v, *e)
		}
	}
	return e.revision
}

// watch tells the process on of everything that is kept under a prefix, then of changes.
func (r *records) watch(prefix string, told func(entry)) {
	v := &watch{p: r.w.on, prefix: prefix, told: told, sent: map[string]uint64{}, behind: true}
	r.watches = append(slices.DeleteFunc(r.watches, func(v *watch) bool { return v.p.dead }), v)
	r.resend(v)
}

// notify brings a change to a follower, late, and not at all if it is replaced by then or
// the way is cut.
func (r *records) notify(v *watch, e entry) {
	w := r.w
	if v.behind {
		return
	}
	if !r.reachable(v.p) {
		v.behind, v.p.cutOff = true, true
		v.retry(r)
		return
	}
	skip := w.strikes(0.1)
	r.bring(v, func() {
		if now := r.kept[e.key]; skip && now != nil && now.revision > e.revision {
			return
		}
		v.tell(e)
	})
	if w.strikes(0.1) {
		r.bring(v, func() { v.tell(e) })
	}
}

func (v *watch) tell(e entry) {
	if e.key != "" {
		v.sent[e.key] = e.revision
	}
	v.told(e)
}

func (r *records) bring(v *watch, do func()) {
	v.lands = max(v.lands, r.w.now+r.w.hop())
	r.w.queue.push(v.lands, func() { v.p.deliver(do) })
}

// resend brings a follower all that there is, once it can be reached.
func (r *records) resend(v *watch) {
	if v.p.dead || !v.behind {
		return
	}
	if !r.reachable(v.p) {
		v.retry(r)
		return
	}
	v.behind = false
	keys := r.keys(v.prefix)
	for _, key := range slices.Sorted(maps.Keys(v.sent)) {
		if r.kept[key] == nil {
			r.bring(v, func() { v.tell(entry{key: key}) })
			delete(v.sent, key)
		}
	}
	for _, key := range keys {
		e := r.kept[key]
		if old := r.stale(e); old != e && old.value != nil {
			r.bring(v, func() { v.tell(*old) })
		}
		if e.value != nil || v.sent[key] != 0 {
			r.bring(v, func() { v.tell(*e) })
		}
	}
	r.bring(v, func() { v.tell(entry{}) })
}

func (v *watch) retry(r *records) {
	r.w.queue.push(r.w.now+200*time.Millisecond, func() { r.resend(v) })
}

// fail takes the store away for a while; it may come back empty.
func (r *records) fail(d time.Duration, wipe bool) {
	r.awayTill = max(r.awayTill, r.w.now+d)
	r.w.count("records away")
	r.w.tracef("records: away for %v", d)
	if wipe {
		r.w.count("records wiped")
		r.w.tracef("records: all is lost")
		r.kept, r.revision = map[string]*entry{}, 0
		r.lives++
	}
	r.cutOff(func(*process) bool { return true })
}

// cutOff has followers take everything anew when they can be reached again.
func (r *records) cutOff(which func(*process) bool) {
	for _, v := range r.watches {
		if !v.p.dead && which(v.p) && !v.behind {
			v.p.cutOff = true
			v.behind = true
			v.retry(r)
		}
	}
}
