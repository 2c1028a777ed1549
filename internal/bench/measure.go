package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// mode is one way to count the words.
type mode struct {
	name       string
	intervalMS int // between barriers; 0 if there are none
	// run counts until ctx ends and adds what each counter has counted.
	run func(ctx context.Context, w workload, s shape, counted []paddedCounter) error
}

const allModes = "limit,at-most-once,at-least-once@1000,exactly-once@1000,exactly-once@100"

func (m mode) String() string {
	if m.intervalMS == 0 {
		return m.name
	}
	return m.name + "@" + strconv.Itoa(m.intervalMS)
}

func parseMode(text string) (mode, error) {
	name, interval, timed := strings.Cut(text, "@")
	m := mode{name: name}
	switch {
	case name == "limit" && !timed:
		m.run = func(ctx context.Context, w workload, s shape, counted []paddedCounter) error {
			runLimit(ctx, w, s, 0, counted)
			return nil
		}
		return m, nil
	case name == "at-most-once" && !timed:
	case (name == "at-least-once" || name == "exactly-once") && timed:
		var err error
		if m.intervalMS, err = strconv.Atoi(interval); err == nil && m.intervalMS > 0 {
			break
		}
		fallthrough
	default:
		return m, fmt.Errorf("mode %q: the modes are %s, with any interval", text, allModes)
	}
	m.run = m.runEngine
	return m, nil
}

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

// sample is what one window showed.
type sample struct {
	perSecond float64 // tuples
	bytes     float64 // allocated for each tuple
}

// warmUp is how long a run goes on from its first word until the window opens.
const warmUp = 300 * time.Millisecond

// measure runs a mode and looks at it through a window.
func measure(ctx context.Context, m mode, w workload, s shape, duration time.Duration) (sample, error) {
	runtime.GC()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	counted := make([]paddedCounter, s.counts)
	ended := make(chan error, 1)
	go func() { ended <- m.run(ctx, w, s, counted) }()

	x, err := watch(ctx, counted, ended, duration)
	stop()
	if errors.Is(err, errEnded) {
		return x, err
	}
	if runErr := <-ended; runErr != nil && !errors.Is(runErr, context.Canceled) {
		err = runErr
	}
	return x, err
}

// errEnded is wrapped by errors of a run that ended on its own.
var errEnded = errors.New("the run ended before its window")

// watch opens the window some time after the first word and closes it.
func watch(ctx context.Context, counted []paddedCounter, ended <-chan error, duration time.Duration) (sample, error) {
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
	for sum(counted) == 0 {
		if err := pause(time.Millisecond); err != nil {
			return sample{}, err
		}
	}
	if err := pause(warmUp); err != nil {
		return sample{}, err
	}
	bytes, words, start := allocated(), sum(counted), time.Now()
	if err := pause(duration); err != nil {
		return sample{}, err
	}
	words, seconds := sum(counted)-words, time.Since(start).Seconds()
	bytes = allocated() - bytes
	if words == 0 {
		return sample{}, errors.New("no word was counted in the window")
	}
	return sample{float64(words) / seconds, float64(bytes) / float64(words)}, nil
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
