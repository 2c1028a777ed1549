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
