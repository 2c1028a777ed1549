package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations. One goroutine writes it, any may read it.
type histogram struct{ cells []atomic.Uint64 }

// A bucket is a nanosecond wide up to bucketsExact, and from there on as wide as a
// 32nd of what it holds, or less.
const (
	bucketsPerOctave = 32
	bucketsExact     = 2 * bucketsPerOctave
	octaves          = 34 // beyond the exact ones: up to 18 minutes
	buckets          = bucketsExact + octaves*bucketsPerOctave
)

func newHistogram() *histogram { return &histogram{make([]atomic.Uint64, buckets)} }

// observe counts n durations of d.
func (h *histogram) observe(d time.Duration, n uint64) { h.cells[bucketOf(d)].Add(n) }

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < bucketsExact {
		return int(v)
	}
	octave := bits.Len64(v) - bits.Len64(bucketsExact-1)
	return min(octave*bucketsPerOctave+int(v>>octave), buckets-1)
}

// bucketEnd returns the longest duration of a bucket.
func bucketEnd(i int) time.Duration {
	if i < bucketsExact {
		return time.Duration(i)
	}
	octave := i/bucketsPerOctave - 1
	return time.Duration((i-octave*bucketsPerOctave+1)<<octave - 1)
}

// spread is what histograms have counted, by bucket.
type spread []uint64

// add adds what h has counted by now.
func (s spread) add(h *histogram) {
	for i := range h.cells {
		s[i] += h.cells[i].Load()
	}
}

// since returns what was counted since an earlier look.
func (s spread) since(earlier spread) spread {
	diff := make(spread, len(s))
	for i := range s {
		diff[i] = s[i] - earlier[i]
	}
	return diff
}

func (s spread) count() uint64 {
	n := uint64(0)
	for _, c := range s {
		n += c
	}
	return n
}

// quantile returns the duration that a share of those counted do not exceed, to the
// width of a bucket.
func (s spread) quantile(share float64) time.Duration {
	total := s.count()
	below := uint64(0)
	for i, c := range s {
		if below += c; below > 0 && float64(below) >= share*float64(total) {
			return bucketEnd(i)
		}
	}
	return 0
}

func spreadOf(histograms []*histogram) spread {
	s := make(spread, buckets)
	for _, h := range histograms {
		s.add(h)
	}
	return s
}

func newHistograms(n int) []*histogram {
	all := make([]*histogram, n)
	for i := range all {
		all[i] = newHistogram()
	}
	return all
}
