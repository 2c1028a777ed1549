package bolttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const groups = 16

// keyed makes the five calls for a txn.KeyedBolt, as the engine does.
type keyed struct {
	txn.KeyedBolt
	d     *driver
	state *txn.State
	store checkpoint.StateStore
	known []txn.StateMeta
	last  bool // the next acknowledgement is the last one of all
}

// keyedHandle is where the state is.
type keyedHandle struct {
	Files  []checkpoint.FileRef
	States []txn.StateMeta
}

func newKeyed(d *driver, user txn.KeyedBolt) *keyed {
	if d.opener == nil {
		d.opener = memstore.NewOpener(memstore.New())
	}
	return &keyed{KeyedBolt: user, d: d}
}

func (k *keyed) InitState(handles []txn.Handle) error {
	var h keyedHandle
	var restored txn.BatchID
	if n := len(handles); n > 0 {
		restored = handles[n-1].Batch
		if err := json.Unmarshal(handles[n-1].Data, &h); err != nil {
			return err
		}
	}
	k.known = h.States
	var err error
	k.store, err = k.d.opener.OpenState(context.Background(), checkpoint.StateConfig{
		Component: "sink", Generation: k.d.generation, Restored: restored, GroupTo: groups, Files: h.Files,
		States: func() []txn.StateMeta { return k.known },
	})
	if err != nil {
		return err
	}
	k.state = txn.NewState(txn.StateConfig{Component: "sink", Groups: groups, To: groups, Known: k.known, Backend: k.store, CacheBytes: 1 << 20})
	if err := k.Open(k.d.context(), k.state); err != nil {
		return err
	}
	if err := k.state.Seal(); err != nil {
		return err
	}
	k.known = k.state.Metas()
	return nil
}

func (k *keyed) Execute(t *tuple.Tuple, out *txn.Collector) error {
	fields := k.d.sink.Key
	if keyer, ok := k.KeyedBolt.(txn.Keyer); ok {
		fields = keyer.KeyFields()
	}
	var key []tuple.Value
	for _, f := range fields {
		key = append(key, t.ByName(f))
	}
	if err := k.state.SetKey(key...); err != nil {
		return err
	}
	return k.KeyedBolt.Execute(t, out)
}

func (k *keyed) FinishBatch(n txn.BatchID, out *txn.Collector) (any, error) {
	if f, ok := k.KeyedBolt.(txn.ChangeFinisher); ok {
		if err := f.FinishBatch(n, k.state.Changed(), out); err != nil {
			return nil, err
		}
	}
	return k.state.Cut(n)
}

func (k *keyed) Commit(ctx context.Context, _ txn.BatchID, state any) ([]byte, error) {
	files, err := k.store.Apply(ctx, state.(*txn.Cut))
	if err != nil {
		return nil, err
	}
	return json.Marshal(keyedHandle{files, k.known})
}

func (k *keyed) Rollback([]txn.Handle) error {
	return errors.New("a keyed bolt is not rolled back, it is made anew")
}

func (k *keyed) AckCommit(ctx context.Context, n, _ txn.BatchID) error {
	p, ok := k.KeyedBolt.(txn.Publisher)
	if !ok {
		return fmt.Errorf("%T is no sink: it is not a txn.Publisher", k.KeyedBolt)
	}
	view, err := k.store.View(n)
	if err != nil {
		return err
	}
	if err := p.Publish(ctx, n, view, k.last); err != nil && (k.last || !errors.Is(err, txn.ErrPostponed)) {
		return err
	}
	k.store.Release(n)
	return nil
}
