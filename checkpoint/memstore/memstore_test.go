package memstore_test

import (
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/checkpointtest"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

func TestStore(t *testing.T) {
	checkpointtest.RunStore(t, func(*testing.T) func() checkpoint.Store {
		s := memstore.New()
		return func() checkpoint.Store { return s }
	})
}

func TestState(t *testing.T) {
	checkpointtest.RunState(t, func(_ *testing.T, store checkpoint.Store) checkpoint.StateOpener {
		return memstore.NewOpener(store)
	})
}

// Each base leaves behind what it replaces. A delta that no report has named by then would
// never be found again, and fill the memory.
func TestNothingIsStoredThatNoChainNames(t *testing.T) {
	store := memstore.New()
	s, err := memstore.NewOpener(store).OpenState(t.Context(), checkpoint.StateConfig{Component: "c", Generation: 1, GroupTo: 1})
	if err != nil {
		t.Fatal(err)
	}
	named, bases := map[string]bool{}, map[string]bool{}
	for n := range checkpoint.BatchID(300) {
		cut := &txn.Cut{Batch: n + 1, Shrunk: n%7 == 6, Records: []txn.Record{{Key: txn.AppendStateKey(nil, 0, 1, []byte{byte(n % 50)}), Value: []byte("v")}}}
		files, err := s.Apply(t.Context(), cut)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			named[f.Name], bases[f.Name] = true, f.Base
		}
	}
	written := 0
	for o, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !named[o.Name] {
			t.Errorf("no chain has named %s", o.Name)
		}
		if bases[o.Name] {
			written++
		}
	}
	if written < 30 {
		t.Errorf("%d bases were written", written)
	}
}
