package checkpoint

import (
	"fmt"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// batch is a closed batch on its way to be committed. Only the oldest one gets
// beyond stageCollecting.
type batch struct {
	id        BatchID
	kind      tuple.MarkKind
	stage     stage
	deadline  time.Duration // by the outage's clock: when collecting is given up
	retryAt   time.Duration // with stageRetrying
	ref       Ref           // with stageMoving
	snapshots map[TaskID]TaskSnapshot
}

// stage says how far a batch is.
type stage int

const (
	stageCollecting stage = iota // waiting for snapshots, or for the batch before
	stageStoring                 // waiting for ManifestStored
	stageRetrying                // waiting to store the manifest again
	stageMoving                  // waiting for HeadMoved
)

// oldestAt returns the oldest batch if it has this number and stage, else nil.
func (c *Coordinator) oldestAt(n BatchID, s stage) *batch {
	if len(c.batches) == 0 || c.batches[0].id != n || c.batches[0].stage != s {
		return nil
	}
	return c.batches[0]
}

// inject asks the schedule what is due, and returns when to ask again.
func (c *Coordinator) inject(now time.Duration) (wakeAt time.Duration) {
	d := c.schedule.Decide(now)
	if d.Resume {
		c.do(Resume{c.generation})
	}
	if in := d.Inject; in.Kind != tuple.MarkNone {
		c.next = in.Batch + 1
		c.batches = append(c.batches, &batch{
			id:        in.Batch,
			kind:      in.Kind,
			deadline:  c.outage.clock(now) + c.cfg.SnapshotTimeout,
			snapshots: make(map[TaskID]TaskSnapshot, len(c.reporters)),
		})
		c.do(InjectBarrier{Generation: c.generation, Batch: in.Batch, Kind: in.Kind, Pause: in.Pause})
	}
	return d.WakeAt
}

func (c *Coordinator) snapshotReported(now time.Duration, ev SnapshotReported) {
	if !c.in(phaseRunning, ev) {
		return
	}
	if c.delayed[ev.Task] {
		delete(c.delayed, ev.Task)
		c.storeAnswers(now)
	}
	if !c.tasks[ev.Task].Reports {
		c.note("task %d reported batch %d, but is not asked to report", ev.Task, ev.Batch)
		return
	}
	if ev.Batch >= c.next {
		c.taskFailed(now, TaskFailed{Generation: ev.Generation, Task: ev.Task,
			Err: fmt.Errorf("it reported batch %d, but batch %d is still open", ev.Batch, c.next)})
		return
	}
	for _, b := range c.batches {
		if b.id != ev.Batch {
			continue
		}
		if _, repeated := b.snapshots[ev.Task]; repeated {
			break
		}
		b.snapshots[ev.Task] = ev.Snapshot
		return
	}
	c.note("task %d reported batch %d again, or after it was given up", ev.Task, ev.Batch)
}

// settle takes the oldest batches on: complete ones to the store, one at a time,
// late ones out.
func (c *Coordinator) settle(now time.Duration) {
	for len(c.batches) > 0 {
		b := c.batches[0]
		switch {
		case b.stage == stageCollecting && len(b.snapshots) == len(c.reporters):
			c.storeManifest(b)
			return
		case b.stage == stageCollecting && c.cfg.SnapshotTimeout > 0 && c.outage.clock(now) >= b.deadline:
			c.giveUp(b)
		case b.stage == stageRetrying && now >= b.retryAt:
			c.storeManifest(b)
			return
		default:
			return
		}
	}
}

func (c *Coordinator) storeManifest(b *batch) {
	b.stage = stageStoring
	tasks := make([]TaskSnapshot, len(c.reporters))
	for i, t := range c.reporters {
		tasks[i] = b.snapshots[t]
	}
	c.do(StoreManifest{Generation: c.generation, Batch: b.id, Ended: b.kind == tuple.MarkEnd, Tasks: tasks})
}

// giveUp takes the oldest batch out. Snapshots are cumulative: the next checkpoint
// covers what this one would have held.
func (c *Coordinator) giveUp(b *batch) {
	var late []TaskID
	for _, t := range c.reporters {
		if _, ok := b.snapshots[t]; !ok {
			late = append(late, t)
		}
	}
	c.batches = c.batches[1:]
	c.schedule.GaveUp(b.id)
	c.do(GiveUp{Batch: b.id, Late: late})
}

func (c *Coordinator) manifestStored(now time.Duration, ev ManifestStored) {
	c.storeAnswers(now)
	if !c.in(phaseRunning, ev) {
		return
	}
	b := c.oldestAt(ev.Ref.Batch, stageStoring)
	if b == nil {
		c.note("the manifest of batch %d was stored, but not asked for", ev.Ref.Batch)
		return
	}
	b.stage = stageMoving
	b.ref = ev.Ref
	b.ref.Ended = b.kind == tuple.MarkEnd
	c.do(MoveHead{Generation: c.generation, Ref: b.ref, Settled: c.settled()})
}

func (c *Coordinator) manifestFailed(now time.Duration, ev ManifestFailed) {
	c.outage.begin(now)
	c.note("the manifest of batch %d could not be stored: %v", ev.Batch, ev.Err)
	if b := c.oldestAt(ev.Batch, stageStoring); b != nil {
		b.stage = stageRetrying
		b.retryAt = now + c.cfg.StoreRetry
	}
}

// headMoved commits the oldest batch: invariants I1 and I2. If the region has
// failed meanwhile, the batch counts as progress, and GenerationRaised will name it.
func (c *Coordinator) headMoved(now time.Duration, ev HeadMoved) {
	c.storeAnswers(now)
	b := c.oldestAt(ev.Batch, stageMoving)
	if b == nil {
		c.note("the head was moved to batch %d, but not asked for", ev.Batch)
		return
	}
	c.restarts = 0
	if !c.in(phaseRunning, ev) {
		return
	}
	c.batches = c.batches[1:]
	c.schedule.Committed(b.id)
	c.current, c.oldest = &b.ref, ev.Oldest
	if b.kind == tuple.MarkBarrier {
		c.ackCommit(now, false)
	} else {
		c.finishWith(now, b.kind)
	}
}

// storeAnswers ends the outage, unless a task still waits for the store.
func (c *Coordinator) storeAnswers(now time.Duration) {
	if len(c.delayed) == 0 {
		c.outage.end(now)
	}
}

// batchDue returns when the oldest batch needs attention, or 0.
func (c *Coordinator) batchDue() time.Duration {
	if len(c.batches) == 0 {
		return 0
	}
	switch b := c.batches[0]; {
	case b.stage == stageRetrying:
		return b.retryAt
	case b.stage == stageCollecting && c.cfg.SnapshotTimeout > 0 && !c.outage.on:
		return b.deadline + c.outage.lost
	}
	return 0
}

// outage keeps a clock that stands still while the store is known to be
// unreachable.
type outage struct {
	on    bool
	since time.Duration
	lost  time.Duration // how far the clock is behind, without the present outage
}

func (o *outage) begin(now time.Duration) {
	if !o.on {
		o.on, o.since = true, now
	}
}

func (o *outage) end(now time.Duration) {
	if o.on {
		o.on = false
		o.lost += now - o.since
	}
}

func (o *outage) clock(now time.Duration) time.Duration {
	if o.on {
		now = o.since
	}
	return now - o.lost
}
