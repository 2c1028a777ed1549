package sim

import "github.com/isobar-io/isobar/barrier"

func (t *task) align(a barrier.AlignAction) {
	switch a := a.(type) {
	case barrier.Block:
		t.inputs[a.Input].blocked = true
	case barrier.Unblock:
		for _, i := range a.Inputs {
			t.inputs[i].blocked = false
		}
	case barrier.Complete:
		t.closeBatch(a.Batch, a.Kind)
	case barrier.Ignore:
		t.w.count("void")
	case barrier.Reject:
		t.w.count("rejected")
		t.fail(a.Err)
	}
}
