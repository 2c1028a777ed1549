package bolt_test

import (
	"fmt"
	"strings"

	"github.com/isobar-io/isobar/bolt"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// printed executes a bolt on texts and prints what it emits.
func printed(b txn.Bolt, texts ...string) {
	var d txn.OutputDeclarer
	b.(txn.Declarer).DeclareOutputFields(&d)
	streams, _ := d.Streams()
	out := txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) { fmt.Println(vals) })
	in := &tuple.Stream{Component: "texts", ID: tuple.DefaultStream, Fields: tuple.Fields{"text"}}
	for _, s := range texts {
		if err := b.Execute(tuple.New(in, tuple.String(s)), out); err != nil {
			fmt.Println(err)
		}
	}
}

func ExampleFunc() {
	printed(bolt.Func(tuple.Fields{"text", "length"}, func(t *tuple.Tuple, out *txn.Collector) error {
		out.Emit2(t.Value(0), tuple.Int(len(t.Str(0))))
		return nil
	}), "a", "bc")
	// Output:
	// ["a" 1]
	// ["bc" 2]
}

func ExampleMap() {
	printed(bolt.Map(tuple.Fields{"upper"}, func(t *tuple.Tuple) ([]tuple.Value, error) {
		return []tuple.Value{tuple.String(strings.ToUpper(t.Str(0)))}, nil
	}), "a", "bc")
	// Output:
	// ["A"]
	// ["BC"]
}

func ExampleFlatMap() {
	printed(bolt.FlatMap(tuple.Fields{"word"}, func(t *tuple.Tuple, emit func(...tuple.Value)) error {
		for w := range strings.FieldsSeq(t.Str(0)) {
			emit(tuple.String(w))
		}
		return nil
	}), "a b", "", "c")
	// Output:
	// ["a"]
	// ["b"]
	// ["c"]
}

func ExampleFilter() {
	printed(bolt.Filter(tuple.Fields{"text"}, func(t *tuple.Tuple) bool { return len(t.Str(0)) > 1 }), "a", "bc")
	// Output: ["bc"]
}
