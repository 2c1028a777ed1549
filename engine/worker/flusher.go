package worker

import (
	"sync/atomic"
	"time"
)

// flushEvery bounds how long a tuple waits in an open frame of a busy task.
const flushEvery = 5 * time.Millisecond

// flusher tells busy tasks to flush, and sleeps while there are none: a process that
// is woken 200 times a second for nothing takes 1 to 2 % of a core.
type flusher struct {
	asleep *atomic.Bool
	wake   chan struct{}
	done   chan struct{}
}

func newFlusher() flusher {
	return flusher{new(atomic.Bool), make(chan struct{}, 1), make(chan struct{})}
}

// busy is called by a task that has heeded a flush.
func (f flusher) busy() {
	if f.asleep.Load() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// stop ends run.
func (f flusher) stop() { close(f.done) }

// run calls flushDue, which reports whether any task was busy, until it is stopped.
func (f flusher) run(flushDue func() bool, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.done:
			return
		}
		if flushDue() {
			continue
		}
		tick.Stop()
		f.asleep.Store(true)
		// A task that has just heeded the last flush has seen no sleeper to wake.
		if !flushDue() {
			select {
			case <-f.wake:
			case <-f.done:
			}
		}
		f.asleep.Store(false)
		tick.Reset(flushEvery)
	}
}
