package master

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
}

func newFlusher() flusher { return flusher{new(atomic.Bool), make(chan struct{}, 1)} }

// busy is called by a task that has heeded a flush.
func (f flusher) busy() {
	if f.asleep.Load() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// run goes on until the master's context ends.
func (f flusher) run(m *Master, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		if m.flushDue() {
			continue
		}
		tick.Stop()
		f.asleep.Store(true)
		// A task that has just heeded the last flush has seen no sleeper to wake.
		if !m.flushDue() {
			select {
			case <-f.wake:
			case <-m.ctx.Done():
			}
		}
		f.asleep.Store(false)
		tick.Reset(flushEvery)
	}
}

// flushDue has all tasks flush that have heeded the last time, and reports whether there
// are any.
func (m *Master) flushDue() (busy bool) {
	for _, r := range m.regions {
		if g := r.gen.Load(); g != nil && g.FlushDue() {
			busy = true
		}
	}
	return busy
}
