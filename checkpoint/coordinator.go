package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/barrier"
	"github.com/isobar-io/isobar/tuple"
)

// Coordinator leads one region through its life: it raises the generation, restores
// the tasks, injects barriers, collects snapshots, moves the head, tells the tasks
// what is committed, and goes back to the last checkpoint when something fails. It
// is not safe for concurrent use.
type Coordinator struct {
	cfg       Config
	tasks     map[TaskID]Task
	reporters []TaskID // in order
	spouts    int

	phase      phase
	generation Generation
	current    *Ref    // the newest committed checkpoint, or nil
	oldest     BatchID // the oldest retained batch
	stop       bool    // asked to stop; remembered across restarts
	outcome    Outcome // with phaseFinishing: how the region is about to end

	target *Target // what to begin from instead of the current checkpoint, or nil

	restarts  int           // since the last commit
	runsSince time.Duration // with phaseRunning
	restartAt time.Duration // with phaseWaiting
	outage    outage
	delayed   map[TaskID]bool // tasks that cannot store what they commit

	// Of one generation.
	ready    map[TaskID]bool
	finished map[TaskID]bool // spout tasks
	schedule *barrier.Schedule
	batches  []*batch // closed, neither committed nor given up, oldest first
	next     BatchID  // the open batch
	ack      ack
	// confirmed are the newest batches that the tasks have acknowledged.
	confirmed map[TaskID]BatchID

	woken   time.Duration // the moment asked for; 0 = none
	actions []Action
}

// phase says where a region is in its life.
type phase int

const (
	phaseNew       phase = iota // not started
	phaseRaising                // waiting for GenerationRaised
	phaseRestoring              // waiting for TaskReady of all tasks
	phaseRunning                // injecting, collecting, committing
	phaseFinishing              // waiting for the last AckCommit to be confirmed
	phaseWaiting                // waiting for the pause before a restart to pass
	phaseOver                   // finished or failed
)

func (p phase) String() string {
	return [...]string{"not started", "raising its generation", "restoring", "running",
		"finishing", "waiting to restart", "over"}[p]
}

// NewCoordinator returns the Coordinator of a region that has not started.
func NewCoordinator(c Config) *Coordinator {
	co := &Coordinator{cfg: c, target: c.From, tasks: make(map[TaskID]Task, len(c.Tasks)), confirmed: map[TaskID]BatchID{}}
	for _, t := range c.Tasks {
		co.tasks[t.ID] = t
		if t.Reports {
			co.reporters = append(co.reporters, t.ID)
		}
		if t.Spout {
			co.spouts++
		}
	}
	slices.Sort(co.reporters)
	return co
}

// Step takes one event and returns what to do, in order. A WakeAt replaces earlier
// ones. After Finish or FailRegion there are no further actions. The result is the
// caller's.
func (c *Coordinator) Step(now time.Duration, ev Event) []Action {
	if c.phase == phaseOver {
		return nil
	}
	c.actions = nil
	g, bound := generationOf(ev)
	if bound && g != c.generation { // invariant I3
		c.note("%s is void: it is of generation %d, the region is in %d", nameOf(ev), g, c.generation)
		return c.actions
	}
	c.take(now, ev)
	c.proceed(now)
	return c.actions
}

func (c *Coordinator) do(a Action) { c.actions = append(c.actions, a) }

func (c *Coordinator) note(format string, args ...any) { c.do(Note{fmt.Sprintf(format, args...)}) }

// in reports whether the region is in a phase, and notes the event if it is not.
func (c *Coordinator) in(p phase, ev Event) bool {
	if c.phase != p {
		c.note("%s is ignored: the region is %s", nameOf(ev), c.phase)
	}
	return c.phase == p
}

func nameOf(ev Event) string { return strings.TrimPrefix(fmt.Sprintf("%T", ev), "checkpoint.") }

func (c *Coordinator) take(now time.Duration, ev Event) {
	switch ev := ev.(type) {
	case Started:
		if c.in(phaseNew, ev) {
			c.raise()
		}
	case GenerationRaised:
		c.generationRaised(now, ev)
	case TaskReady:
		c.taskReady(now, ev)
	case InputChanged:
		if c.phase == phaseRunning {
			c.schedule.InputChanged(ev.After)
		}
	case SnapshotReported:
		c.snapshotReported(now, ev)
	case StoreFailed:
		if c.in(phaseRunning, ev) {
			c.delayed[ev.Task] = true
			c.outage.begin(now)
		}
	case SpoutFinished:
		c.spoutFinished(now, ev)
	case ManifestStored:
		c.manifestStored(now, ev)
	case ManifestFailed:
		c.manifestFailed(now, ev)
	case HeadMoved:
		c.headMoved(now, ev)
	case HeadFailed:
		c.outage.begin(now)
		c.note("the head cannot be moved yet: %v", ev.Err)
	case Fenced:
		c.fail(fmt.Errorf("region %q is fenced: %w", c.cfg.Region, ev.Err))
	case AckConfirmed:
		c.ackConfirmed(ev)
	case TaskFailed:
		c.taskFailed(now, ev)
	case RestoreFailed:
		c.fail(fmt.Errorf("restore region %q: %w", c.cfg.Region, ev.Err)) // invariant I10
	case CheckpointRequested:
		if c.in(phaseRunning, ev) {
			c.schedule.Request(tuple.MarkBarrier)
		}
	case RollbackRequested:
		c.rollbackRequested(now, ev)
	case StopRequested:
		c.stopRequested(now)
	case TimePassed:
		c.woken = 0
	}
}

// proceed does what is due now and asks for the next moment when something will be.
func (c *Coordinator) proceed(now time.Duration) {
	switch c.phase {
	case phaseWaiting:
		if now >= c.restartAt {
			c.raise()
			break
		}
		c.wake(c.restartAt)
	case phaseRunning:
		c.settle(now)
		wake := earliest(c.inject(now), c.batchDue())
		c.repeatAck(now)
		c.wake(earliest(wake, c.ack.repeatAt))
	case phaseFinishing:
		c.repeatAck(now)
		c.wake(c.ack.repeatAt)
	case phaseNew, phaseRaising, phaseRestoring, phaseOver:
	}
}

// wake asks for a moment, unless there is none or it was asked for last.
func (c *Coordinator) wake(at time.Duration) {
	if at != 0 && at != c.woken {
		c.do(WakeAt{at})
	}
	c.woken = at
}

// earliest returns the smaller of two moments; 0 stands for never.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// generationOf returns the generation in which alone an event means something.
func generationOf(ev Event) (g Generation, bound bool) {
	switch ev := ev.(type) {
	case TaskReady:
		return ev.Generation, true
	case InputChanged:
		return ev.Generation, true
	case SnapshotReported:
		return ev.Generation, true
	case StoreFailed:
		return ev.Generation, true
	case SpoutFinished:
		return ev.Generation, true
	case ManifestStored:
		return ev.Generation, true
	case ManifestFailed:
		return ev.Generation, true
	case HeadMoved:
		return ev.Generation, true
	case HeadFailed:
		return ev.Generation, ev.Generation != 0
	case AckConfirmed:
		return ev.Generation, true
	case TaskFailed:
		return ev.Generation, true
	case RestoreFailed:
		return ev.Generation, true
	case Started, GenerationRaised, Fenced, CheckpointRequested, RollbackRequested, StopRequested, TimePassed:
	}
	return 0, false
}
