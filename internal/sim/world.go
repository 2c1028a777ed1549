// Package sim runs whole topologies in simulated time: the real cores of Isobar
// (aligner, participant, coordinator, mover) joined by a simulated shell that does
// to them whatever an unlucky cluster could do. One seed is one schedule; the same
// seed always gives the same schedule. Every run is checked against a sequential
// model of its input.
//
// Everything is single-threaded and happens in events ordered by simulated time.
package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

type (
	batchID    = txn.BatchID
	generation = txn.Generation
	taskID     = checkpoint.TaskID
)

// Rule is a rule of the engine that a run can do without, to show that the checks
// notice. Rules combine as bits.
type Rule uint

// The rules that can be switched off.
const (
	// Alignment: a task with a barrier on one input does not read on there until
	// the barrier is in on all.
	Alignment Rule = 1 << iota
	// GenerationCheck: what carries an older generation is void.
	GenerationCheck
	// Fence: a target refuses writers of an older generation than it has seen.
	Fence
	// HeadCompare: the head moves only if it is still the version expected.
	HeadCompare
	// AckOrder: a batch is acknowledged only after the head has moved.
	AckOrder
	// RestoredHandles: what the restored handles name is published.
	RestoredHandles
	// HandleLists: a report lists every transaction not yet confirmed.
	HandleLists
	// OrderedCommits: an ordered committer commits a batch only after the head has
	// moved to the one before.
	OrderedCommits
	// RetainedSources: sources are trimmed only below the oldest retained batch.
	RetainedSources
	// StagedMarker: a staged transaction whose marker is there is not written again.
	StagedMarker
	// PoisonAcrossRollbacks: failures on a tuple are counted across generations.
	PoisonAcrossRollbacks
	// Interruptions: what user code returns because its generation ends is no failure.
	Interruptions
	// StoreFailures: tasks tell when they cannot store what they commit.
	StoreFailures
	// Incarnations: of two processes in one place the later one is right.
	Incarnations
	// Leases: who hears nothing of the other end for the lease gives it up.
	Leases
	// StartOnce: a start that goes back to a checkpoint does so only once.
	StartOnce
	// OldStarts: a start takes nothing back of what was started after it was asked for.
	OldStarts
	// StrictStarts: a start that goes back gives way if somebody moves the head before it.
	StrictStarts
	// MastersWord: no worker is moved that its topology master says is connected.
	MastersWord
	// Links: a generation ends with the links that it uses.
	Links
	// MasterRecords: no topology master writes its record over that of a later one.
	MasterRecords
	// DismissedAgain: workers that were told that the run is over are started again as long
	// as they are assigned.
	DismissedAgain
	// HungAgain: a topology master whose tasks do not end in time is started again.
	HungAgain
	// NothingLeft: an update is taken back, too, if there was no checkpoint before it.
	NothingLeft
)

// Options say what to run.
type Options struct {
	Seed    uint64
	Cluster bool      // runs on a cluster: see fleet
	Off     Rule      // rules to do without
	Trace   io.Writer // a line for everything that happens; nil for none
}

// Result tells how a run went.
type Result struct {
	Events    int           // simulated events
	Simulated time.Duration // when it ended
	Counts    map[string]int
	// Violation is what went wrong, nil if everything held.
	Violation error
}

// Run simulates one seed until all its sessions have ended in order and nothing is
// left to happen, or until something is violated.
func Run(o Options) Result {
	w := newWorld(o)
	if o.Cluster {
		w.fleet.begin()
	} else {
		w.operator.begin()
	}
	for more := true; more && w.violation == nil; {
		more = w.step()
	}
	if !w.done {
		w.violate("nothing is left to happen, but the run has not ended\n%s", w.state())
	}
	for _, r := range w.shape.regions {
		if w.violation == nil {
			w.check.visible(r, true)
		}
	}
	return Result{Events: w.events, Simulated: w.now, Counts: w.counts, Violation: w.violation}
}

// world is everything there is in one run.
type world struct {
	off    Rule
	rng    *rand.Rand
	trace  io.Writer
	now    time.Duration
	queue  eventQueue
	events int
	done   bool
	counts map[string]int
	on     *process // in which something happens just now; nil: in none

	shape    *shape
	timing   timing
	faults   faults
	store    *store
	target   *target
	check    *checker
	operator *operator // without a cluster
	fleet    *fleet    // with one

	violation error
}

// eventsMax bounds a run; the longest honest ones need less than a third of it.
const eventsMax = 100_000

