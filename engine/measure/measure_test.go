package measure

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHistogramCountsUpToTheBound(t *testing.T) {
	h := NewHistogram(100, 4) // up to 100, 200, 400, 800
	for _, d := range []time.Duration{-5, 0, 100, 101, 200, 201, 400, 401, 800, 801, time.Hour} {
		h.Observe(d, 1)
	}
	h.Observe(1000, 5) // five of 200
	var d Distribution
	h.AddTo(&d)
	if want := []time.Duration{100, 200, 400, 800}; !slices.Equal(d.Bounds, want) {
		t.Errorf("bounds %v, want %v", d.Bounds, want)
	}
	if want := []uint64{3, 2 + 5, 2, 2, 2}; !slices.Equal(d.Counts, want) {
		t.Errorf("counts %v, want %v", d.Counts, want)
	}
	if want := time.Duration(100+101+200+201+400+401+800+801+1000) + time.Hour; d.Sum != want {
		t.Errorf("sum %v, want %v", d.Sum, want)
	}
	h.AddTo(&d)
	if d.Counts[0] != 6 || len(d.Bounds) != 4 {
		t.Errorf("two of a kind add up to %+v", d)
	}
}

func TestActivityAddsUpToTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewActivity(2)
		for i, state := range []int{Busy, Idle, Busy, Blocked, Blocked + 1, Busy, Off, Idle} {
			time.Sleep(time.Duration(i+1) * time.Second) // in the state before
			a.Enter(state)
		}
		time.Sleep(time.Minute)
		s := time.Second
		for range 2 { // reading changes nothing
			if got, want := a.Totals(), []time.Duration{9 * s, (2 + 4 + 7) * s, (3 + 60) * s, 5 * s, 6 * s}; !slices.Equal(got, want) {
				t.Errorf("totals %v, want %v", got, want)
			}
		}
	})
}

func TestCountersOfTwoTasksShareNoLine(t *testing.T) {
	for n := range 20 {
		if c := cap(Counters(n)); c%8 != 0 || c < n {
			t.Errorf("%d counters have room for %d", n, c)
		}
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	h := NewHistogram(time.Microsecond, 20)
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond, 1024) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := NewHistogram(time.Microsecond, 20)
	for b.Loop() {
		h.Observe(time.Millisecond, 1024)
	}
}
