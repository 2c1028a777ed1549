package task

import (
	"slices"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// All tasks of a component count, and none may have the rows of a state taken for those of
// another one.
func TestStatesOfTasks(t *testing.T) {
	meta := func(id uint16, name string, version uint8) txn.StateMeta {
		return txn.StateMeta{ID: id, Name: name, Kind: "value", Codec: "int64", Version: version}
	}
	for name, c := range map[string]struct {
		tasks [][]txn.StateMeta
		want  []txn.StateMeta // nil: refused
	}{
		"none":         {nil, []txn.StateMeta{}},
		"alike":        {[][]txn.StateMeta{{meta(1, "a", 1)}, {meta(1, "a", 1)}}, []txn.StateMeta{meta(1, "a", 1)}},
		"some":         {[][]txn.StateMeta{{meta(2, "b", 1)}, {meta(1, "a", 1)}}, []txn.StateMeta{meta(1, "a", 1), meta(2, "b", 1)}},
		"newer codec":  {[][]txn.StateMeta{{meta(1, "a", 1)}, {meta(1, "a", 2)}, {meta(1, "a", 1)}}, []txn.StateMeta{meta(1, "a", 2)}},
		"one id":       {[][]txn.StateMeta{{meta(1, "a", 1)}, {meta(1, "b", 1)}}, nil},
		"one name":     {[][]txn.StateMeta{{meta(1, "a", 1)}, {meta(2, "a", 1)}}, nil},
		"one name too": {[][]txn.StateMeta{{meta(1, "x", 1), meta(2, "a", 1)}, {meta(1, "x", 1), meta(3, "a", 1)}}, nil},
	} {
		var snaps []checkpoint.TaskSnapshot
		for i, states := range c.tasks {
			snaps = append(snaps, checkpoint.TaskSnapshot{Index: i, States: states})
		}
		got, err := statesOf(snaps)
		if (err != nil) != (c.want == nil) || err != nil && !txn.IsFatal(err) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}
