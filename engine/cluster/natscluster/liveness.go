package natscluster

import (
	"context"
	"sync"
)

// liveness is whether the store answers. An outage is the time between, and every end
// of one begins a new epoch.
type liveness struct {
	changes chan struct{}

	mu     sync.Mutex
	up     bool          // connected
	silent bool          // connected, but JetStream does not answer
	turned chan struct{} // closed when the epoch ends
	// connection ends with the connection.
	connection context.Context
	lost       context.CancelFunc
}

func newLiveness() *liveness {
	l := &liveness{changes: make(chan struct{}, 1), turned: make(chan struct{})}
	l.connection, l.lost = context.WithCancel(context.Background())
	l.lost()
	return l
}

func (l *liveness) answers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up && !l.silent
}

// now returns the current connection, which has ended if there is none.
func (l *liveness) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connection
}

// current returns a channel that is closed when the epoch ends.
func (l *liveness) current() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turned
}

func (l *liveness) connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		return
	}
	l.up, l.silent = true, false
	l.connection, l.lost = context.WithCancel(context.Background())
	l.turn()
}

func (l *liveness) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		return
	}
	l.up, l.silent = false, false
	l.lost()
	l.ring()
}

// silence notes that JetStream does not answer, and reports whether that is news.
func (l *liveness) silence() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up || l.silent {
		return false
	}
	l.silent = true
	l.ring()
	return true
}

func (l *liveness) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// speaks notes that JetStream answers again.
func (l *liveness) speaks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent {
		l.silent = false
		l.turn()
	}
}

// turn begins an epoch; it is called with the mutex held.
func (l *liveness) turn() {
	close(l.turned)
	l.turned = make(chan struct{})
	l.ring()
}

func (l *liveness) ring() {
	select {
	case l.changes <- struct{}{}:
	default:
	}
}
