package sim

import (
	"errors"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// runID names the line of checkpoints.
const runID = "run"

// errFenced refuses a writer whose generation is over.
var errFenced = errors.New("a newer generation writes to the target")

// writer is a task of a sink, whatever its id is.
type writer struct {
	component string
	index     int
}

func (t *task) writer() writer { return writer{t.comp.name, t.index} }

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

// target is the outside world of the sinks: a system that keeps prepared transactions
// until they are published or discarded, one with atomic writes that keeps a marker
// for each sink task, and one that shows the newest values. All keep a fence for each
// sink and check it in the same step as each write.
type target struct {
	w         *world
	fence     map[string]generation // by component
	prepared  map[txn.TransactionID][]item
	published map[txn.TransactionID][]item
	marker    map[writer]txn.TransactionID // the last one that was written
	shown     map[writer]shown
	sums      map[writer]sums
	newest    map[string]generation // that has published anything, by component

	outageUntil time.Duration
}

func newTarget(w *world) *target {
	return &target{
		w:         w,
		fence:     map[string]generation{},
		prepared:  map[txn.TransactionID][]item{},
		published: map[txn.TransactionID][]item{},
		marker:    map[writer]txn.TransactionID{},
		shown:     map[writer]shown{},
		sums:      map[writer]sums{},
		newest:    map[string]generation{},
	}
}

// ask lets do happen at the target unless the writer is fenced.
func (t *target) ask(component string, g generation, do func(), reply func(error)) {
	reachable := t.w.now >= t.outageUntil && t.w.on.reaches(toStore) || t.w.now >= t.w.faults.Until
	request(t.w, reachable, func() (struct{}, error) {
		if g < t.fence[component] && t.w.is(Fence) {
			t.w.count("fenced write")
			return struct{}{}, errFenced
		}
		do()
		return struct{}{}, nil
	}, func(_ struct{}, err error) { reply(err) })
}

// raise fences all generations of a sink older than g.
func (t *target) raise(component string, g generation, reply func(error)) {
	t.ask(component, g, func() { t.fence[component] = max(t.fence[component], g) }, reply)
}

func (t *target) prepare(id txn.TransactionID, items []item, g generation, reply func(error)) {
	t.ask(id.Component, g, func() {
		if _, ok := t.published[id]; !ok {
			t.prepared[id] = items
		}
	}, reply)
}

// publish makes a prepared transaction visible, once, however often it is asked to.
func (t *target) publish(id txn.TransactionID, g generation, reply func(error)) {
	t.ask(id.Component, g, func() {
		t.publishing(id.Component, g)
		t.w.check.publishes(id)
		t.w.check.listed(id, g)
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

// discard drops the void of what is prepared by a sink.
func (t *target) discard(component string, g generation, void func(txn.TransactionID) bool, reply func(error)) {
	t.ask(component, g, func() {
		for id := range t.prepared {
			if void(id) {
				delete(t.prepared, id)
			}
		}
	}, reply)
}

// write writes the output of a staged transaction and its marker in one step, unless
// the marker is there already or a later one is. It fences older generations.
func (t *target) write(id txn.TransactionID, items []item, g generation, reply func(error)) {
	t.ask(id.Component, g, func() {
		t.publishing(id.Component, g)
		t.w.check.publishes(id)
		t.w.check.listed(id, g)
		t.fence[id.Component] = max(t.fence[id.Component], g)
		by := writer{id.Component, id.Task}
		last := t.marker[by]
		later := last.Generation > id.Generation || last.Generation == id.Generation && last.Batch >= id.Batch
		if later && t.w.is(StagedMarker) {
			t.w.count("marker found")
			return
		}
		t.w.tracef("target: writes %s: %v", id, items)
		t.marker[by] = id
		t.published[id] = append(t.published[id], items...)
	}, reply)
}

// show replaces the values of a latest-value sink task as of a batch, unless it
// already shows a newer one.
func (t *target) show(by *task, n batchID, values [keys]int32, reply func(error)) {
	t.ask(by.comp.name, by.gen, func() {
		t.publishing(by.comp.name, by.gen)
		t.w.check.shows(by, n)
		if now := t.shown[by.writer()]; t.w.is(Fence) && (now.generation > by.gen || now.generation == by.gen && now.batch > n) {
			return
		}
		t.w.tracef("target: %s shows batch %d: %v", by, n, values)
		t.shown[by.writer()] = shown{by.gen, n, values}
	}, reply)
}

// add adds what batch n of an ordered sink task brings, in place of what it added
// when it came before.
func (t *target) add(by *task, n batchID, more item, reply func(error)) {
	t.ask(by.comp.name, by.gen, func() {
		t.w.check.adds(by, n)
		s := t.sums[by.writer()]
		if n < s.batch {
			return // a late request, which was repeated since
		}
		if n > s.batch {
			s.batch, s.prev = n, s.now
		}
		s.now = item{s.prev.key + more.key, s.prev.n + more.n}
		t.sums[by.writer()] = s
	}, reply)
}

func (t *target) publishing(component string, g generation) {
	if g < t.newest[component] {
		t.w.violate("generation %d of %s publishes after generation %d did", g, component, t.newest[component])
	}
	t.newest[component] = g
}
