package bolt_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/bolt"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// run executes a bolt on tuples of one text and returns what it emitted.
func run(t *testing.T, b txn.Bolt, in ...string) ([]string, error) {
	t.Helper()
	var d txn.OutputDeclarer
	b.(txn.Declarer).DeclareOutputFields(&d)
	streams, errs := d.Streams()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	out := txn.NewTestCollector(streams, func(stream string, vals []tuple.Value) {
		got = append(got, fmt.Sprint(stream, vals))
	})
	for _, s := range in {
		input := &tuple.Stream{Component: "in", ID: tuple.DefaultStream, Fields: tuple.Fields{"text"}}
		if err := b.Execute(tuple.New(input, tuple.String(s)), out); err != nil {
			return got, err
		}
	}
	return got, nil
}

func TestFunctionsEmitWhatTheyReturn(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		bolt txn.Bolt
		want []string
		err  error
	}{
		"map": {
			bolt: bolt.Map(tuple.Fields{"text", "length"}, func(t *tuple.Tuple) ([]tuple.Value, error) {
				if t.Str(0) == "" {
					return nil, refused
				}
				return []tuple.Value{t.Value(0), tuple.Int(len(t.Str(0)))}, nil
			}),
			want: []string{`default["a b" 3]`, `default["c" 1]`}, err: refused,
		},
		"flat map": {
			bolt: bolt.FlatMap(tuple.Fields{"word"}, func(t *tuple.Tuple, emit func(...tuple.Value)) error {
				for w := range strings.FieldsSeq(t.Str(0)) {
					emit(tuple.String(w))
				}
				return nil
			}),
			want: []string{`default["a"]`, `default["b"]`, `default["c"]`},
		},
		"filter": {
			bolt: bolt.Filter(tuple.Fields{"text"}, func(t *tuple.Tuple) bool { return len(t.Str(0)) == 1 }),
			want: []string{`default["c"]`},
		},
		"func without output": {
			bolt: bolt.Func(nil, func(t *tuple.Tuple, _ *txn.Collector) error {
				if t.Str(0) == "c" {
					return refused
				}
				return nil
			}),
			err: refused,
		},
	} {
		got, err := run(t, tc.bolt, "a b", "c", "")
		if !reflect.DeepEqual(got, tc.want) || !errors.Is(err, tc.err) {
			t.Errorf("%s: emitted %q with error %v, want %q with %v", name, got, err, tc.want, tc.err)
		}
	}
}
