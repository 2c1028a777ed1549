package pebblestate

import (
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/isobar-io/isobar/txn"
)

// The name of the merger is in each table. A program that does not know it refuses the
// table, as it must: it would not know what MERGE rows mean.
const (
	mergerName      = "isobar.aggregate"
	mergerNameOlder = "pebble.concatenate" // of tables from before there were MERGE rows
)

var merger = &pebble.Merger{
	Name: mergerName,
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		m := &merging{}
		m.value = append(m.room[:0], value...)
		return m, nil
	},
}

// merging combines the values of one key by txn.MergeValues, whose result does not
// depend on their order. A lone value is the result as it is.
type merging struct {
	value []byte
	room  [16]byte
}

// MergeNewer implements pebble.ValueMerger.
func (m *merging) MergeNewer(value []byte) (err error) {
	m.value, err = txn.MergeValues(m.value, value)
	return err
}

// MergeOlder implements pebble.ValueMerger.
func (m *merging) MergeOlder(value []byte) error { return m.MergeNewer(value) }

// Finish implements pebble.ValueMerger.
func (m *merging) Finish(bool) ([]byte, io.Closer, error) { return m.value, nil, nil }
