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
