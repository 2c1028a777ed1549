package task

import (
	"errors"
	"fmt"
	"time"

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

// snapshots returns the snapshots of the task's component.
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
		align:    newAlignment(t),
		next:     t.restore.Batch + 1,
		closed:   t.restore.Batch,
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
	b.beCareful()
	b.openTicks(nil)
	return b, t.callOpen()
}

func openStateful(t *task) (*bolt, []txn.Handle, error) {
	kept := t.Slot.kept
	t.Slot.kept = nil
	t.inst = kept
	if kept == nil {
		t.inst = t.env.Factory(t.comp.ID)
	} else {
		// Its goroutines have ended (invariant I9), so nobody else looks at its Context.
		*t.Slot.keptCtx = *t.ctx
		t.ctx = t.Slot.keptCtx
	}
	user, _ := txn.AsStateful(t.inst, t.ctx)
	handles, err := t.handles(user)
	if err != nil {
		return nil, nil, err
	}
	b := newBolt(t)
	b.stateful = user
	b.execute = b.executeEach
	b.finish = func(n tuple.BatchID) (any, error) { return user.FinishBatch(n, t.out) }
	b.beCareful()
	b.openTicks(nil)
	if kept != nil {
		err = user.Rollback(handles)
	} else if err = t.callOpen(); err == nil {
		err = user.InitState(handles)
	}
	if err == nil {
		t.Slot.kept, t.Slot.keptCtx = t.inst, t.ctx
	}
	return b, handles, err
}

// handles returns the restored handles of a stateful task, also if there were more or
// fewer tasks before.
func (t *task) handles(user txn.StatefulBolt) ([]txn.Handle, error) {
	snaps := t.snapshots()
	old := make([][]txn.Handle, len(snaps))
	for _, s := range snaps {
		if s.Index >= len(old) {
			return nil, fmt.Errorf("the checkpoint holds %d tasks and one has the index %d", len(old), s.Index)
		}
		old[s.Index] = s.Handles
	}
	switch r, ok := user.(txn.Rescaler); {
	case len(old) == 0:
		return nil, nil
	case len(old) == t.comp.Tasks:
		return old[t.Index], nil
	case ok:
		return r.Rescale(old, t.Index, t.comp.Tasks)
	}
	return nil, txn.Fatal(fmt.Errorf("the checkpoint holds %d tasks and now there are %d: the state of a stateful bolt belongs to its task, so run it with %d, or give it a Rescale method",
		len(old), t.comp.Tasks, len(old)))
}

func openKeyed(t *task) (*bolt, *keyedCommit, error) {
	t.inst = t.env.Factory(t.comp.ID)
	user := t.inst.(txn.KeyedBolt)
	b := newBolt(t)
	from, to := tuple.GroupRange(t.Index, t.env.Plan.KeyGroups, t.comp.Tasks)
	known, err := statesOf(t.snapshots())
	if err != nil {
		return nil, nil, err
	}
	var files []checkpoint.FileRef
	for _, s := range t.snapshots() {
		for _, f := range s.Files {
			if f.GroupFrom < to && f.GroupTo > from {
				files = append(files, f)
			}
		}
	}
	c := &keyedCommit{task: t, files: files}
	t.StateBytes.Store(totalBytes(files))
	var backend txn.Backend = noBackend{}
	if t.env.Barriers {
		store, err := t.openStore(from, to, c)
		if err != nil {
			return nil, nil, err
		}
		c.store, backend = store, store
	}
	state := txn.NewState(txn.StateConfig{
		Component:  t.comp.ID,
		Groups:     t.env.Plan.KeyGroups,
		From:       from,
		To:         to,
		Known:      known,
		Backend:    backend,
		CacheBytes: int64(t.conf.Int("topology.state.cache.mb")) << 20,
		Volatile:   !t.env.Barriers,
		Now:        t.env.Processing.UnixMilli,
	})
	if err := user.Open(t.ctx, state); err != nil {
		return nil, nil, err
	}
	if err := state.Seal(); err != nil {
		return nil, nil, txn.Fatal(err)
	}
	if err := t.misses(state); err != nil {
		return nil, nil, err
	}
	c.states = state.Metas()
	c.publisher, _ = t.inst.(txn.Publisher)
	k := &keyed{bolt: b, state: state, commit: c, carried: t.comp.KeyFields == nil, positions: map[*tuple.Stream][]int{}}
	k.whole, _ = t.inst.(txn.KeyedBatchExecutor)
	k.careful = t.mustBeCareful()
	k.openTicks(state)
	b.execute, b.finish, b.live = k.execute, k.finishAtOnce, state.Live
	if t.env.Barriers {
		b.finish, b.copies = k.finish, k
	}
	return b, c, k.openTimers()
}

// openStore opens the local store of a task that owns the key groups [from, to).
func (t *task) openStore(from, to int, c *keyedCommit) (checkpoint.StateStore, error) {
	store, err := t.openState(checkpoint.StateConfig{
		Component:  t.comp.ID,
		TaskIndex:  t.Index,
		TaskID:     checkpoint.TaskID(t.ID),
		Generation: t.gen.Number,
		Restored:   t.restore.Batch,
		GroupFrom:  from,
		GroupTo:    to,
		Files:      c.files,
		States:     c.metas,
		Now:        t.env.Processing.UnixMilli,
		Hook:       t.env.Hook,
	})
	if err != nil {
		return nil, err
	}
	t.closers = append(t.closers, store.Close)
	if m, ok := store.(checkpoint.StateMeter); ok {
		t.Stats.store.Store(&m)
	}
	return store, nil
}

// openState opens the state, waiting for a store that does not answer: an outage is no
// failure of the task, and does not count as one.
func (t *task) openState(c checkpoint.StateConfig) (checkpoint.StateStore, error) {
	told := false
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		store, err := t.env.State.OpenState(t.gen.ctx, c)
		if !errors.Is(err, checkpoint.ErrUnread) || t.gen.ctx.Err() != nil {
			return store, err
		}
		t.env.Logger.Warn("cannot restore the state, will try again", "component", t.comp.ID, "task", t.Index, "err", err)
		if !told {
			told = true
			t.env.Reported(t.comp.ID, t.Index, err)
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-t.gen.ctx.Done():
			again.Stop()
		}
	}
}

// noBackend lies under the state of topologies without checkpoints.
type noBackend struct{}

func (noBackend) Get([]byte) ([]byte, txn.BatchID, error) { return nil, 0, nil }
func (noBackend) Empty() bool                             { return true }

func (noBackend) Range(_, _ []byte, _ func(_, _ []byte) error) error { return nil }
