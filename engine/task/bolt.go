package task

import (
	"errors"
	"fmt"
	"time"

	"github.com/isobar-io/isobar/barrier"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// bolt runs a bolt task of any role.
type bolt struct {
	*task
	user     txn.Bolt
	stateful txn.StatefulBolt // if it is one
	execute  func(f *tuple.Frame) error
	finish   func(n tuple.BatchID) (state any, err error)
	live     func() txn.View // the state as it is, for sinks without barriers

	aligner  *barrier.Aligner
	received []uint64 // tuples since the last barrier, by input
	blocked  []bool
	align    alignment
	view     tuple.Tuple

	closed  tuple.BatchID // the last batch that was finished
	changed bool          // something other than input has changed the state since
	ended   bool          // the last batch is finished
	copies  *keyed        // if it has keyed state, whose marked batch may have to be copied
	clock   *timers       // what happens by the clock, if anything does
	ticks   *ticker       // if the bolt gets tick tuples
	time    inTime

	nsPerTuple float64
	next       tuple.BatchID // without barriers: the next batch
	nextAt     time.Duration // and when it is due
}

// loop reads its inputs in turn, a frame each, until the generation ends.
func (b *bolt) loop() error {
	for !b.gen.over() {
		progress := false
		for i, in := range b.inputs {
			if b.blocked[i] {
				continue
			}
			f := in.Receive()
			if f == nil {
				continue
			}
			progress = true
			if err := b.frame(i, in, f); err != nil {
				return err
			}
		}
		if err := b.tick(); err != nil {
			return err
		}
		if b.copies != nil && b.copies.state.Copying() {
			if err := b.copies.copySome(); err != nil {
				return err
			}
			progress = true
		}
		if b.clock != nil {
			fired, err := b.clock.fire()
			if err != nil {
				return err
			}
			progress = progress || fired
		}
		if b.ticks != nil {
			fired, err := b.ticks.fire()
			if err != nil {
				return err
			}
			progress = progress || fired
		}
		switch {
		case !progress:
			b.idle()
		case b.flushDue():
			b.out.Flush()
			b.count()
		}
	}
	return nil
}

// idle flushes and sleeps until an input that is read has something.
func (b *bolt) idle() {
	b.out.Flush()
	b.count()
	b.bell.Arm()
	defer b.bell.Disarm()
	for i, in := range b.inputs {
		if !b.blocked[i] && in.Ready() {
			return
		}
	}
	var due <-chan time.Time
	if wait, ok := b.wait(); ok {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	b.Activity.Enter(measure.Idle)
	defer b.Activity.Enter(measure.Busy)
	select {
	case <-b.bell.C():
	case <-due:
	case <-b.gen.ctx.Done():
	}
}

// wait returns how long to sleep if nothing comes.
func (b *bolt) wait() (d time.Duration, ok bool) {
	if b.clock != nil {
		d, ok = b.clock.wait()
	}
	sooner := func(at time.Duration) {
		if next := max(0, at-b.env.Now()); !ok || next < d {
			d, ok = next, true
		}
	}
	if !b.env.Barriers {
		sooner(b.nextAt)
	}
	if b.ticks != nil && !b.ended {
		sooner(b.ticks.nextAt)
	}
	return d, ok
}

// frame executes the tuples of a frame and then heeds its mark.
func (b *bolt) frame(i int, in *link.Channel, f *tuple.Frame) error {
	if !in.InOrder(f) {
		if err := in.Err(); err != nil {
			return err
		}
		return fmt.Errorf("channel from task %d: frame %d of generation %d is out of order", f.SourceTask, f.Seq, f.Generation)
	}
	if n := f.Len(); n > 0 {
		began := b.env.Now()
		b.executing = true
		if err := b.execute(f); err != nil {
			return err
		}
		b.current, b.executing = nil, false
		b.received[i] += uint64(n)
		took := b.env.Now() - began
		for _, h := range b.env.Hooks {
			h.Executed(b.ctx, f, took)
		}
		b.executed(f.Stream, n, took)
		b.pace(in, took, n)
	}
	mark := f.Mark
	in.Return(f)
	switch mark.Kind {
	case tuple.MarkNone:
		return nil
	case tuple.MarkWatermark, tuple.MarkIdle:
		return b.eventTime(i, mark)
	default:
		return b.mark(i, mark)
	}
}

// queueTime is how much work, at the measured speed, may wait before a task.
const queueTime = time.Second

// pace bounds the work that waits before a slow task by time, so that a barrier
// behind it arrives: it tells the sender to put fewer tuples into a frame.
func (b *bolt) pace(in *link.Channel, took time.Duration, n int) {
	ns := float64(took) / float64(n)
	b.nsPerTuple += (ns - b.nsPerTuple) / 8
	limit := float64(queueTime) / (b.nsPerTuple + 1) / float64(in.Cap()*len(b.inputs))
	in.SetFrameLimit(int(min(max(limit, 1), float64(b.env.FrameMax))))
}

func (b *bolt) executeEach(f *tuple.Frame) error {
	b.current = &b.view
	b.view.At(f, 0)
	for r := range f.Len() {
		b.view.Next(f, r)
		if err := b.user.Execute(&b.view, b.out); err != nil {
			return err
		}
	}
	return nil
}

// mark lets the aligner decide what a barrier means.
func (b *bolt) mark(i int, m tuple.Mark) error {
	received := b.received[i]
	b.received[i] = 0
	b.align.barrier(b.task, i, m.Batch)
	for _, a := range b.aligner.Step(barrier.BarrierSeen{
		Input:      i,
		Generation: b.gen.Number,
		Kind:       m.Kind,
		Batch:      m.Batch,
		Announced:  m.Count,
		Received:   received,
	}) {
		switch a := a.(type) {
		case barrier.Block:
			b.blocked[a.Input] = true
		case barrier.Unblock:
			for _, in := range a.Inputs {
				b.blocked[in] = false
			}
		case barrier.Complete:
			b.align.complete(b.task, a.Batch)
			if err := b.complete(a.Batch, a.Kind); err != nil {
				return err
			}
			b.closed, b.changed, b.ended = a.Batch, false, a.Kind != tuple.MarkBarrier
		case barrier.Reject:
			return a.Err
		case barrier.Ignore:
			b.env.Logger.Debug("barrier of an old generation", "generation", a.Generation)
		}
	}
	return nil
}

// complete finishes a batch that is in on all inputs and forwards its barrier.
func (b *bolt) complete(n tuple.BatchID, kind tuple.MarkKind) error {
	if !b.env.Barriers {
		return b.completeLocal(kind)
	}
	if err := b.inputEnded(kind); err != nil {
		return err
	}
	b.env.Hook("finish.before")
	began := b.env.Now()
	state, err := b.finish(n)
	if err != nil {
		return fmt.Errorf("finish batch %d: %w", n, err)
	}
	b.held(began, b.align.last)
	b.out.Mark(tuple.Mark{Kind: kind, Batch: n})
	b.env.Hook("finish.after")
	for _, h := range b.env.Hooks {
		h.BatchFinished(b.ctx, n)
	}
	b.count()
	if b.com != nil && b.copies == nil {
		b.com.batchFinished(n, state)
	}
	return nil
}

func (b *bolt) inputEnded(kind tuple.MarkKind) error {
	if kind != tuple.MarkEnd {
		return nil
	}
	if b.clock != nil {
		if err := b.clock.fireRest(); err != nil {
			return fmt.Errorf("end of input: %w", err)
		}
	}
	e, ok := b.inst.(txn.InputEnder)
	if !ok {
		return nil
	}
	if err := e.InputEnded(b.out); err != nil {
		return fmt.Errorf("end of input: %w", err)
	}
	return nil
}

var errBarrierAfterEnd = errors.New("a barrier came after the last one")
