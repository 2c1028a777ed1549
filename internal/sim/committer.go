package sim

import (
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// committer is the part of a task that commits and acknowledges while the task goes
// on: the shell of its Participant.
type committer struct {
	t      *task
	core   *protocol.Participant
	alarms alarms
}

func newCommitter(t *task) *committer {
	return &committer{t: t, core: protocol.New(protocol.Config{
		Generation: t.gen,
		Restored:   t.from.batch,
		Handles:    t.handles,
		Ordered:    t.comp.kind == ordered && t.w.is(OrderedCommits),
		RetryMin:   t.w.timing.RetryMin,
		RetryMax:   t.w.timing.RetryMax,
	})}
}

func (c *committer) finished(n batchID) { c.step(protocol.BatchFinished{Batch: n}) }

// acknowledge takes an AckCommit from a master.
func (c *committer) acknowledge(a checkpoint.AckCommit) {
	g := a.Generation
	if !c.t.w.is(GenerationCheck) {
		g = c.t.gen
	}
	c.step(protocol.AckReceived{Generation: g, Batch: a.Batch, Oldest: a.Oldest, Last: a.Last})
}

func (c *committer) step(ev protocol.Event) {
	if c.t.state == ended {
		return
	}
	for _, a := range c.core.Step(c.t.w.clock(), ev) {
		c.do(a)
	}
}

func (c *committer) do(a protocol.Action) {
	t, w := c.t, c.t.w
	switch a := a.(type) {
	case protocol.Commit:
		c.call(w.faults.CommitFail, func(done func([]byte, error)) { t.logic.commit(a.Batch, done) }, func(data []byte, err error) {
			if err != nil {
				c.step(protocol.CommitFailed{Batch: a.Batch, Err: err, Fatal: txn.IsFatal(err)})
				return
			}
			c.step(protocol.Committed{Batch: a.Batch, Data: data})
		})
	case protocol.Report:
		snap := checkpoint.TaskSnapshot{Component: t.comp.name, Index: t.index, Handles: a.Handles}
		if !w.is(HandleLists) {
			snap.Handles = a.Handles[len(a.Handles)-1:]
		}
		t.logic.snapshot(a.Batch, &snap)
		t.tellLossy(checkpoint.SnapshotReported{Generation: t.gen, Task: t.id, Batch: a.Batch, Snapshot: snap})
	case protocol.Acknowledge:
		c.call(w.faults.AckFail, func(done func([]byte, error)) {
			t.logic.acknowledge(a, func(err error) { done(nil, err) })
		}, func(_ []byte, err error) {
			if err != nil {
				c.step(protocol.AckFailed{Batch: a.Batch, Err: err, Fatal: txn.IsFatal(err)})
				return
			}
			c.step(protocol.Acknowledged{Batch: a.Batch})
		})
	case protocol.Confirm:
		t.tellLossy(checkpoint.AckConfirmed{Generation: t.gen, Task: t.id, Batch: a.Batch, Last: a.Last})
	case protocol.WakeAt:
		c.alarms.set(w, a.At, func() { c.step(protocol.TimePassed{}) })
	case protocol.Ignore:
		w.count("ignored by a participant")
	case protocol.Fail:
		t.fail(a.Err)
	}
}

// call calls user code, which may fail by itself, and gives what it answers to
// reply. The answer of a task that has ended is not heard.
func (c *committer) call(fails float64, user func(done func([]byte, error)), reply func([]byte, error)) {
	w := c.t.w
	delay := w.around(w.timing.Hop)
	if w.strikes(w.faults.CommitSlow) {
		delay += w.around(2 * w.timing.SnapshotTimeout)
	}
	w.after(delay, func() {
		switch {
		case c.t.state == ended:
		case w.strikes(w.faults.CommitFatal):
			reply(nil, txn.Fatal(errInjected))
		case w.strikes(fails):
			reply(nil, errInjected)
		default:
			user(func(data []byte, err error) {
				if c.t.state != ended {
					reply(data, err)
				}
			})
		}
	})
}
