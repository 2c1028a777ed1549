package main

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

// paddedCounter is alone on its cache lines.
type paddedCounter struct {
	n atomic.Int64
	_ [120]byte
}

func sum(counted []paddedCounter) int64 {
	var n int64
	for i := range counted {
		n += counted[i].n.Load()
	}
	return n
}

// usage is what the process had used at a moment.
type usage struct {
	at    time.Time
	cpu   time.Duration
	bytes uint64 // allocated
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{time.Now(), cpuTime(), m.TotalAlloc}
}

// errEnded is wrapped by errors of a run that ended on its own.
var errEnded = errors.New("the run ended before its window")

// through runs something until its window is over: that opens some time after it is
// ready. It returns what was to be seen when the window opened and when it closed.
func through[T any](ctx context.Context, o options, run func(context.Context) error, ready func() bool, look func() T) (from, to T, err error) {
	runtime.GC()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()

	from, to, err = watch(ctx, o, ended, ready, look)
	stop()
	if errors.Is(err, errEnded) {
		return from, to, err
	}
	if runErr := <-ended; runErr != nil && !errors.Is(runErr, context.Canceled) {
		err = runErr
	}
	return from, to, err
}

func watch[T any](ctx context.Context, o options, ended <-chan error, ready func() bool, look func() T) (from, to T, err error) {
	pause := func(d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case err := <-ended:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for !ready() {
		if err := pause(time.Millisecond); err != nil {
			return from, to, err
		}
	}
	if err := pause(o.warmUp); err != nil {
		return from, to, err
	}
	from = look()
	if err := pause(o.duration); err != nil {
		return from, to, err
	}
	return from, look(), nil
}

// paceColumns are those of what pace measures.
func paceColumns(things string) []column {
	return []column{
		{"tuples_per_s", "M " + things + "/s", 1e6, 1},
		{"ns_per_tuple", "ns", 1, 1},
		{"cpu_ns_per_tuple", "CPU ns", 1, 1},
		{"tuples_per_s_per_core", "M/s/core", 1e6, 1},
		{"bytes_per_tuple", "B", 1, 3},
	}
}

// pace measures how fast a run adds to its counters.
func pace(ctx context.Context, o options, counters int, run func(ctx context.Context, counted []paddedCounter) error) (sample, error) {
	type seen struct {
		usage
		tuples int64
	}
	counted := make([]paddedCounter, counters)
	from, to, err := through(ctx, o,
		func(ctx context.Context) error { return run(ctx, counted) },
		func() bool { return sum(counted) > 0 },
		func() seen { return seen{used(), sum(counted)} })
	if err != nil {
		return nil, err
	}
	tuples := float64(to.tuples - from.tuples)
	if tuples == 0 {
		return nil, errors.New("no tuple was counted in the window")
	}
	seconds, cpu := to.at.Sub(from.at).Seconds(), (to.cpu - from.cpu).Seconds()
	return sample{tuples / seconds, 1e9 * seconds / tuples, 1e9 * cpu / tuples, tuples / cpu,
		float64(to.bytes-from.bytes) / tuples}, nil
}
