package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// The fault model.
//
// Time. Every message, write, call of user code and end of a task takes a random
// time, now and then a very long one. Clocks do not drift: only the master's and
// the participants' timers use one.
//
// Channels between tasks carry frames in order. A frame may be lost, or in other runs
// come twice; there are no sequence numbers here, so the count that a barrier
// announces and the order of batches have to show it. (Both in one run could make up
// for each other; that is what sequence numbers are for.) Frames of a task whose
// generation is over go on to arrive, also at the receiver's successor.
//
// Control messages. AckCommit, its confirmation and SnapshotReported may be lost,
// doubled and reordered. InjectBarrier may be lost or doubled; the spout notices the
// gap at the next one, which comes when the batch has been given up. (A region with
// an ordered committer gives nothing up. There, reports and InjectBarrier are lost
// only together with their connection, and a lost frame ends its channel at once.)
// All other messages between a master and one task (Restore, StartTasks, Resume,
// StopTasks, TaskReady, InputChanged, SpoutFinished, TaskFailed) are in order and are
// lost only together with their connection, which the master notices as TaskFailed.
// A worker that has seen a newer generation refuses a Restore, which the master hears
// as TaskFailed, too. Anything that is sent over a lost connection, by a dead or an
// old master, or by a task of a generation that is over, may still arrive, much
// later, at whoever is there then.
//
// Tasks crash at any time, also while they are restored. A task whose connection is
// cut goes on for a while as a zombie: it reads, emits, commits and publishes. So do
// some of those that are told to stop or whose master is gone; their successors do
// not wait for them. All others end before their successors are made.
//
// Masters crash. Some live on as zombies beside their successors, with their tasks,
// timers and writes, until they notice that they were fenced or die after a while.
//
// The store compares and swaps its head in one step, and puts objects under names
// not in use; what it acknowledged it keeps. A request may fail before or after it
// was carried out, take long, or be carried out long after it was reported as
// failed. During an outage every request fails.
//
// A task that cannot store what it commits says so (StoreFailed), and sends its next
// report with its connection's other messages: the clock by which checkpoints are
// given up stands still until that is there. In some runs there is nothing but outages
// of the store; they must cost nothing but time.
//
// The target of the sinks fails like the store, outages included. It checks the
// writer's generation in the same step as each write, and keeps the marker of a staged
// transaction in the same step as its output. In some runs nothing is published before
// faults end.
//
// Commit and AckCommit fail, also fatally, and may be slow. Sources delete what is
// below the oldest retained batch. Input pauses at times.
//
// User code fails on some tuples always, on some a few times, on single tuples or
// anywhere in a frame, also in zombies. A master that crashes forgets what it has
// counted. User code that has a tuple when its generation ends fails because of that.
//
// Sessions end in order or are killed. The next one may run sources, stateless bolts
// and sinks by other numbers of tasks, while zombies of the one before go on.
//
// All faults end at a moment; every session must then end within a bounded time.
// Not modelled: damaged or vanishing objects, other changes of the topology between
// sessions, other numbers of tasks for keyed state, and clocks that jump.
type faults struct {
	Until time.Duration
	// OutagesOnly is set where there is nothing but outages of the store.
	OutagesOnly bool

	Loss, Double, Stray, Slow float64 // of a control message or frame
	FrameLoss, FrameDouble    float64
	CommitFail, CommitFatal   float64
	CommitSlow, AckFail       float64
	RequestFail, RequestLost  float64 // of a store or target request: not carried out; carried out, reply lost
	RequestLate               float64 // reported as failed and carried out much later
	Zombie                    float64 // of a task that should end

	// Means of the times between; 0 = never.
	TaskCrash, ConnectionCut, MasterCrash, Request, Sweep time.Duration
	Outage, TargetOutage                                  time.Duration
}

// errInjected is what fails without a reason of the simulation's own.
var errInjected = errors.New("injected fault")

func drawFaults(rng *rand.Rand) faults {
	var f faults
	f.Until = time.Duration(2+rng.IntN(18)) * time.Second
	if rng.IntN(25) == 0 {
		return f
	}
	if rng.IntN(12) == 0 {
		f.OutagesOnly = true
		f.Outage = time.Duration(1000+rng.IntN(4000)) * time.Millisecond
		return f
	}
	rate := func(most float64) float64 {
		if rng.IntN(2) == 0 {
			return 0
		}
		return most * rng.Float64()
	}
	every := func(from, to int) time.Duration {
		if rng.IntN(2) == 0 {
			return 0
		}
		return time.Duration(from+rng.IntN(to-from)) * time.Millisecond
	}
	f.Loss, f.Double, f.Stray, f.Slow = rate(0.3), rate(0.4), rate(1), rate(0.05)
	if rng.IntN(2) == 0 {
		f.FrameLoss = rate(0.006)
	} else {
		f.FrameDouble = rate(0.006)
	}
	f.CommitFail, f.CommitFatal, f.CommitSlow, f.AckFail = rate(0.4), rate(0.01), rate(0.1), rate(0.95)
	if rng.IntN(6) == 0 {
		f.AckFail = 1 // nothing is published before faults end
	}
	f.RequestFail, f.RequestLost, f.RequestLate = rate(0.2), rate(0.2), rate(0.2)
	f.Zombie = rate(1)
	f.TaskCrash, f.ConnectionCut = every(1000, 10000), every(1000, 10000)
	f.MasterCrash, f.Outage = every(2000, 15000), every(3000, 15000)
	f.TargetOutage = every(1000, 8000)
	f.Request, f.Sweep = every(500, 5000), every(300, 3000)
	return f
}

