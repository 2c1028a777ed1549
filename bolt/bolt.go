// Package bolt makes bolts out of functions. The folders below hold bolts that
// write to the outside.
//
// The functions are called by all tasks of the component, each on its own goroutine:
// they must not share anything that changes. A bolt with state is a type of its own:
// see txn.KeyedBolt and txn.StatefulBolt.
package bolt

import (
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Func returns a bolt that calls fn for each tuple, and whose default stream has the
// given fields; with no fields it emits nothing.
func Func(fields tuple.Fields, fn func(t *tuple.Tuple, out *txn.Collector) error) txn.Bolt {
	return &function{fields, fn}
}

// Map returns a bolt that emits what fn returns for each tuple. fn may return the
// same slice each time.
func Map(fields tuple.Fields, fn func(t *tuple.Tuple) ([]tuple.Value, error)) txn.Bolt {
	return Func(fields, func(t *tuple.Tuple, out *txn.Collector) error {
		vals, err := fn(t)
		if err == nil {
			out.Emit(vals...)
		}
		return err
	})
}

// FlatMap returns a bolt that emits whatever fn passes to emit, which is valid
// during the call.
func FlatMap(fields tuple.Fields, fn func(t *tuple.Tuple, emit func(vals ...tuple.Value)) error) txn.Bolt {
	return Func(fields, func(t *tuple.Tuple, out *txn.Collector) error { return fn(t, out.Emit) })
}

// Filter returns a bolt that emits the tuples that keep is true for, unchanged.
// fields are those of its input.
func Filter(fields tuple.Fields, keep func(t *tuple.Tuple) bool) txn.Bolt {
	return Func(fields, func(t *tuple.Tuple, out *txn.Collector) error {
		if keep(t) {
			out.Emit(t.Values()...)
		}
		return nil
	})
}

type function struct {
	fields tuple.Fields
	fn     func(t *tuple.Tuple, out *txn.Collector) error
}

func (f *function) DeclareOutputFields(d *txn.OutputDeclarer) {
	if len(f.fields) > 0 {
		d.Declare(f.fields...)
	}
}

func (f *function) Execute(t *tuple.Tuple, out *txn.Collector) error { return f.fn(t, out) }
