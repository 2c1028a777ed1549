package task

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// statesOf returns the states that the tasks of a component have had, in order of their
// ids. Tasks whose ids stand for different states cannot be restored by each other.
func statesOf(snaps []checkpoint.TaskSnapshot) ([]txn.StateMeta, error) {
	byID, ids := map[uint16]txn.StateMeta{}, map[string]uint16{}
	for _, s := range snaps {
		for _, m := range s.States {
			other, ok := byID[m.ID]
			id, named := ids[m.Name]
			if ok && other.Name != m.Name || named && id != m.ID {
				return nil, txn.Fatal(fmt.Errorf("the tasks of the checkpoint disagree about state %q: all tasks of a component must register the same states, in the same order", m.Name))
			}
			if !ok || other.Version < m.Version {
				byID[m.ID], ids[m.Name] = m, m.ID
			}
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b txn.StateMeta) int { return cmp.Compare(a.ID, b.ID) }), nil
}

// misses refuses a bolt that would go on without some of its state.
func (t *task) misses(state *txn.State) error {
	names, err := state.Missed()
	if err != nil || len(names) == 0 {
		return err
	}
	return txn.Fatal(fmt.Errorf("the checkpoint holds state that is not registered in Open any more: %q: register it, tell what it is called now (--map %[2]s/OLD=%[2]s/NEW), or leave it behind (--drop %[2]s/NAME)",
		names, t.comp.ID))
}
