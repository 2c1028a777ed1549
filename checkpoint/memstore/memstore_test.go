package memstore_test

import (
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/checkpointtest"
	"github.com/isobar-io/isobar/checkpoint/memstore"
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
