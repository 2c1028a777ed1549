package logbolt

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

var words = &tuple.Stream{Component: "count", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "total"}}

// logger writes without the time.
func logger(sb *strings.Builder) *slog.Logger {
	return slog.New(slog.NewTextHandler(sb, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func open(t *testing.T, o Options, sb *strings.Builder) (*Bolt, *time.Time) {
	t.Helper()
	b := New(o)
	clock := time.Unix(100, 0)
	b.now = func() time.Time { return clock }
	if err := b.Open(txn.NewContext(t.Context(), txn.Context{Logger: logger(sb)}, nil)); err != nil {
		t.Fatal(err)
	}
	return b, &clock
}

func TestTupleIsLoggedByFieldNames(t *testing.T) {
	var sb strings.Builder
	b, _ := open(t, Options{Level: slog.LevelWarn, Message: "counted"}, &sb)
	text := []byte("the")
	if err := b.Execute(tuple.New(words, tuple.Bytes(text), tuple.Int(7)), nil); err != nil {
		t.Fatal(err)
	}
	if want := "level=WARN msg=counted from=count stream=default fields.word=the fields.total=7\n"; sb.String() != want {
		t.Errorf("logged %q, want %q", sb.String(), want)
	}
}

func TestRateIsBounded(t *testing.T) {
	frame := func(n int) *tuple.Frame {
		var f tuple.Frame
		f.Begin(words, false)
		for i := range n {
			f.Grow(1 << 20)
			f.Append2(tuple.String(fmt.Sprint("w", i)), tuple.Int(i), 0)
		}
		return &f
	}
	for _, whole := range []bool{true, false} {
		var sb strings.Builder
		b, clock := open(t, Options{PerSecond: 3}, &sb)
		for _, step := range []struct {
			after  time.Duration
			tuples int
			logged int
			want   string
		}{
			{0, 2, 2, ""},
			{0, 5, 1, ""},
			{999 * time.Millisecond, 5, 0, ""},
			{time.Millisecond, 1, 1, "skipped=9"},
			{0, 1, 1, "fields.total=0\n"},
			{-time.Hour, 4, 3, "fields.total=2\n"},
		} {
			*clock = clock.Add(step.after)
			sb.Reset()
			f := frame(step.tuples)
			if whole {
				if err := b.ExecuteBatch(f, nil); err != nil {
					t.Fatal(err)
				}
			}
			var tp tuple.Tuple
			for i := range f.Len() {
				tp.At(f, i)
				if whole {
					break
				}
				if err := b.Execute(&tp, nil); err != nil {
					t.Fatal(err)
				}
			}
			if n := strings.Count(sb.String(), "\n"); n != step.logged || !strings.Contains(sb.String(), step.want) {
				t.Errorf("whole frames %v, after %s: %d of %d tuples logged, want %d: %s", whole, step.after, n, step.tuples, step.logged, sb.String())
			}
		}
	}
	var sb strings.Builder
	b, _ := open(t, Options{PerSecond: -1}, &sb)
	if err := b.ExecuteBatch(frame(500), nil); err != nil || strings.Count(sb.String(), "\n") != 500 {
		t.Errorf("without a bound: error %v, %d lines", err, strings.Count(sb.String(), "\n"))
	}
}

func ExampleNew() {
	b := New(Options{PerSecond: 100})
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	if err := b.Open(txn.NewContext(nil, txn.Context{Logger: log}, nil)); err != nil { //nolint:staticcheck // nothing ends
		fmt.Println(err)
	}
	stream := &tuple.Stream{Component: "count", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "total"}}
	if err := b.Execute(tuple.New(stream, tuple.String("the"), tuple.Int(63919)), nil); err != nil {
		fmt.Println(err)
	}
	// Output: level=INFO msg=tuple from=count stream=default fields.word=the fields.total=63919
}
