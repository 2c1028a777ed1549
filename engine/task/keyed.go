package task

import (
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// keyed runs a txn.KeyedBolt.
type keyed struct {
	*bolt
	state     *txn.State
	commit    *keyedCommit
	carried   bool // the hash in the tuple is that of the key
	positions map[*tuple.Stream][]int
	batch     txn.KeyedBatch
	whole     txn.KeyedBatchExecutor // if the bolt takes whole frames
	careful   bool                   // tuples are looked at one by one
	settled   uint64                 // the batch that state was last told to be in the store
}

func (k *keyed) execute(f *tuple.Frame) error {
	k.settle()
	pos, ok := k.positions[f.Stream]
	if !ok {
		pos = k.env.Plan.KeyPositions(k.comp, f.Stream)
		k.positions[f.Stream] = pos
	}
	k.batch.Reset(k.state, f, pos, k.carried && f.Keyed())
	if k.careful {
		return k.executeCarefully(f, k.batch.Select)
	}
	if k.whole != nil {
		return k.whole.ExecuteKeyed(&k.batch, k.out)
	}
	k.current = &k.view
	k.view.At(f, 0)
	for r := range f.Len() {
		k.view.Next(f, r)
		if err := k.batch.Select(r); err != nil {
			return err
		}
		if err := k.user.Execute(&k.view, k.out); err != nil {
			return err
		}
	}
	return nil
}

// finish lets the bolt emit what has changed and marks the batch's changes, which are
// copied between what comes next. The batch before is copied by then.
func (k *keyed) finish(n tuple.BatchID) (any, error) {
	k.settle()
	if err := k.copyRest(); err != nil {
		return nil, err
	}
	if cf, ok := k.inst.(txn.ChangeFinisher); ok {
		if err := cf.FinishBatch(n, k.state.Changed(), k.out); err != nil {
			return nil, err
		}
	}
	k.state.Mark(n)
	k.HeldBytes.Store(k.state.Held())
	return nil, nil
}

// settle lets the state know what its store holds by now.
func (k *keyed) settle() {
	if applied := k.commit.applied.Load(); applied != k.settled {
		k.settled = applied
		k.state.Settle(tuple.BatchID(applied))
	}
}

// finishAtOnce does the same without barriers, where nobody waits for the copy.
func (k *keyed) finishAtOnce(n tuple.BatchID) (any, error) {
	if _, err := k.finish(n); err != nil {
		return nil, err
	}
	err := k.copyRest()
	k.state.Settle(0)
	return nil, err
}

// copiesAtOnce is how many changed entries are copied between two frames, or when there
// is nothing else to do: less than a frame costs.
const copiesAtOnce = 128

// copySome copies a part of the marked batch. With the last one the committer gets it.
func (k *keyed) copySome() error {
	marked, err := k.state.Copy(copiesAtOnce)
	if err != nil || marked == nil {
		return err
	}
	if k.com != nil {
		k.com.batchFinished(marked.Batch(), marked)
	}
	return nil
}

func (k *keyed) copyRest() error {
	for k.state.Copying() {
		if err := k.copySome(); err != nil {
			return err
		}
	}
	return nil
}
