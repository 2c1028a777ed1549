package checkpoint_test

import (
	"encoding/binary"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// New bases leave out what has expired and what is of states that were dropped.
func TestUnneededRows(t *testing.T) {
	dropped := txn.StateMeta{ID: 2, Name: "old", Kind: "value"}
	dropped.Drop()
	states := []txn.StateMeta{{ID: 1, Name: "n", Kind: "value"}, dropped, {ID: 3, Name: "old", Kind: "value+ttl"}}
	row := func(id uint16) []byte { return txn.AppendStateKey(nil, 5, id, []byte("k")) }
	expires := func(at uint64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, at) }
	c := checkpoint.StateConfig{States: func() []txn.StateMeta { return states }, Now: func() int64 { return 100 }}
	noClock := c
	noClock.Now = nil
	for name, x := range map[string]struct {
		config     checkpoint.StateConfig
		key, value []byte
		want       bool
	}{
		"live":               {c, row(1), expires(1), false},
		"dropped":            {c, row(2), []byte{1}, true},
		"dropped, no clock":  {noClock, row(2), []byte{1}, true},
		"expired":            {c, row(3), expires(100), true},
		"not expired":        {c, row(3), expires(101), false},
		"expired, no clock":  {noClock, row(3), expires(100), false},
		"of unknown states":  {checkpoint.StateConfig{}, row(2), []byte{1}, false},
		"of a state unknown": {c, row(4), []byte{1}, false},
	} {
		if got := x.config.Unneeded()(x.key, x.value); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
	}
}
