package checkpoint

import (
	"fmt"
	"time"

	"github.com/isobar-io/isobar/barrier"
	"github.com/isobar-io/isobar/tuple"
)

// raise begins a start or a rollback, which are the same. A head move of the old
// generation may still be under way: the Mover carries it out before the raise or
// never, so that GenerationRaised tells for certain what is committed.
func (c *Coordinator) raise() {
	c.phase = phaseRaising
	c.do(RaiseGeneration{To: c.target, Generation: c.generation, Settled: c.settled()})
	c.target = nil
}

// rollbackRequested ends the tasks as a failure does, without being one.
func (c *Coordinator) rollbackRequested(now time.Duration, ev RollbackRequested) {
	if c.phase != phaseWaiting && !c.stopTasks() {
		c.note("the rollback to %s is ignored: the region is %s", ev.To, c.phase)
		return
	}
	c.phase, c.target, c.restartAt = phaseWaiting, &ev.To, now
}

func (c *Coordinator) generationRaised(now time.Duration, ev GenerationRaised) {
	if !c.in(phaseRaising, ev) {
		return
	}
	if ev.Generation <= c.generation {
		c.note("GenerationRaised is void: it is to generation %d, the region is in %d", ev.Generation, c.generation)
		return
	}
	c.phase = phaseRestoring
	c.generation, c.current, c.oldest = ev.Generation, ev.From, ev.Oldest
	c.outage.end(now)
	c.delayed = map[TaskID]bool{}
	c.ready, c.finished = map[TaskID]bool{}, map[TaskID]bool{}
	c.batches, c.next, c.ack, c.confirmed = nil, 1, ack{}, map[TaskID]BatchID{}
	if c.current != nil {
		c.next = c.current.Batch + 1
	}
	c.do(Restore{Generation: c.generation, From: c.current})
}

func (c *Coordinator) taskReady(now time.Duration, ev TaskReady) {
	if !c.in(phaseRestoring, ev) {
		return
	}
	if _, ok := c.tasks[ev.Task]; !ok || c.ready[ev.Task] {
		c.note("task %d is ready already, or not of this region", ev.Task)
		return
	}
	c.ready[ev.Task] = true
	if len(c.ready) < len(c.tasks) {
		return
	}
	c.phase, c.runsSince = phaseRunning, now
	c.schedule = barrier.NewSchedule(barrier.ScheduleConfig{
		Interval: c.cfg.Interval, MaxPending: c.cfg.MaxPending, Next: c.next,
	}, now)
	c.do(StartTasks{Generation: c.generation, Next: c.next, Hold: c.stop})
	switch {
	case c.stop: // with the input held, there is nothing to commit
		c.finishWith(now, tuple.MarkLastBarrier)
	case c.current != nil:
		c.ackCommit(now, false)
	}
}

func (c *Coordinator) spoutFinished(now time.Duration, ev SpoutFinished) {
	if !c.in(phaseRunning, ev) {
		return
	}
	if !c.tasks[ev.Task].Spout || c.finished[ev.Task] {
		c.note("task %d is no spout of this region, or has finished already", ev.Task)
		return
	}
	c.finished[ev.Task] = true
	if len(c.finished) == c.spouts {
		c.closeLast(now, tuple.MarkEnd)
	}
}

func (c *Coordinator) stopRequested(now time.Duration) {
	switch c.phase {
	case phaseFinishing:
		// It ends anyway, unless a failure brings it up once more.
		c.stop = true
		c.note("StopRequested changes nothing: the region is %s", c.phase)
	case phaseRunning:
		c.stop = true
		c.closeLast(now, tuple.MarkLastBarrier)
	default:
		// Tasks that have been restored must publish what is committed before
		// Finish, so the region comes up first.
		c.stop = true
	}
}

// closeLast asks for the last barrier. It would add nothing if the end of all input is
// committed and nothing has happened since; then the committed batch is the last. A
// region that only seems idle may have emitted already: InputChanged is under way.
func (c *Coordinator) closeLast(now time.Duration, kind tuple.MarkKind) {
	ended := c.current != nil && c.current.Ended
	if !c.schedule.Quiet() || !ended {
		c.schedule.Request(kind)
		return
	}
	c.finishWith(now, kind)
}

// finishWith makes the committed batch the last one.
func (c *Coordinator) finishWith(now time.Duration, kind tuple.MarkKind) {
	c.phase = phaseFinishing
	c.outcome = Completed
	if kind == tuple.MarkLastBarrier {
		c.outcome = Stopped
	}
	if c.current == nil {
		c.finish()
		return
	}
	c.ackCommit(now, true)
}

func (c *Coordinator) finish() {
	c.phase = phaseOver
	c.do(Finish{Outcome: c.outcome, Generation: c.generation, Settled: c.settled()})
}

// restartsForgotten is how long a region has to run for its restarts to be counted afresh.
// One that has nothing to commit cannot show in another way that it works, while processes
// and connections come and go.
const restartsForgotten = time.Hour

// taskFailed goes back to the last checkpoint.
func (c *Coordinator) taskFailed(now time.Duration, ev TaskFailed) {
	works := c.phase == phaseRunning && now-c.runsSince >= restartsForgotten
	if !c.stopTasks() {
		c.note("task %d failed again, the region is %s: %v", ev.Task, c.phase, ev.Err)
		return
	}
	c.phase = phaseWaiting
	if ev.Learned || works {
		c.restarts = 0
	}
	c.restarts++
	if c.cfg.MaxRestarts > 0 && c.restarts > c.cfg.MaxRestarts {
		c.fail(fmt.Errorf("region %q failed again after %d restarts without a commit: %w",
			c.cfg.Region, c.cfg.MaxRestarts, ev.Err))
		return
	}
	pause := c.cfg.RestartMin
	for range c.restarts - 1 {
		if pause = 2 * pause; pause >= c.cfg.RestartMax {
			break
		}
	}
	c.restartAt = now + min(pause, c.cfg.RestartMax)
	c.note("task %d failed, restart %d at %v: %v", ev.Task, c.restarts, c.restartAt, ev.Err)
}

// stopTasks ends the tasks, if there are any, and reports whether there were.
func (c *Coordinator) stopTasks() bool {
	switch c.phase {
	case phaseRestoring, phaseRunning, phaseFinishing:
		c.do(StopTasks{c.generation})
		return true
	default:
		return false
	}
}

func (c *Coordinator) fail(err error) {
	c.stopTasks()
	c.phase = phaseOver
	c.do(FailRegion{err})
}
