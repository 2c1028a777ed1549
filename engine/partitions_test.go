package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// misnamed has a partition whose name is no text: it lists it, or only moves in it.
type misnamed struct {
	*lines
	lists bool
}

func (m *misnamed) Partitions(context.Context) ([]txn.PartitionID, error) {
	if m.lists {
		return []txn.PartitionID{"caf\xe9"}, nil
	}
	return []txn.PartitionID{"0"}, nil
}

func (m *misnamed) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	return []txn.Position{{Partition: "caf\xe9", Data: []byte{1}}}, nil
}

// Case: text that was written badly into a batch's metadata came back as another. A position
// under a name that JSON changes would belong to no partition after a restart.
func TestPartitionWhoseNameIsNoTextIsRefused(t *testing.T) {
	for _, lists := range []bool{true, false} {
		spout := func() txn.Spout { return &misnamed{newLines(numbered("a", 3)), lists} }
		topo := wordCount(t, spout, func() txn.Bolt { return split{} }, &board{})
		_, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"topology.restart.max": 1}))
		if err == nil || !strings.Contains(err.Error(), `partition "caf\xe9" is not UTF-8`) {
			t.Errorf("listed %v: %v", lists, err)
		}
	}
}
