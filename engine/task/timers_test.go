package task

import (
	"math"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// A machine's clock jumps an hour ahead, then back, and the process is paused.
func TestProcessingTimeNeverGoesBackNorStandsStill(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var passed, jump time.Duration
	p := newProcessingTime(func() (time.Time, time.Duration) { return base.Add(passed + jump), passed })
	for i, step := range []struct{ passed, jump, want time.Duration }{
		{0, 0, 0},
		{10 * time.Second, 0, 10 * time.Second},
		{time.Second, time.Hour, time.Hour + 11*time.Second},                     // ahead
		{time.Second, 0, time.Hour + 12*time.Second},                             // back again: it goes on
		{30 * time.Second, 0, time.Hour + 42*time.Second},                        // a pause
		{time.Second, -time.Hour, time.Hour + 43*time.Second},                    // far behind
		{2 * time.Hour, -time.Hour, 3*time.Hour + 43*time.Second},                // still behind
		{time.Second, 4 * time.Hour, 4*time.Hour + 2*time.Hour + 44*time.Second}, // ahead of it
	} {
		passed += step.passed
		jump = step.jump
		if got := time.UnixMilli(p.UnixMilli()).Sub(base); got != step.want {
			t.Errorf("step %d: after %s it is %s, want %s", i, passed, got, step.want)
		}
	}
}

func TestWatermarkOfInputs(t *testing.T) {
	const none = math.MinInt64
	w := &inTime{}
	for i, step := range []struct {
		input int
		mark  int64 // none = idle
		at    int64
		idle  bool
	}{
		{0, 100, none, false}, // the others have none
		{1, 50, none, false},
		{2, none, 50, false}, // left out
		{1, 70, 70, false},
		{1, 60, 70, false}, // never back
		{1, 300, 100, false},
		{2, 20, 20, false}, // counts again; the task's own time does not go back
		{2, 200, 100, false},
		{0, none, 200, false},
		{1, none, 200, false},
		{2, none, math.MaxInt64, true},
		{0, 400, 400, false},
	} {
		m := tuple.Mark{Kind: tuple.MarkWatermark, Count: uint64(step.mark)}
		if step.mark == none {
			m = tuple.Mark{Kind: tuple.MarkIdle}
		}
		if at, idle := w.heed(3, step.input, m); at != step.at || idle != step.idle {
			t.Errorf("step %d: %d, idle %t; want %d, %t", i, at, idle, step.at, step.idle)
		}
	}
}
