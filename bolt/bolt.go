// Package bolt makes bolts out of functions. The folders below hold bolts that
// write to the outside.
//
// The functions are called by all tasks of the component, each on its own goroutine:
// they must not share anything that changes. A bolt with state is a type of its own:
// see txn.KeyedBolt and txn.StatefulBolt.
package bolt

import (
	"fmt"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Func returns a bolt that calls fn for each tuple, and whose default stream has the
// given fields; with no fields it emits nothing.
func Func(fields tuple.Fields, fn func(t *tuple.Tuple, out *txn.Collector) error) txn.Bolt {
	return &function{fields: fields, fn: fn}
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
	var last *txn.Collector
	var emit func(...tuple.Value)
	return Func(fields, func(t *tuple.Tuple, out *txn.Collector) error {
		if out != last { // a method value is made anew at each use
			last, emit = out, out.Emit
		}
		return fn(t, emit)
	})
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
	view   tuple.Tuple // of the frame that is being executed
}

func (f *function) DeclareOutputFields(d *txn.OutputDeclarer) {
	if len(f.fields) > 0 {
		d.Declare(f.fields...)
	}
}

func (f *function) Execute(t *tuple.Tuple, out *txn.Collector) error { return f.fn(t, out) }

// ExecuteBatch is Execute for each tuple of the frame. Its errors and panics name the
// tuple, which the engine knows only when it calls Execute.
func (f *function) ExecuteBatch(frame *tuple.Frame, out *txn.Collector) error {
	defer f.blame()
	f.view.At(frame, 0)
	for i := range frame.Len() {
		f.view.Next(frame, i)
		if err := f.fn(&f.view, out); err != nil {
			return fmt.Errorf("tuple %s: %w", &f.view, err)
		}
	}
	return nil
}

func (f *function) blame() {
	switch r := recover().(type) {
	case nil:
	case error:
		panic(fmt.Errorf("tuple %s: %w", &f.view, r))
	default:
		panic(fmt.Errorf("tuple %s: %v", &f.view, r))
	}
}
