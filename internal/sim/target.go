package sim

import (
	"errors"
	"fmt"
)

// txnID names a transaction of a two-phase sink as recorded in its handle.
type txnID struct {
	task       taskID
	generation generation
	batch      batchID
}

func (id txnID) String() string { return fmt.Sprintf("%d/%d.%d", id.task, id.generation, id.batch) }

// errFenced refuses a writer whose generation is over.
var errFenced = errors.New("a newer generation writes to the target")

// shown is what a latest-value sink task last published.
type shown struct {
	generation generation
	batch      batchID
	values     [keys]int32
}

// sums is what an ordered sink task has written: as of the batch before its newest,
// and with it.
type sums struct {
	batch     batchID
	prev, now item
}

// target is the outside world of the sinks: a system that keeps prepared
// transactions until they are published or discarded, and one that shows the newest
// values. Both keep a fence for each sink task and check it in the same step as
// each write.
type target struct {
	w         *world
	fence     map[taskID]generation
	prepared  map[txnID][]item
	published map[txnID][]item
	shown     map[taskID]shown
	sums      map[taskID]sums
	writer    map[taskID]generation // newest generation that has published anything
}

func newTarget(w *world) *target {
	return &target{
		w:         w,
		fence:     map[taskID]generation{},
		prepared:  map[txnID][]item{},
		published: map[txnID][]item{},
		shown:     map[taskID]shown{},
		sums:      map[taskID]sums{},
		writer:    map[taskID]generation{},
	}
}

// ask lets do happen at the target unless the writer is fenced.
func (t *target) ask(by taskID, g generation, do func(), reply func(error)) {
	request(t.w, true, func() (struct{}, error) {
		if g < t.fence[by] && t.w.is(Fence) {
			t.w.count("fenced write")
			return struct{}{}, errFenced
		}
		do()
		return struct{}{}, nil
	}, func(_ struct{}, err error) { reply(err) })
}

// raise fences all generations of a sink task older than g.
func (t *target) raise(by taskID, g generation, reply func(error)) {
	t.ask(by, g, func() { t.fence[by] = max(t.fence[by], g) }, reply)
}

func (t *target) prepare(id txnID, items []item, g generation, reply func(error)) {
	t.ask(id.task, g, func() {
		if _, ok := t.published[id]; !ok {
			t.prepared[id] = items
		}
	}, reply)
}

// publish makes a prepared transaction visible, once, however often it is asked to.
func (t *target) publish(id txnID, g generation, reply func(error)) {
	t.ask(id.task, g, func() {
		t.publishing(id.task, g)
		t.w.check.publishes(id)
		if _, ok := t.published[id]; ok {
			return
		}
		items, ok := t.prepared[id]
		if !ok {
			t.w.violate("transaction %s is published, but is not prepared", id)
			return
		}
		t.w.tracef("target: publishes %s: %v", id, items)
		delete(t.prepared, id)
		t.published[id] = items
	}, reply)
}

// discard drops what generations older than g have prepared for a sink task and
// keep does not name.
func (t *target) discard(by taskID, g generation, keep map[txnID]bool, reply func(error)) {
	t.ask(by, g, func() {
		for id := range t.prepared {
			if id.task == by && id.generation < g && !keep[id] {
				delete(t.prepared, id)
			}
		}
	}, reply)
}

// show replaces the values of a latest-value sink task as of a batch, unless it
// already shows a newer one.
func (t *target) show(by taskID, g generation, n batchID, values [keys]int32, reply func(error)) {
	t.ask(by, g, func() {
		t.publishing(by, g)
		t.w.check.shows(by, n)
		if now := t.shown[by]; t.w.is(Fence) && (now.generation > g || now.generation == g && now.batch > n) {
			return
		}
		t.w.tracef("target: task %d shows batch %d: %v", by, n, values)
		t.shown[by] = shown{g, n, values}
	}, reply)
}

// add adds what batch n of an ordered sink task brings, in place of what it added
// when it came before.
func (t *target) add(by taskID, g generation, n batchID, more item, reply func(error)) {
	t.ask(by, g, func() {
		t.w.check.adds(by, n)
		s := t.sums[by]
		if n < s.batch {
			return // a late request, which was repeated since
		}
		if n > s.batch {
			s.batch, s.prev = n, s.now
		}
		s.now = item{s.prev.key + more.key, s.prev.n + more.n}
		t.sums[by] = s
	}, reply)
}

func (t *target) publishing(by taskID, g generation) {
	if g < t.writer[by] {
		t.w.violate("generation %d of task %d publishes after generation %d did", g, by, t.writer[by])
	}
	t.writer[by] = g
}
