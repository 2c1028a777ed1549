package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// point and label are objects that the tests register codecs for.
type (
	point struct{ x, y int32 }
	label string
)

var (
	words  = &tuple.Stream{Component: "split", ID: tuple.DefaultStream, Fields: tuple.Fields{"word"}}
	counts = &tuple.Stream{Component: "count", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "n"}}
	wide   = &tuple.Stream{Component: "count", ID: "wide", Fields: tuple.Fields{"a", "b", "c", "d"}}
	ticks  = &tuple.Stream{Component: "clock", ID: "tick"}
	all    = []*tuple.Stream{words, counts, wide, ticks}
)

func registry(t testing.TB) *wire.Registry {
	r, err := wire.NewRegistry(
		wire.Object("point", func(dst []byte, p point) ([]byte, error) {
			if p.x == -1 {
				return nil, errors.New("it lies outside")
			}
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, uint32(p.x)), uint32(p.y)), nil
		}, func(b []byte) (point, error) {
			if len(b) != 8 {
				return point{}, fmt.Errorf("it has %d bytes, not 8", len(b))
			}
			return point{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))}, nil
		}),
		wire.Object("label", func(dst []byte, l label) ([]byte, error) { return append(dst, l...), nil },
			func(b []byte) (label, error) { return label(b), nil }),
	)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newDecoder(t testing.TB, l wire.Limits) *wire.Decoder {
	d, err := wire.NewDecoder(all, registry(t), l)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// frame returns a frame of a stream with these tuples; hashes are made up.
func frame(s *tuple.Stream, keyed bool, rows ...[]tuple.Value) *tuple.Frame {
	f := &tuple.Frame{Generation: 3, Seq: 1 << 40, SourceTask: 5}
	f.Begin(s, keyed)
	for i, row := range rows {
		f.Grow(len(rows))
		f.Append(row, uint64(i)*0x9e3779b97f4a7c15+1)
	}
	return f
}

func row(vals ...any) []tuple.Value {
	r := make([]tuple.Value, len(vals))
	for i, v := range vals {
		r[i] = tuple.Any(v)
	}
	return r
}

// differ returns how two frames differ, or nothing.
func differ(a, b *tuple.Frame) string {
	switch {
	case a.Generation != b.Generation || a.Seq != b.Seq || a.SourceTask != b.SourceTask || a.Mark != b.Mark:
		return fmt.Sprintf("headers %d %d %d %v and %d %d %d %v",
			a.Generation, a.Seq, a.SourceTask, a.Mark, b.Generation, b.Seq, b.SourceTask, b.Mark)
	case a.Stream != b.Stream || a.Len() != b.Len():
		return fmt.Sprintf("%d tuples of %v and %d of %v", a.Len(), a.Stream, b.Len(), b.Stream)
	case a.Stream == nil:
		return ""
	case a.Keyed() != b.Keyed() || a.Width() != b.Width():
		return "one is keyed or wider"
	}
	for i := range a.Len() {
		if a.Keyed() && a.Hashes()[i] != b.Hashes()[i] {
			return fmt.Sprintf("tuple %d: hashes %x and %x", i, a.Hashes()[i], b.Hashes()[i])
		}
		for c, v := range a.Row(i) {
			if w := b.Row(i)[c]; !same(v, w) {
				return fmt.Sprintf("tuple %d, field %d: %s %s and %s %s", i, c, v.Kind(), v, w.Kind(), w)
			}
		}
	}
	return ""
}

func same(v, w tuple.Value) bool {
	if v.Kind() != w.Kind() {
		return false
	}
	if s, ok := v.Text(); ok {
		u, _ := w.Text()
		return s == u
	}
	if v.Kind() != tuple.KindAny {
		return v.Word() == w.Word()
	}
	if t, ok := v.Any().(time.Time); ok {
		u, ok := w.Any().(time.Time)
		return ok && t.Equal(u)
	}
	return v.Any() == w.Any()
}

// signed puts the checksum behind the bytes of a frame.
func signed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b[:len(b):len(b)], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// samples are frames with every kind in every place.
func samples() map[string]*tuple.Frame {
	long := make([]byte, 300)
	for i := range long {
		long[i] = byte(i)
	}
	mark := func(f *tuple.Frame, m tuple.Mark) *tuple.Frame { f.Mark = m; return f }
	kinds := map[string][]any{
		"nil":    {nil, nil},
		"bool":   {true, false, true},
		"int64":  {0, 1, -1, 63, 64, -64, -65, math.MaxInt64, math.MinInt64},
		"uint64": {uint64(0), uint64(127), uint64(128), uint64(math.MaxUint64)},
		"float64": {0.0, math.Copysign(0, -1), 1.5, math.Inf(1), math.Inf(-1), math.NaN(),
			math.Float64frombits(0xfff8000000000123), math.MaxFloat64, math.SmallestNonzeroFloat64},
		"string": {"", "word", "\x00", "\xff\xfe no UTF-8", string(long), "Größe, 大きさ"},
		"bytes":  {[]byte(nil), []byte{}, []byte("b"), long},
		"time": {time.Unix(0, 0), time.Unix(0, math.MaxInt64/2), time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2261, 12, 31, 23, 59, 59, 999999999, time.UTC)},
		"far time": {time.Time{}, time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
			time.Date(-50000, 1, 1, 0, 0, 0, 1, time.FixedZone("", 3600)), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 5)},
		"object": {point{1, -2}, point{}, label(""), point{3, 4}, label("x"), label(long)},
		"mixed":  {"a", 1, nil, []byte("b"), 2.5, true, uint64(7), time.Unix(1, 2), point{1, 2}, time.Time{}, "z"},
	}
	frames := map[string]*tuple.Frame{
		"nothing":      {},
		"empty":        frame(words, true),
		"lone barrier": {Generation: math.MaxUint64, Seq: math.MaxUint64, SourceTask: math.MaxInt32, Mark: tuple.Mark{Kind: tuple.MarkEnd, Batch: math.MaxUint64, Count: math.MaxUint64}},
		"barrier":      mark(frame(words, true, row("last")), tuple.Mark{Kind: tuple.MarkBarrier, Batch: 7, Count: 1}),
		"no fields":    frame(ticks, false, row(), row(), row()),
		"keyed ticks":  frame(ticks, true, row(), row()),
	}
	var columns [][]tuple.Value
	for name, vals := range kinds {
		var narrow [][]tuple.Value
		for i, v := range vals {
			narrow = append(narrow, row(v))
			columns = append(columns, row(v, vals[0], name, vals[len(vals)-1-i]))
		}
		frames[name] = frame(words, false, narrow...)
		frames["keyed "+name] = frame(words, true, narrow...)
	}
	frames["all"] = frame(wide, true, columns...)
	return frames
}