// strikes draws whether a fault of probability p happens now.
func (w *world) strikes(p float64) bool { return w.now < w.faults.Until && w.chance(p) }

// every lets do happen again and again until faults end; a mean of 0 is never.
func (w *world) every(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	w.after(w.around(mean), func() {
		if w.now < w.faults.Until {
			do()
			w.every(mean, do)
		}
	})
}

func (w *world) scheduleFaults() {
	w.every(w.faults.TaskCrash, w.crashTask)
	w.every(w.faults.ConnectionCut, w.cutConnection)
	w.every(w.faults.MasterCrash, func() { w.operator.crashMaster() })
	w.every(w.faults.Outage, func() {
		w.store.outageUntil = w.now + w.around(2*time.Second)
		w.count("outage")
		w.tracef("store: unreachable until %v", w.store.outageUntil)
	})
	w.every(w.faults.TargetOutage, func() {
		w.target.outageUntil = w.now + w.around(6*time.Second)
		w.count("target outage")
		w.tracef("target: unreachable until %v", w.target.outageUntil)
	})
	if w.fleet != nil {
		w.every(w.faults.Request, func() { w.fleet.anyMaster((*master).request) })
		w.every(w.faults.Sweep, func() { w.fleet.anyMaster((*master).sweep) })
		return
	}
	w.every(w.faults.Request, func() { w.operator.tellRegions(checkpoint.CheckpointRequested{}) })
	w.every(w.faults.Sweep, func() { w.operator.sweep() })
}

// hop draws how long a message takes.
func (w *world) hop() time.Duration {
	d := w.around(w.timing.Hop)
	if w.strikes(w.faults.Slow) {
		d += w.around(2 * time.Second)
	}
	return d
}

// late draws how much later a message comes a second time, or to someone else.
func (w *world) late() time.Duration {
	return w.hop() + w.around(w.timing.Interval+w.timing.RestartMax)
}

// linger draws how long a zombie goes on.
func (w *world) linger() time.Duration { return w.around(4 * time.Second) }

// anyTask draws a task that has not ended, or nil.
func (w *world) anyTask() *task {
	var live []*task
	for _, s := range w.shape.slots {
		for _, t := range s.tasks {
			if !t.cut {
				live = append(live, t)
			}
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rng.IntN(len(live))]
}

func (w *world) crashTask() {
	if w.fleet != nil {
		w.fleet.crashTask()
		return
	}
	if t := w.anyTask(); t != nil {
		w.count("task crash")
		t.fail(errors.New("crashed"))
	}
}

// cutConnection takes a task's connection to its master away: the master notices
// soon, the task much later.
func (w *world) cutConnection() {
	t := w.anyTask()
	if t == nil {
		return
	}
	w.count("connection cut")
	w.tracef("%s: connection cut", t)
	t.sayFailed(errors.New("connection lost"))
	t.becomeZombie()
}

// request carries out do in the store or the target, the way the faults have it,
// and then gives its outcome to reply.
func request[T any](w *world, reachable bool, do func() (T, error), reply func(T, error)) {
	if p := w.on; p != nil {
		if w.strikes(w.fleet.faults.Stall) { // it comes to a stop with the request in its hands
			p.pause()
			p.deliver(func() { request(w, reachable, do, reply) })
			return
		}
		w.outside(func() {
			request(w, reachable, do, func(v T, err error) { p.deliver(func() { reply(v, err) }) })
		})
		return
	}
	var none T
	switch {
	case !reachable, w.strikes(w.faults.RequestFail):
		w.after(w.hop()+w.hop(), func() { reply(none, errInjected) })
	case w.strikes(w.faults.RequestLate):
		w.after(w.around(3*time.Second), func() { _, _ = do() })
		w.after(w.hop()+w.hop(), func() { reply(none, errInjected) })
	case w.strikes(w.faults.RequestLost):
		w.after(w.hop(), func() {
			_, _ = do()
			w.after(w.hop(), func() { reply(none, errInjected) })
		})
	default:
		w.after(w.hop(), func() {
			v, err := do()
			w.after(w.hop(), func() { reply(v, err) })
		})
	}
}
