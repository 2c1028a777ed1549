package measure

import (
	"sync"
	"time"
)

// The states of an [Activity]. Each way of being blocked has a number of its own, from
// Blocked on.
const (
	Off = iota // not running
	Busy
	Idle
	Blocked
)

// Activity adds up how long a task was in each state. It is off to begin with.
type Activity struct {
	mu     sync.Mutex
	state  int
	since  time.Time
	totals []time.Duration // by state
}

// NewActivity returns the Activity of a task that can be blocked in as many ways.
func NewActivity(ways int) *Activity {
	return &Activity{since: time.Now(), totals: make([]time.Duration, Blocked+ways)}
}

// Enter changes the state.
func (a *Activity) Enter(state int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle()
	a.state = state
}

// settle adds up the time in the present state.
func (a *Activity) settle() {
	now := time.Now()
	a.totals[a.state] += now.Sub(a.since)
	a.since = now
}

// Totals returns the time in each state up to now, which never falls.
func (a *Activity) Totals() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle()
	return append([]time.Duration(nil), a.totals...)
}
