package txn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isobar-io/isobar/tuple"
)

// BenchmarkAddAll adds frames of words to counts: few distinct ones, a vocabulary, and
// more than a cache holds.
func BenchmarkAddAll(b *testing.B) {
	for _, distinct := range []int{50, 12_000, 1_000_000} {
		b.Run(fmt.Sprint(distinct), func(b *testing.B) {
			s := NewState(StateConfig{Component: "c", Groups: 256, To: 256, Backend: newMapBackend(), CacheBytes: 1 << 30})
			n := NewAggregate(s, "n", Sum())
			stream := &tuple.Stream{Component: "split", ID: "default", Fields: tuple.Fields{"word"}}
			z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(distinct-1))
			words := make([]tuple.Value, distinct)
			for i := range words {
				words[i] = tuple.String(fmt.Sprintf("w%d", i*7919))
			}
			frames := make([]*tuple.Frame, 64)
			for i := range frames {
				f := new(tuple.Frame)
				f.Begin(stream, true)
				for range 1024 {
					w := words[z.Uint64()]
					h, _ := tuple.HashKey([]tuple.Value{w})
					if f.Full() {
						f.Grow(1024)
					}
					f.Append1(w, h)
				}
				frames[i] = f
			}
			var batch KeyedBatch
			i := 0
			for b.Loop() {
				batch.Reset(s, frames[i%len(frames)], []int{0}, true)
				if err := n.AddAll(&batch, 1); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/tuple")
		})
	}
}

// BenchmarkEmit emits words to two counters, as they are and combined.
func BenchmarkEmit(b *testing.B) {
	for _, distinct := range []int{50, 12_000} {
		z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(distinct-1))
		words := make([]tuple.Value, 1<<15)
		for i := range words {
			words[i] = tuple.String(fmt.Sprintf("w%d", z.Uint64()*7919))
		}
		emit := func(b *testing.B, combine *Combining, emit func(c *Collector, w tuple.Value), fields ...string) {
			s := stream(tuple.DefaultStream, fields...)
			e := Edge{Stream: s, Grouping: ByFields, Fields: []int{0}, Groups: 256, Combine: combine}
			rows := 0
			for range 2 {
				var free []*tuple.Frame
				for range 16 {
					free = append(free, &tuple.Frame{})
				}
				e.Outlets = append(e.Outlets, NewOutlet(&tuple.Frame{}, 1024, func(f *tuple.Frame) (*tuple.Frame, int) {
					rows += f.Len()
					f.Reset()
					next := free[0]
					copy(free, free[1:])
					free[len(free)-1] = f
					return next, 1024
				}))
			}
			c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
			n := 0
			for b.Loop() {
				for range 1024 {
					emit(c, words[n%len(words)])
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/tuple")
			b.ReportMetric(float64(rows)/float64(n), "sent/tuple")
		}
		b.Run(fmt.Sprintf("plain/%d", distinct), func(b *testing.B) {
			emit(b, nil, func(c *Collector, w tuple.Value) { c.Emit1(w) }, "word")
		})
		b.Run(fmt.Sprintf("two/%d", distinct), func(b *testing.B) {
			emit(b, nil, func(c *Collector, w tuple.Value) { c.Emit2(w, tuple.Int64(1)) }, "word", "n")
		})
		b.Run(fmt.Sprintf("combined/%d", distinct), func(b *testing.B) {
			emit(b, &Combining{1, CombineSum}, func(c *Collector, w tuple.Value) { c.Emit2(w, tuple.Int64(1)) }, "word", "n")
		})
	}
}
