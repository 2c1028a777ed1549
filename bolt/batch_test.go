package bolt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/bolt"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

var texts = &tuple.Stream{Component: "in", ID: tuple.DefaultStream, Fields: tuple.Fields{"text"}}

func frameOf(words ...string) *tuple.Frame {
	var f tuple.Frame
	f.Begin(texts, false)
	for _, w := range words {
		f.Grow(1 << 20)
		f.Append1(tuple.String(w), 0)
	}
	return &f
}

// kinds are the bolts that are made of functions, over one text field.
var kinds = map[string]func() txn.Bolt{
	"map": func() txn.Bolt {
		vals := make([]tuple.Value, 2)
		return bolt.Map(tuple.Fields{"text", "length"}, func(t *tuple.Tuple) ([]tuple.Value, error) {
			s, _ := t.Value(0).Text()
			vals[0], vals[1] = t.Value(0), tuple.Int(len(s))
			return vals, nil
		})
	},
	"flat map": func() txn.Bolt {
		return bolt.FlatMap(tuple.Fields{"text"}, func(t *tuple.Tuple, emit func(...tuple.Value)) error {
			emit(t.Value(0))
			return nil
		})
	},
	"filter": func() txn.Bolt {
		return bolt.Filter(tuple.Fields{"text"}, func(t *tuple.Tuple) bool { s, _ := t.Value(0).Text(); return len(s) > 3 })
	},
}

func TestWholeFramesGiveWhatTuplesDo(t *testing.T) {
	words := []string{"in", "the", "beginning", "God", "created", ""}
	for name, open := range kinds {
		each, err := run(t, open(), words...)
		if err != nil {
			t.Fatal(err)
		}
		var whole []string
		b := open()
		var d txn.OutputDeclarer
		b.(txn.Declarer).DeclareOutputFields(&d)
		streams, _ := d.Streams()
		out := txn.NewTestCollector(streams, func(stream string, vals []tuple.Value) {
			whole = append(whole, fmt.Sprint(stream, vals))
		})
		if err := b.(txn.BatchExecutor).ExecuteBatch(frameOf(words...), out); err != nil {
			t.Fatal(err)
		}
		if strings.Join(each, "\n") != strings.Join(whole, "\n") {
			t.Errorf("%s: a frame gives %q, its tuples %q", name, whole, each)
		}
	}
}

func TestFailingTupleOfAFrameIsNamed(t *testing.T) {
	refused := errors.New("refused")
	for name, fail := range map[string]func() error{
		"error":           func() error { return refused },
		"panic":           func() error { panic(refused) },
		"panic with text": func() error { panic("refused") },
	} {
		b := bolt.Func(nil, func(t *tuple.Tuple, _ *txn.Collector) error {
			if t.Str(0) == "bad" {
				return fail()
			}
			return nil
		})
		err := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = r.(error)
				}
			}()
			return b.(txn.BatchExecutor).ExecuteBatch(frameOf("good", "bad", "good"), nil)
		}()
		if err == nil || err.Error() != `tuple in/default["bad"]: refused` {
			t.Errorf("%s: %v", name, err)
		}
		if name != "panic with text" && !errors.Is(err, refused) {
			t.Errorf("%s: %v does not wrap what went wrong", name, err)
		}
	}
}

// With a collector that has no subscriber, this is the cost of the bolt alone.
func BenchmarkFunctions(b *testing.B) {
	frame := frameOf(strings.Fields(strings.Repeat("in the beginning God created the heaven and ", 128))...)
	for name, open := range kinds {
		instance := open()
		var d txn.OutputDeclarer
		instance.(txn.Declarer).DeclareOutputFields(&d)
		streams, _ := d.Streams()
		out := txn.NewCollector(streams, nil, nil)
		measure := func(how string, execute func() error) {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := execute(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)*float64(frame.Len())/b.Elapsed().Seconds(), "tuples/s")
			})
		}
		var view tuple.Tuple
		measure("each", func() error {
			view.At(frame, 0)
			for i := range frame.Len() {
				view.Next(frame, i)
				if err := instance.Execute(&view, out); err != nil {
					return err
				}
			}
			return nil
		})
		measure("frame", func() error { return instance.(txn.BatchExecutor).ExecuteBatch(frame, out) })
	}
}
