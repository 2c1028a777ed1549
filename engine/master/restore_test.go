package master

import (
	"slices"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// Transactions of sinks are left behind; what a stateful bolt keeps in its handles is not.
func TestOnlyTransactionsAreLeftBehind(t *testing.T) {
	transaction := []byte("\x01\x03run\x04sink\x00\x02\x09data") // of task 0, 2.9
	mf := &checkpoint.Manifest{Tasks: []checkpoint.TaskSnapshot{
		{Component: "sink", Handles: []txn.Handle{{Batch: 8, Generation: 2}, {Batch: 9, Generation: 2, Data: transaction}}},
		{Component: "sum", Handles: []txn.Handle{{Batch: 9, Generation: 2, Data: []byte{1, 0, 0, 0, 0, 0, 0, 0}}}},
		{Component: "copy", Handles: []txn.Handle{{Batch: 10, Generation: 2, Data: slices.Clone(transaction)}}}, // of other numbers than it says
	}}
	if n := leaveBehind(mf); n != 1 {
		t.Errorf("%d transactions are left behind", n)
	}
	for i, want := range []bool{false, true, true} {
		if got := mf.Tasks[i].HoldsTransactions(); got != want {
			t.Errorf("handles are left of %s: %t", mf.Tasks[i].Component, got)
		}
	}
	if len(mf.Tasks[0].Handles) != 2 {
		t.Errorf("%+v: the batches are to stay", mf.Tasks[0])
	}
}

// Of a copied checkpoint the transactions of sinks are left alone; state is neither lost
// nor taken for a transaction in silence.
func TestCopiesAreReshaped(t *testing.T) {
	transaction := []byte("\x01\x03run\x04sink\x00\x02\x09data") // of task 0, 2.9
	state := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	manifest := func(data []byte) *checkpoint.Manifest {
		return &checkpoint.Manifest{RunID: "original", Tasks: []checkpoint.TaskSnapshot{
			{Component: "sink", Handles: []txn.Handle{{Batch: 9, Generation: 2, Data: data}}}}}
	}
	for _, c := range []struct {
		name    string
		data    []byte
		run     string
		start   Start
		left    int
		kept    bool
		refused bool
	}{
		{"transaction", transaction, "mine", Start{}, 1, false, false},
		{"transaction taken over", transaction, "mine", Start{TakeOver: true}, 0, true, false},
		{"transaction of its own", transaction, "original", Start{}, 0, true, false},
		{"state", state, "mine", Start{}, 0, true, true},
		{"state taken over", state, "mine", Start{TakeOver: true}, 0, true, false},
		{"state dropped", state, "mine", Start{Drop: []string{"sink"}}, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mf := manifest(slices.Clone(c.data))
			left, err := c.start.reshape(mf, c.run)
			kept := slices.ContainsFunc(mf.Tasks, checkpoint.TaskSnapshot.HoldsTransactions)
			if left != c.left || kept != c.kept || (err != nil) != c.refused {
				t.Errorf("%d left behind, kept: %t, error: %v", left, kept, err)
			}
		})
	}
}
