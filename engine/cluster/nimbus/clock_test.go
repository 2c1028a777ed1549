package nimbus

import (
	"testing"
	"testing/synctest"
	"time"
)

// Case: that the machine's clock was set froze what waited, or ended the wait. Deadlines go
// by time that has passed.
func TestSetClockMovesNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, set := range []time.Duration{time.Hour, -time.Hour} {
			c := newClock()
			c.wall = c.wall.Add(set) // what it was before it was set
			deadline := c.wall.Add(30 * time.Second)
			time.Sleep(29 * time.Second)
			if left := deadline.Sub(c.now()); left != time.Second {
				t.Errorf("%v are left of 30 s after 29", left)
			}
			if now := c.now(); now != now.Round(0).UTC() {
				t.Errorf("%v is not as it is kept", now)
			}
		}
	})
}
