package link

import "sync/atomic"

// Bell wakes the one goroutine that sleeps on it.
//
// The sleeper calls Arm, looks once more at everything it waits for, and only then
// waits on C; whoever has something for it makes it visible first and then calls
// Ring. Either the sleeper's second look sees it, or Ring sees the bell armed.
type Bell struct {
	armed atomic.Bool
	c     chan struct{}
}

// NewBell returns a bell.
func NewBell() *Bell { return &Bell{c: make(chan struct{}, 1)} }

// Ring wakes the sleeper, if there is one.
func (b *Bell) Ring() {
	if b.armed.Load() && b.armed.CompareAndSwap(true, false) {
		select {
		case b.c <- struct{}{}:
		default:
		}
	}
}

// Arm says that the owner is about to sleep.
func (b *Bell) Arm() { b.armed.Store(true) }

// Disarm says that the owner is awake.
func (b *Bell) Disarm() {
	b.armed.Store(false)
	select {
	case <-b.c:
	default:
	}
}

// C receives when an armed bell was rung.
func (b *Bell) C() <-chan struct{} { return b.c }
