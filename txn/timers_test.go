package txn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// More timers than the window holds, many of one moment, some of them set late.
func TestTimersBeyondTheWindowFireInOrder(t *testing.T) {
	const n, windowMax = 3000, 400
	c := newClocked(t, newMapBackend())
	timers := c.Timers()
	timers.queue(false).windowMax = windowMax
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]int64{}
	add := func(i int, from int64) {
		at := from + r.Int64N(5000)
		if r.IntN(4) == 0 {
			at = from + 2500
		}
		name := fmt.Sprint(i)
		want[name] = at
		c.ok(c.SetKey(tuple.Int(i % 97)))
		timers.SetProcessing(time.UnixMilli(at), name)
	}
	for i := range n {
		add(i, 2000)
	}
	c.finish()
	// The window is what it may hold, and of one moment all.
	if held := len(timers.queue(false).window); held > windowMax {
		t.Fatalf("%d timers are in memory", held)
	}
	last, count := int64(0), 0
	fire := func(timer Timer) error {
		at := timer.At.UnixMilli()
		if at < last || want[timer.Name] != at {
			t.Fatalf("timer %q at %d fired after one at %d, want it at %d", timer.Name, at, last, want[timer.Name])
		}
		last, count = at, count+1
		delete(want, timer.Name)
		if count%100 == 0 {
			add(n+count, at)
		}
		if count%10 == 0 { // one that may be far beyond the window is taken back
			for i := range 3 {
				name := fmt.Sprint(count + i)
				if later, set := want[name]; set && later > at {
					c.ok(c.SetKey(tuple.Int((count + i) % 97)))
					timers.Delete(Timer{At: time.UnixMilli(later), Name: name})
					delete(want, name)
				}
			}
		}
		return nil
	}
	for now := int64(2000); len(want) > 0; now += 500 {
		for {
			got, err := timers.FireProcessing(now, fire)
			c.ok(err)
			if got > fireMax {
				t.Fatalf("%d timers fired at once", got)
			}
			if got == 0 {
				break
			}
		}
		for name, at := range want {
			if at <= now {
				t.Fatalf("timer %q at %d has not fired at %d", name, at, now)
			}
		}
		c.finish()
	}
	if _, ok, err := timers.NextProcessing(); ok || err != nil || len(c.b.rows) != 0 {
		t.Errorf("%d rows are left, a timer %t, %v", len(c.b.rows), ok, err)
	}
}

// After a jump of an hour each timer fires once, and one that sets the next a minute
// later, as a schedule does, catches up one by one or skips, as it likes.
func TestClockJumpFiresEachTimerOnce(t *testing.T) {
	c := newClocked(t, newMapBackend())
	timers := c.Timers()
	minute := func(ms int64) time.Time { return time.UnixMilli(ms).Truncate(time.Minute).Add(time.Minute) }
	c.ok(c.SetKey(tuple.String("k")))
	timers.SetProcessing(minute(c.now), "schedule")
	var fired []int64
	fire := func(now int64) {
		for {
			n, err := timers.FireProcessing(now, func(timer Timer) error {
				fired = append(fired, timer.At.UnixMilli())
				timers.SetProcessing(minute(now), "schedule") // aligned, from now
				return nil
			})
			c.ok(err)
			if n == 0 {
				return
			}
		}
	}
	for _, now := range []int64{59_999, 60_000, 60_000 + 3_600_000, 60_000 + 3_600_000, 3_660_000 + 59_999, 3_720_000} {
		fire(now)
	}
	if want := []int64{60_000, 120_000, 3_720_000}; !slices.Equal(fired, want) {
		t.Errorf("fired %v, want %v", fired, want)
	}
}

func TestEventTimersAtTheEndOfInput(t *testing.T) {
	c := newClocked(t, newMapBackend())
	timers := c.Timers()
	for i := range 1000 {
		c.ok(c.SetKey(tuple.Int(i)))
		timers.SetEvent(time.UnixMilli(int64(i)), "")
	}
	timers.SetProcessing(time.UnixMilli(1), "")
	fired := 0
	again := func(timer Timer) error {
		fired++
		timers.SetEvent(timer.At.Add(time.Hour), "again")
		return nil
	}
	if _, ok := timers.Watermark(); ok {
		t.Error("there is a watermark before any came")
	}
	if n, err := timers.FireEvent(99, again); n != 100 || err != nil {
		t.Errorf("%d timers fired, %v", n, err)
	}
	if n, err := timers.FireEvent(50, again); n != 0 || err != nil {
		t.Errorf("%d timers fired when the watermark went back, %v", n, err)
	}
	if at, ok := timers.Watermark(); !ok || at.UnixMilli() != 99 {
		t.Errorf("watermark %v, %t", at, ok)
	}
	c.ok(timers.FireRest(again))
	if fired != 1100 {
		t.Errorf("%d timers fired, want 1000 and the 100 that were set again before the end", fired)
	}
	c.finish()
	if n := len(c.b.rows); n != 1001 { // 1000 set at the end, and one by processing time
		t.Errorf("%d timers are kept", n)
	}
	stop := errors.New("stop")
	_, err := timers.FireProcessing(1, func(Timer) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	wantError(t, err, `timer ""`, "1970-01-01T00:00:00.001Z", "key 999")
}
