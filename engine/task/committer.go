package task

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// committing is a component's side of the commit protocol, called by its committer.
type committing interface {
	// commit makes a batch durable; it is repeated with the same state on error.
	commit(ctx context.Context, n tuple.BatchID, state any) (handle []byte, err error)
	// snapshot completes what the task reports for the batch just committed.
	snapshot(s *checkpoint.TaskSnapshot)
	// acknowledge publishes all batches up to a.Batch.
	acknowledge(ctx context.Context, a protocol.Acknowledge) error
}

// Bounds of the pause between attempts of a failed commit or acknowledgement.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 5 * time.Second
)

// committer is the goroutine beside a task that commits its batches in order, while
// the task goes on with later ones. It alone owns the task's Participant.
type committer struct {
	task   *task
	user   committing
	part   *protocol.Participant
	mail   *link.Mailbox[message]
	states map[tuple.BatchID]finished // and not yet committed
	took   checkpoint.Took            // of the batch that was committed last
	wake   *time.Timer
	ended  chan struct{}
}

type message struct {
	event protocol.Event
	finished
}

// finished is a batch that the task has finished.
type finished struct {
	state  any
	at     time.Duration
	phases phases
}

func newCommitter(t *task, user committing, handles []txn.Handle) *committer {
	c := &committer{
		task: t,
		user: user,
		part: protocol.New(protocol.Config{
			Generation: t.gen.Number,
			Restored:   t.restore.Batch,
			Handles:    handles,
			Ordered:    ordered(t.inst),
			RetryMin:   retryMin,
			RetryMax:   retryMax,
		}),
		mail:   link.NewMailbox[message](),
		states: map[tuple.BatchID]finished{},
		wake:   time.NewTimer(time.Hour),
		ended:  make(chan struct{}),
	}
	go c.run()
	return c
}

func ordered(inst any) bool {
	_, ok := inst.(txn.OrderedCommitter)
	return ok
}

func (c *committer) batchFinished(n tuple.BatchID, state any) {
	c.mail.Put(message{protocol.BatchFinished{Batch: n}, finished{state, c.task.env.Now(), c.task.phases}})
}

func (c *committer) ackReceived(n, oldest tuple.BatchID, last bool) {
	c.mail.Put(message{event: protocol.AckReceived{Generation: c.task.gen.Number, Batch: n, Oldest: oldest, Last: last}})
}

// wait returns when the committer has ended, which it does with its generation. A
// task that fails ends its generation through the topology master.
func (c *committer) wait() { <-c.ended }

func (c *committer) run() {
	defer close(c.ended)
	defer c.wake.Stop()
	defer func() {
		if r := recover(); r != nil {
			c.task.fail(&PanicError{Where: c.task.name() + ": committer", Value: r, Stack: debug.Stack()})
		}
	}()
	for {
		select {
		case <-c.task.gen.ctx.Done():
			return
		case <-c.mail.Signal():
			for _, m := range c.mail.Take() {
				if f, ok := m.event.(protocol.BatchFinished); ok {
					c.states[f.Batch] = m.finished
				}
				c.step(m.event)
			}
		case <-c.wake.C:
			c.step(protocol.TimePassed{})
		}
	}
}

// step feeds an event to the Participant and carries out what it says, including
// what the outcomes lead to. Once the generation is over all that is left to do is to
// give up an instance that failed for good while it ended: nobody may roll it back.
func (c *committer) step(ev protocol.Event) {
	todo := c.part.Step(c.task.env.Now(), ev)
	for len(todo) > 0 {
		a := todo[0]
		todo = todo[1:]
		if _, failed := a.(protocol.Fail); !failed && c.task.gen.over() {
			continue
		}
		if outcome := c.do(a); outcome != nil {
			todo = append(todo, c.part.Step(c.task.env.Now(), outcome)...)
		}
	}
}

func (c *committer) do(a protocol.Action) protocol.Event {
	t := c.task
	id := checkpoint.TaskID(t.ID)
	switch a := a.(type) {
	case protocol.Commit:
		return c.commit(a)
	case protocol.Report:
		s := checkpoint.TaskSnapshot{Component: t.comp.ID, Index: t.Index, Handles: a.Handles, Took: c.took}
		c.user.snapshot(&s)
		t.env.Post(checkpoint.SnapshotReported{Generation: t.gen.Number, Task: id, Batch: a.Batch, Snapshot: s})
	case protocol.Acknowledge:
		t.env.Hook("ack.before")
		if err := c.user.acknowledge(t.gen.ctx, a); err != nil {
			c.complain(&t.ackTrouble, "acknowledge", a.Batch, err)
			return protocol.AckFailed{Batch: a.Batch, Err: fmt.Errorf("acknowledge batch %d: %w", a.Batch, err), Fatal: txn.IsFatal(err)}
		}
		t.ackTrouble.Store(nil)
		t.env.Hook("ack.after")
		return protocol.Acknowledged{Batch: a.Batch}
	case protocol.Confirm:
		t.env.Post(checkpoint.AckConfirmed{Generation: t.gen.Number, Task: id, Batch: a.Batch, Last: a.Last})
	case protocol.WakeAt:
		c.wake.Reset(max(0, a.At-t.env.Now()))
	case protocol.Fail:
		t.fail(fmt.Errorf("%s: %w", t.name(), a.Err))
	case protocol.Ignore:
		t.env.Logger.Debug("ignored", "event", fmt.Sprintf("%T", a.Event), "component", t.comp.ID, "task", t.Index)
	}
	return nil
}

func (c *committer) commit(a protocol.Commit) protocol.Event {
	t := c.task
	t.env.Hook("commit.before")
	f := c.states[a.Batch]
	handle, err := c.user.commit(t.gen.ctx, a.Batch, f.state)
	if err != nil {
		c.complain(&t.commitTrouble, "commit", a.Batch, err)
		return protocol.CommitFailed{Batch: a.Batch, Err: fmt.Errorf("commit batch %d: %w", a.Batch, err), Fatal: txn.IsFatal(err)}
	}
	write := t.env.Now() - f.at
	t.Write.Observe(write, 1)
	c.took = checkpoint.Took{Align: checkpoint.Micros(f.phases.align), Copy: checkpoint.Micros(f.phases.copy), Write: checkpoint.Micros(write)}
	t.commitTrouble.Store(nil)
	delete(c.states, a.Batch)
	t.env.Hook("commit.after")
	return protocol.Committed{Batch: a.Batch, Data: handle}
}

func (c *committer) complain(trouble *atomic.Pointer[string], what string, n tuple.BatchID, err error) {
	if c.task.gen.over() || errors.Is(err, txn.ErrPostponed) {
		return // nothing is wrong, or it is that the generation has ended
	}
	text := fmt.Sprintf("%s: %s batch %d: %v", c.task.name(), what, n, err)
	trouble.Store(&text)
	c.task.env.Logger.Warn(what+" failed, will try again", "component", c.task.comp.ID,
		"task", c.task.Index, "batch", n, "err", err)
}
