package protocol

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// Participant is one task's part in the commit protocol, for one generation of the
// task. It commits batches strictly in order, acknowledges only what the topology
// master says is committed, and lists in each Report every handle that is not yet
// acknowledged. It is not safe for concurrent use.
type Participant struct {
	cfg     Config
	handles []txn.Handle // in batch order: not acknowledged, and the newest

	finished  txn.BatchID // the newest batch to commit
	committed txn.BatchID // the newest batch that is committed and reported
	received  txn.BatchID // the newest batch that the topology master has committed

	call   Action       // the outstanding Commit or Acknowledge, or nil
	ack    *Acknowledge // the next one to make, or nil
	acked  Acknowledge  // the last one that succeeded; Batch 0 = none
	failed bool

	commitRetry, ackRetry retry
	woken                 time.Duration // the moment asked for; 0 = none

	actions []Action
}

// New returns the Participant of a task that was just restored.
func New(c Config) *Participant {
	return &Participant{
		cfg:       c,
		handles:   slices.Clone(c.Handles),
		finished:  c.Restored,
		committed: c.Restored,
		received:  c.Restored,
	}
}

// Step takes one event and returns what to do, in order. A WakeAt replaces earlier
// ones. After a Fail there are no further actions.
func (p *Participant) Step(now time.Duration, ev Event) []Action {
	if p.failed {
		return nil
	}
	p.actions = nil
	if _, ok := ev.(TimePassed); ok {
		p.woken = 0
	}
	if err := p.take(now, ev); err != nil {
		p.failed = true
		return append(p.actions, Fail{err})
	}
	p.proceed(now)
	return p.actions
}

func (p *Participant) do(a Action) { p.actions = append(p.actions, a) }

func (p *Participant) take(now time.Duration, ev Event) error {
	switch ev := ev.(type) {
	case BatchFinished:
		if ev.Batch != p.finished+1 {
			return fmt.Errorf("finish batch %d: expected batch %d", ev.Batch, p.finished+1)
		}
		p.finished = ev.Batch
	case Committed:
		p.batchCommitted(ev)
	case CommitFailed:
		if c, ok := p.call.(Commit); !ok || c.Batch != ev.Batch {
			p.do(Ignore{ev})
			return nil
		}
		if ev.Fatal {
			return fmt.Errorf("commit batch %d: %w", ev.Batch, ev.Err)
		}
		p.call = nil
		p.commitRetry.failed(now, p.cfg)
	case AckReceived:
		return p.ackReceived(ev)
	case Acknowledged:
		p.acknowledged(ev)
	case AckFailed:
		a, ok := p.call.(Acknowledge)
		if !ok || a.Batch != ev.Batch {
			p.do(Ignore{ev})
			return nil
		}
		if ev.Fatal {
			return fmt.Errorf("acknowledge batch %d: %w", ev.Batch, ev.Err)
		}
		p.call = nil
		if p.ack == nil {
			p.ack = &a
		}
		p.ackRetry.failed(now, p.cfg)
	case TimePassed:
	}
	return nil
}

func (p *Participant) batchCommitted(ev Committed) {
	if c, ok := p.call.(Commit); !ok || c.Batch != ev.Batch {
		p.do(Ignore{ev})
		return
	}
	p.call = nil
	p.commitRetry = retry{}
	p.committed = ev.Batch
	p.handles = append(p.handles, txn.Handle{Batch: ev.Batch, Generation: p.cfg.Generation, Data: ev.Data})
	p.dropAcknowledged()
	p.do(Report{Batch: ev.Batch, Handles: slices.Clone(p.handles)}) // invariant I7
}

func (p *Participant) ackReceived(ev AckReceived) error {
	switch {
	case ev.Generation < p.cfg.Generation: // invariant I3
		p.do(Ignore{ev})
		return nil
	case ev.Generation > p.cfg.Generation:
		return fmt.Errorf("acknowledge batch %d: it is of generation %d, the task of %d", ev.Batch, ev.Generation, p.cfg.Generation)
	case ev.Batch > p.committed:
		return fmt.Errorf("acknowledge batch %d: the task has reported only up to batch %d", ev.Batch, p.committed)
	}
	p.received = max(p.received, ev.Batch)
	want := Acknowledge{Batch: ev.Batch, Oldest: ev.Oldest, Last: ev.Last}
	if ev.Last && !p.acked.Last {
		p.ackRetry = retry{} // an orderly stop waits for it
	}
	if covers(p.acked, want) {
		p.do(Confirm{Batch: p.acked.Batch, Last: p.acked.Last})
		return nil
	}
	if call, ok := p.call.(Acknowledge); ok && covers(call, want) {
		return nil
	}
	if p.ack == nil || !covers(*p.ack, want) {
		p.ack = &want
	}
	return nil
}

// covers reports whether acknowledging a does what b asks for. Nothing is asked
// for a batch older than one which is acknowledged.
func covers(a, b Acknowledge) bool {
	return a.Batch > b.Batch || a.Batch == b.Batch && (a.Last || !b.Last)
}

func (p *Participant) acknowledged(ev Acknowledged) {
	call, ok := p.call.(Acknowledge)
	if !ok || call.Batch != ev.Batch {
		p.do(Ignore{ev})
		return
	}
	p.call = nil
	p.ackRetry = retry{}
	p.acked = call
	p.dropAcknowledged()
	p.do(Confirm{Batch: call.Batch, Last: call.Last})
}

// dropAcknowledged forgets the handles that are acknowledged, except the newest.
func (p *Participant) dropAcknowledged() {
	for len(p.handles) > 1 && p.handles[0].Batch <= p.acked.Batch {
		p.handles = p.handles[1:]
	}
}

// proceed makes the next call if none is outstanding: an Acknowledge before a
// Commit. One that waits to be tried again does not hold up the other.
func (p *Participant) proceed(now time.Duration) {
	if p.call != nil {
		return
	}
	commit := p.commitAllowed()
	switch {
	case p.ack != nil && now >= p.ackRetry.at:
		p.call, p.ack = *p.ack, nil
		p.do(p.call)
	case commit && now >= p.commitRetry.at:
		p.call = Commit{Batch: p.committed + 1, Attempt: p.commitRetry.failures + 1}
		p.do(p.call)
	case p.ack != nil && commit:
		p.wake(min(p.ackRetry.at, p.commitRetry.at))
	case p.ack != nil:
		p.wake(p.ackRetry.at)
	case commit:
		p.wake(p.commitRetry.at)
	}
}

func (p *Participant) commitAllowed() bool {
	return p.committed < p.finished && (!p.cfg.Ordered || p.committed <= p.received)
}

// wake asks for a moment, unless it is the one that was asked for last.
func (p *Participant) wake(at time.Duration) {
	if at != p.woken {
		p.woken = at
		p.do(WakeAt{at})
	}
}

// retry counts the failures of a call and says when it may be made again.
type retry struct {
	failures int
	pause    time.Duration
	at       time.Duration
}

func (r *retry) failed(now time.Duration, c Config) {
	r.failures++
	r.pause = min(max(2*r.pause, c.RetryMin), c.RetryMax)
	r.at = now + r.pause
}
