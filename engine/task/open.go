package task

import (
	"fmt"

	"github.com/isobar-io/isobar/barrier"
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// open makes the instance, restores it, and sets the task's loop.
func (t *task) open() error {
	t.env.Hook("restore.before")
	var commit committing
	var handles []txn.Handle
	switch t.comp.Role {
	case plan.Spout:
		s, err := openSpout(t)
		if err != nil {
			return err
		}
		t.loop, commit = s.loop, &spoutCommit{s: s, positions: s.positions}
	case plan.Keyed:
		b, c, err := openKeyed(t)
		if err != nil {
			return err
		}
		t.loop, commit = b.loop, c
	case plan.Stateful:
		b, h, err := openStateful(t)
		if err != nil {
			return err
		}
		handles = h
		t.loop, commit = b.loop, &statefulCommit{b.stateful}
	case plan.Plain:
		b, err := openPlain(t)
		if err != nil {
			return err
		}
		t.loop, commit = b.loop, plainCommit{}
	}
	if t.env.Barriers && reports(t.env.Plan, t.comp) {
		t.com = newCommitter(t, commit, handles)
	}
	t.env.Hook("restore.after")
	return nil
}

// own returns the snapshots of the task's component.
func (t *task) snapshots() []checkpoint.TaskSnapshot { return t.restore.Tasks[t.comp.ID] }

func (t *task) callOpen() error {
	if o, ok := t.inst.(txn.Opener); ok {
		return o.Open(t.ctx)
	}
	return nil
}

func newBolt(t *task) *bolt {
	return &bolt{
		task:     t,
		user:     t.inst.(txn.Bolt),
		received: make([]uint64, len(t.inputs)),
		blocked:  make([]bool, len(t.inputs)),
		next:     t.restore.Batch + 1,
		aligner: barrier.NewAligner(barrier.AlignerConfig{
			Generation:  t.gen.Number,
			Inputs:      len(t.inputs),
			Next:        t.restore.Batch + 1,
			ExactlyOnce: t.env.ExactlyOnce,
		}),
	}
}

func openPlain(t *task) (*bolt, error) {
	t.inst = t.env.Factory(t.comp.ID)
	b := newBolt(t)
	b.finish = func(tuple.BatchID) (any, error) { return nil, nil }
	b.execute = b.executeEach
	if be, ok := t.inst.(txn.BatchExecutor); ok {
		b.execute = func(f *tuple.Frame) error { return be.ExecuteBatch(f, t.out) }
	}
	return b, t.callOpen()
}

func openStateful(t *task) (*bolt, []txn.Handle, error) {
	var handles []txn.Handle
	snaps := t.snapshots()
	if len(snaps) > 0 && len(snaps) != t.comp.Tasks {
		return nil, nil, fmt.Errorf("the checkpoint holds %d tasks and now there are %d: the state of a stateful bolt belongs to its task, run it with %d",
			len(snaps), t.comp.Tasks, len(snaps))
	}
	for _, s := range snaps {
		if s.Index == t.Index {
			handles = s.Handles
		}
	}
	kept := t.Slot.kept
	t.Slot.kept = nil
	t.inst = kept
	if kept == nil {
		t.inst = t.env.Factory(t.comp.ID)
	}
	user := t.inst.(txn.StatefulBolt)
	b := newBolt(t)
	b.stateful = user
	b.execute = b.executeEach
	b.finish = func(n tuple.BatchID) (any, error) { return user.FinishBatch(n, t.out) }
	var err error
	if kept != nil {
		err = user.Rollback(handles)
	} else if err = t.callOpen(); err == nil {
		err = user.InitState(handles)
	}
	if err == nil {
		t.Slot.kept = t.inst
	}
	return b, handles, err
}

func openKeyed(t *task) (*bolt, *keyedCommit, error) {
	t.inst = t.env.Factory(t.comp.ID)
	user := t.inst.(txn.KeyedBolt)
	b := newBolt(t)
	from, to := tuple.GroupRange(t.Index, t.env.Plan.KeyGroups, t.comp.Tasks)
	var known []txn.StateMeta
	var files []checkpoint.FileRef
	for _, s := range t.snapshots() {
		if len(s.States) > len(known) {
			known = s.States
		}
		for _, f := range s.Files {
			if f.GroupFrom < to && f.GroupTo > from {
				files = append(files, f)
			}
		}
	}
	c := &keyedCommit{task: t}
	var backend txn.Backend = noBackend{}
	if t.env.Barriers {
		store, err := t.env.State.OpenState(t.gen.ctx, checkpoint.StateConfig{
			Component:  t.comp.ID,
			TaskIndex:  t.Index,
			TaskID:     checkpoint.TaskID(t.ID),
			Generation: t.gen.Number,
			Restored:   t.restore.Batch,
			GroupFrom:  from,
			GroupTo:    to,
			Files:      files,
			States:     c.metas,
			Hook:       t.env.Hook,
		})
		if err != nil {
			return nil, nil, err
		}
		c.store, backend = store, store
		t.closers = append(t.closers, store.Close)
	}
	state := txn.NewState(txn.StateConfig{
		Component:  t.comp.ID,
		Groups:     t.env.Plan.KeyGroups,
		From:       from,
		To:         to,
		Known:      known,
		Backend:    backend,
		CacheBytes: t.env.CacheBytes,
	})
	if err := user.Open(t.ctx, state); err != nil {
		return nil, nil, err
	}
	if err := state.Seal(); err != nil {
		return nil, nil, err
	}
	c.states = state.Metas()
	c.publisher, _ = t.inst.(txn.Publisher)
	k := &keyed{bolt: b, state: state, commit: c, carried: t.comp.KeyFields == nil, positions: map[*tuple.Stream][]int{}}
	k.whole, _ = t.inst.(txn.KeyedBatchExecutor)
	b.execute, b.finish, b.live = k.execute, k.finish, state.Live
	return b, c, nil
}

// noBackend lies under the state of topologies without checkpoints.
type noBackend struct{}

func (noBackend) Get([]byte) ([]byte, bool, error) { return nil, false, nil }
func (noBackend) Empty() bool                      { return true }
