package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// plainCommit is the part of a bolt without state: it has seen the barrier.
type plainCommit struct{}

func (plainCommit) commit(context.Context, tuple.BatchID, any) ([]byte, error) { return nil, nil }
func (plainCommit) snapshot(s *checkpoint.TaskSnapshot)                        { s.Handles = nil }
func (plainCommit) acknowledge(context.Context, protocol.Acknowledge) error    { return nil }

// spoutState is what a spout's FinishBatch leaves to its committer.
type spoutState struct {
	moved    []txn.Position
	finished bool
}

// spoutCommit keeps the positions of all partitions a spout task has ever read.
type spoutCommit struct {
	s         *spout
	positions map[txn.PartitionID][]byte
	finished  bool
}

func (c *spoutCommit) commit(_ context.Context, _ tuple.BatchID, state any) ([]byte, error) {
	st := state.(spoutState)
	for _, p := range st.moved {
		if c.positions[p.Partition] = p.Data; p.Data == nil {
			delete(c.positions, p.Partition)
		}
	}
	c.finished = st.finished
	return nil, nil
}

func (c *spoutCommit) snapshot(s *checkpoint.TaskSnapshot) {
	s.Handles = nil
	s.Finished = c.finished
	for _, p := range slices.Sorted(maps.Keys(c.positions)) {
		s.Positions = append(s.Positions, txn.Position{Partition: p, Data: c.positions[p]})
	}
}

func (c *spoutCommit) acknowledge(ctx context.Context, a protocol.Acknowledge) error {
	if l, ok := c.s.inst.(txn.CommitListener); ok {
		return l.AckCommit(ctx, a.Batch, a.Oldest)
	}
	return nil
}

// statefulCommit passes the calls on to a txn.StatefulBolt.
type statefulCommit struct{ user txn.StatefulBolt }

func (c *statefulCommit) commit(ctx context.Context, n tuple.BatchID, state any) ([]byte, error) {
	return c.user.Commit(ctx, n, state)
}

func (c *statefulCommit) snapshot(*checkpoint.TaskSnapshot) {}

func (c *statefulCommit) acknowledge(ctx context.Context, a protocol.Acknowledge) error {
	return c.user.AckCommit(ctx, a.Batch, a.Oldest)
}

// keyedCommit makes the calls for a txn.KeyedBolt.
type keyedCommit struct {
	task      *task
	store     checkpoint.StateStore
	states    []txn.StateMeta
	files     []checkpoint.FileRef
	publisher txn.Publisher
	applied   atomic.Uint64 // newest batch in the store; read by the task
}

func (c *keyedCommit) metas() []txn.StateMeta { return c.states }

func (c *keyedCommit) commit(ctx context.Context, _ tuple.BatchID, state any) ([]byte, error) {
	cut := state.(*txn.Marked).Cut()
	files, err := c.store.Apply(ctx, cut)
	if err != nil {
		c.task.env.Post(checkpoint.StoreFailed{Generation: c.task.gen.Number, Task: checkpoint.TaskID(c.task.ID), Err: err})
		return nil, err
	}
	if err := c.guard(files); err != nil {
		return nil, err
	}
	c.task.stored(c.files, files)
	c.files = files
	c.applied.Store(uint64(cut.Batch))
	return nil, nil
}

// guard refuses state that has outgrown its limit.
func (c *keyedCommit) guard(files []checkpoint.FileRef) error {
	limit := int64(c.task.conf.Int("checkpoint.max.state.mb"))
	if size := totalBytes(files); limit > 0 && size > limit<<20 {
		return txn.Fatal(fmt.Errorf("the state has grown to %d bytes, and checkpoint.max.state.mb allows %d MB: raise it, give states a TTL, or use more tasks", size, limit))
	}
	return nil
}

func (c *keyedCommit) snapshot(s *checkpoint.TaskSnapshot) {
	s.Handles = nil
	s.Files = c.files
	s.States = c.states
}

func (c *keyedCommit) acknowledge(ctx context.Context, a protocol.Acknowledge) error {
	if c.publisher != nil {
		view, err := c.store.View(a.Batch)
		if err != nil {
			return err
		}
		c.task.env.Hook("publish.before")
		if err := c.publisher.Publish(ctx, a.Batch, view, a.Last); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		c.task.env.Hook("publish.after")
	}
	c.store.Release(a.Batch)
	return nil
}
