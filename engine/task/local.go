package task

import (
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Without barriers (transaction.topology: false) every task closes batches of its
// own by the clock, so that bolts which emit at the end of a batch still do, and
// sinks publish what they have at once. Nothing is kept: after a failure the run is
// over.

// tick closes a local batch when one is due.
func (b *bolt) tick() error {
	if b.env.Barriers {
		return nil
	}
	now := b.env.Now()
	if b.nextAt == 0 {
		b.nextAt = now + b.env.BatchDelay
	}
	if now < b.nextAt {
		return nil
	}
	b.nextAt = now + b.env.BatchDelay
	return b.finishLocal(false)
}

func (b *bolt) finishLocal(last bool) error {
	n := b.next
	b.next++
	state, err := b.finish(n)
	if err != nil {
		return fmt.Errorf("finish batch %d: %w", n, err)
	}
	if p, ok := b.inst.(txn.Publisher); ok && b.live != nil {
		if err := p.Publish(b.gen.ctx, n, b.live(), last); err != nil {
			return fmt.Errorf("publish batch %d: %w", n, err)
		}
	}
	if b.stateful == nil {
		return nil
	}
	if _, err := b.stateful.Commit(b.gen.ctx, n, state); err != nil {
		return fmt.Errorf("commit batch %d: %w", n, err)
	}
	if err := b.stateful.AckCommit(b.gen.ctx, n, n); err != nil {
		return fmt.Errorf("acknowledge batch %d: %w", n, err)
	}
	return nil
}

// completeLocal ends the task: the last mark is in on all inputs.
func (b *bolt) completeLocal(kind tuple.MarkKind) error {
	if err := b.inputEnded(kind); err != nil {
		return err
	}
	if err := b.finishLocal(true); err != nil {
		return err
	}
	b.out.Mark(tuple.Mark{Kind: kind, Batch: 1})
	b.count()
	b.env.Post(checkpoint.AckConfirmed{Generation: b.gen.Number, Task: checkpoint.TaskID(b.ID), Last: true})
	return nil
}
