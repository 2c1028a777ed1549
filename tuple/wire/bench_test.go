package wire_test

import (
	"fmt"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// benchFrames are full frames as links carry them.
func benchFrames() map[string]*tuple.Frame {
	var one, two, four [][]tuple.Value
	for i := range 1024 {
		word := fmt.Sprintf("word%d", i*i%977)
		one = append(one, row(word))
		two = append(two, row(word, i))
		four = append(four, row(word, i, float64(i), []byte("some bytes")))
	}
	return map[string]*tuple.Frame{
		"word":                 frame(words, true, one...),
		"word-count":           frame(counts, true, two...),
		"word-int-float-bytes": frame(wide, false, four...),
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, f := range benchFrames() {
		b.Run(name, func(b *testing.B) {
			e := wire.NewEncoder(registry(b), wire.Limits{})
			var data []byte
			var err error
			for b.Loop() {
				if data, err = e.Append(data[:0], f); err != nil {
					b.Fatal(err)
				}
			}
			report(b, data, f)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, f := range benchFrames() {
		b.Run(name, func(b *testing.B) {
			data, err := wire.NewEncoder(registry(b), wire.Limits{}).Append(nil, f)
			if err != nil {
				b.Fatal(err)
			}
			d := newDecoder(b, wire.Limits{})
			var back tuple.Frame
			for b.Loop() {
				if err := d.Decode(data, &back); err != nil {
					b.Fatal(err)
				}
			}
			report(b, data, f)
		})
	}
}

func report(b *testing.B, data []byte, f *tuple.Frame) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(f.Len()), "ns/tuple")
	b.ReportMetric(float64(len(data))/float64(f.Len()), "B/tuple")
}
