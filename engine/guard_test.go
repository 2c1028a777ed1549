package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// hoarder keeps a large value for each line.
type hoarder struct{ v *txn.Value[[]byte] }

func (h *hoarder) Open(_ *txn.Context, s *txn.State) error {
	h.v = txn.NewValue(s, "hoard", txn.BytesCodec())
	return nil
}

func (h *hoarder) Execute(*tuple.Tuple, *txn.Collector) error { return h.v.Set(make([]byte, 100<<10)) }

// State that grows without end fails with an error that names it, and what it had is kept.
func TestStateBeyondItsLimitFails(t *testing.T) {
	store := memstore.New()
	run := func(limit int) error {
		tb := engine.NewTopologyBuilder()
		tb.SetSpout("lines", func() txn.Spout { return newLines(numbered("n", 30)) }, 1)
		tb.SetBolt("hoarder", func() txn.Bolt { return &hoarder{} }, 1).FieldsGrouping("lines", "line")
		_, err := engine.Run(context.WithoutCancel(t.Context()), build(t, tb), engine.WithStore(store, memstore.NewOpener(store)),
			conf(t, map[string]any{"checkpoint.max.state.mb": limit, "topology.restart.max": 1}))
		return err
	}
	err := run(2)
	if err == nil || !strings.Contains(err.Error(), `"hoarder"`) || !strings.Contains(err.Error(), "checkpoint.max.state.mb allows 2") {
		t.Fatalf("error %v", err)
	}
	if err := run(10); err != nil {
		t.Errorf("with more room: %v", err)
	}
}
