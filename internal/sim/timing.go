package sim

import (
	"math/rand/v2"
	"time"
)

// timing is the configuration of a run.
type timing struct {
	Interval, SnapshotTimeout, AckRepeat time.Duration
	RestartMin, RestartMax, StoreRetry   time.Duration
	RetryMin, RetryMax                   time.Duration
	MaxPending, MaxRestarts, Retained    int
	PoisonAttempts                       int
	Emit                                 time.Duration // mean pause between two calls of NextTuple
	Hop                                  time.Duration // mean delay of a message
}

func drawTiming(rng *rand.Rand) timing {
	ms := func(from, to int) time.Duration {
		return time.Duration(from+rng.IntN(to-from)) * time.Millisecond
	}
	t := timing{
		Interval:        ms(50, 800),
		SnapshotTimeout: ms(1000, 6000),
		AckRepeat:       ms(200, 1500),
		RestartMin:      ms(20, 200),
		RestartMax:      ms(200, 1500),
		StoreRetry:      ms(50, 500),
		RetryMin:        ms(10, 100),
		RetryMax:        ms(100, 1000),
		MaxPending:      rng.IntN(5),
		Retained:        1 + rng.IntN(3),
		PoisonAttempts:  1 + rng.IntN(3),
		Emit:            ms(10, 200),
		Hop:             ms(1, 30),
	}
	if rng.IntN(8) == 0 {
		t.MaxRestarts = 2 + rng.IntN(4)
	}
	return t
}
