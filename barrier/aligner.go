package barrier

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/tuple"
)

// AlignerConfig describes the inputs of a task.
type AlignerConfig struct {
	Generation tuple.Generation
	Inputs     int           // how many channels; they are numbered from 0
	Next       tuple.BatchID // the first batch to expect on each of them
	// ExactlyOnce blocks an input that has brought barrier n until n is in on all.
	// Without it the same barriers complete the same batches, and nothing is
	// blocked: tuples of later batches may then be part of an earlier snapshot.
	ExactlyOnce bool
}

// Aligner decides when a batch is in on all inputs of a task. It is not safe for
// concurrent use.
type Aligner struct {
	cfg  AlignerConfig
	next tuple.BatchID   // the oldest batch that is not complete
	seen []tuple.BatchID // per input: the batch of its last barrier
	open []openBatch     // next, next+1, …: those that some input has passed

	actions  []AlignAction
	unblocks []int
}

// openBatch is a batch that is in on some inputs and not yet on all.
type openBatch struct {
	kind   tuple.MarkKind
	inputs int
}

// NewAligner returns an Aligner that has seen no barrier.
func NewAligner(c AlignerConfig) *Aligner {
	a := &Aligner{cfg: c, next: c.Next, seen: make([]tuple.BatchID, c.Inputs)}
	for i := range a.seen {
		a.seen[i] = c.Next - 1
	}
	return a
}

// Step takes one event and returns what to do, in order. The result, and the slice
// in its Unblock, are valid until the next Step. After a Reject the region fails,
// and the Aligner is of no further use.
func (a *Aligner) Step(ev AlignEvent) []AlignAction {
	a.actions = a.actions[:0]
	switch ev := ev.(type) {
	case BarrierSeen:
		if ev.Generation < a.cfg.Generation { // invariant I3
			return append(a.actions, Ignore{ev.Generation})
		}
		if err := a.check(ev); err != nil {
			return append(a.actions, Reject{fmt.Errorf("align batch %d on input %d: %w", ev.Batch, ev.Input, err)})
		}
		a.pass(ev)
	}
	return a.actions
}

func (a *Aligner) check(ev BarrierSeen) error {
	if ev.Generation > a.cfg.Generation {
		return fmt.Errorf("the barrier is of generation %d, the task of %d", ev.Generation, a.cfg.Generation)
	}
	if ev.Input < 0 || ev.Input >= len(a.seen) {
		return fmt.Errorf("the task has only %d inputs", len(a.seen))
	}
	switch ev.Kind {
	case tuple.MarkBarrier, tuple.MarkLastBarrier, tuple.MarkEnd:
	default:
		return fmt.Errorf("a mark of kind %d is not a barrier", ev.Kind)
	}
	last := a.seen[ev.Input]
	switch {
	case ev.Batch != last+1:
		return fmt.Errorf("expected the barrier of batch %d", last+1)
	case a.cfg.ExactlyOnce && last == a.next: // invariant I4
		return fmt.Errorf("the input was read while it was blocked in batch %d", last)
	case ev.Announced != ev.Received: // invariant I5
		return fmt.Errorf("the sender announced %d tuples, %d were received", ev.Announced, ev.Received)
	}
	if i := int(ev.Batch - a.next); i < len(a.open) && a.open[i].kind != ev.Kind {
		return errors.New("its barriers are not of the same kind on all inputs")
	}
	return nil
}

// pass moves an input beyond its barrier. Batches cannot complete out of order,
// because every input passes them in order.
func (a *Aligner) pass(ev BarrierSeen) {
	a.seen[ev.Input] = ev.Batch
	i := int(ev.Batch - a.next)
	if i == len(a.open) {
		a.open = append(a.open, openBatch{kind: ev.Kind})
	}
	a.open[i].inputs++
	if a.open[i].inputs < len(a.seen) {
		if a.cfg.ExactlyOnce {
			a.actions = append(a.actions, Block{ev.Input})
		}
		return
	}
	a.open = append(a.open[:0], a.open[1:]...)
	a.next++
	a.actions = append(a.actions, Complete{Batch: ev.Batch, Kind: ev.Kind})
	if a.cfg.ExactlyOnce && len(a.seen) > 1 {
		a.unblocks = a.unblocks[:0]
		for in := range a.seen {
			if in != ev.Input {
				a.unblocks = append(a.unblocks, in)
			}
		}
		a.actions = append(a.actions, Unblock{a.unblocks})
	}
}
