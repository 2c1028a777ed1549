// Package measure has the instruments that tasks keep about themselves: cheap for
// the one goroutine that writes them, and readable by any other at any time.
package measure

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Counters returns n counters that share no cache line with those of others.
func Counters(n int) []atomic.Uint64 { return make([]atomic.Uint64, n, (n+7)/8*8) }

// Histogram counts durations in buckets that double.
type Histogram struct {
	unit  time.Duration
	cells []atomic.Uint64 // the sum, the buckets, and what is beyond the last
}

// NewHistogram returns a histogram of n buckets, of which the first ends at unit.
func NewHistogram(unit time.Duration, n int) *Histogram {
	return &Histogram{unit: unit, cells: Counters(n + 2)}
}

// Observe counts n durations that took total together as n times their mean.
func (h *Histogram) Observe(total time.Duration, n int) {
	total = max(total, 0)
	bucket := 0
	if each := total / time.Duration(n); each > h.unit {
		bucket = bits.Len64(uint64((each - 1) / h.unit))
	}
	h.cells[0].Add(uint64(total))
	h.cells[1+min(bucket, len(h.cells)-2)].Add(uint64(n))
}

// Distribution is what a histogram, or several of one kind, have counted.
type Distribution struct {
	Bounds []time.Duration // the upper ends of the buckets, rising
	Counts []uint64        // by bucket, and of what is beyond the last
	Sum    time.Duration
}

// AddTo adds what h has counted to d, which is empty or of histograms made alike.
func (h *Histogram) AddTo(d *Distribution) {
	if d.Counts == nil {
		d.Counts = make([]uint64, len(h.cells)-1)
		for i := range len(h.cells) - 2 {
			d.Bounds = append(d.Bounds, h.unit<<i)
		}
	}
	d.Sum += time.Duration(h.cells[0].Load())
	for i := range d.Counts {
		d.Counts[i] += h.cells[1+i].Load()
	}
}
