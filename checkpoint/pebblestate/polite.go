package pebblestate

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2"
)

// rowsAtOnce is how many rows are written before others get their turn. To write a table
// takes milliseconds, for which the tuples that arrive meanwhile are not to wait: the
// scheduler by itself would let it go on for 10 ms.
const rowsAtOnce = 64

// politeFilter is a filter policy under which the writing of a table lets others go first
// now and then. A compaction offers no other place to do so.
type politeFilter struct{ pebble.FilterPolicy }

func (p politeFilter) NewWriter(t pebble.FilterType) pebble.FilterWriter {
	return &politeWriter{FilterWriter: p.FilterPolicy.NewWriter(t)}
}

type politeWriter struct {
	pebble.FilterWriter
	rows int
}

func (w *politeWriter) AddKey(key []byte) {
	if w.rows++; w.rows%rowsAtOnce == 0 {
		runtime.Gosched()
	}
	w.FilterWriter.AddKey(key)
}
