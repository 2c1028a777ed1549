package main

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestPaceCountsWhatComesInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{duration: time.Second, warmUp: time.Second}
		x, err := pace(t.Context(), o, 2, func(ctx context.Context, counted []paddedCounter) error {
			for n := int64(1); ; n++ {
				time.Sleep(10 * time.Millisecond)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				counted[n%2].n.Add(1000 * max(1, 200-n)) // slower in the end
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		// From about 1 s to 2 s: 99 to 1 thousand each 10 ms.
		if perSecond := x[0]; math.Abs(perSecond-4.95e6) > 2e5 || math.Abs(x[1]-1e9/perSecond) > 1 {
			t.Errorf("%v tuples in a second and %v ns a tuple, want 4.95 million", perSecond, x[1])
		}
	})
}

func TestRunThatEndsBeforeItsWindowIsAnError(t *testing.T) {
	broken := errors.New("broken")
	for _, fail := range []error{nil, broken} {
		_, err := pace(t.Context(), options{duration: time.Hour}, 1, func(context.Context, []paddedCounter) error { return fail })
		if !errors.Is(err, errEnded) || fail != nil && !errors.Is(err, fail) {
			t.Errorf("a run that returns %v gives %v", fail, err)
		}
	}
}

func TestCPUTimeRises(t *testing.T) {
	before := cpuTime()
	for began := time.Now(); cpuTime() <= before; {
		if time.Since(began) > 5*time.Second {
			t.Fatal("the processor has been busy for 5 s and its time stands still")
		}
	}
}