func newWorld(o Options) *world {
	w := &world{
		off:    o.Off,
		rng:    rand.New(rand.NewPCG(o.Seed, 0x150ba4)),
		trace:  o.Trace,
		counts: map[string]int{},
	}
	w.shape = drawShape(w.rng)
	w.timing = drawTiming(w.rng)
	w.faults = drawFaults(w.rng)
	if o.Cluster {
		w.fleet = newFleet(w)
	}
	w.adjust()
	w.shape.drawPoison(w.rng, w.timing.PoisonAttempts, nil)
	w.store = newStore(w)
	w.target = newTarget(w)
	w.check = newChecker(w)
	if !o.Cluster {
		w.operator = newOperator(w)
	}
	w.tracef("topology %s", w.shape)
	w.tracef("timing %+v", w.timing)
	w.tracef("faults %+v", w.faults)
	if o.Cluster {
		w.tracef("cluster %+v", w.fleet.timing)
		w.fleet.scheduleFaults()
	}
	w.scheduleFaults()
	return w
}

// adjust makes the configuration one with which the run can end well.
func (w *world) adjust() {
	for _, c := range w.shape.components {
		if c.poison != nil {
			w.timing.MaxRestarts = 0 // each tuple takes several, maybe without a commit between them
		}
	}
	if w.faults.OutagesOnly {
		// What has piled up when the store answers again must be little, or it takes
		// longer than a snapshot may. But a task may try again later than that.
		w.timing.MaxPending = max(1, w.timing.MaxPending)
		w.timing.RetryMax = 5 * time.Second
	}
}

// is reports whether a rule is in force.
func (w *world) is(r Rule) bool { return w.off&r == 0 }

// step lets the next event happen. It returns false if there is none.
func (w *world) step() bool {
	if w.events++; w.events > eventsMax {
		w.violate("no end after %d events\n%s", eventsMax, w.state())
		return true
	}
	ev, ok := w.queue.pop()
	if !ok {
		return false
	}
	w.now, w.on = ev.at, nil
	ev.do()
	return true
}

// after lets do happen d from now: in the process that asks for it, by its clock.
func (w *world) after(d time.Duration, do func()) {
	if w.on != nil {
		w.on.after(d, do)
		return
	}
	w.queue.push(w.now+d, do)
}

// at lets do happen at a moment, or now if that is past.
func (w *world) at(at time.Duration, do func()) {
	if w.on != nil {
		w.on.after(max(0, at-w.on.clock()), do)
		return
	}
	w.queue.push(max(at, w.now), do)
}

// clock returns what the clock of the process says in which something happens just now.
func (w *world) clock() time.Duration {
	if w.on != nil {
		return w.on.clock()
	}
	return w.now
}

// outside lets do happen in no process.
func (w *world) outside(do func()) {
	was := w.on
	w.on = nil
	do()
	w.on = was
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// around draws a duration of about a mean, long ones being rare; none is longer than
// five times that.
func (w *world) around(mean time.Duration) time.Duration {
	return time.Duration(min(w.rng.ExpFloat64(), 5) * float64(mean))
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.3f  ", w.now.Seconds())
		fmt.Fprintf(w.trace, format+"\n", args...)
	}
}

// count counts something worth knowing about a run.
func (w *world) count(what string) { w.counts[what]++ }

// violate ends the run.
func (w *world) violate(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf(format, args...)
		w.tracef("VIOLATION %v", w.violation)
	}
}

// alarms lets a core be woken at the moments it asks for, each once.
type alarms struct{ pending []time.Duration }

func (a *alarms) set(w *world, at time.Duration, wake func()) {
	for _, p := range a.pending {
		if p == at {
			return
		}
	}
	a.pending = append(a.pending, at)
	w.at(at, func() {
		for i, p := range a.pending {
			if p == at {
				a.pending = append(a.pending[:i], a.pending[i+1:]...)
				break
			}
		}
		wake()
	})
}

// eventQueue is a binary heap by time; what comes at the same time happens in the
// order in which it was scheduled.
type eventQueue struct {
	heap []scheduled
	seq  uint64
}

type scheduled struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (s scheduled) before(o scheduled) bool {
	return s.at < o.at || s.at == o.at && s.seq < o.seq
}

func (q *eventQueue) push(at time.Duration, do func()) {
	q.seq++
	q.heap = append(q.heap, scheduled{at, q.seq, do})
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *eventQueue) pop() (scheduled, bool) {
	n := len(q.heap)
	if n == 0 {
		return scheduled{}, false
	}
	first, last := q.heap[0], q.heap[n-1]
	q.heap[n-1] = scheduled{}
	q.heap = q.heap[:n-1]
	if n--; n > 0 {
		q.heap[0] = last
	}
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if least == i {
			return first, true
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
