package nimbus

import "time"

// clock is the wall clock as it was when a nimbus began to lead. From then on it goes by the
// monotonic clock: that the machine's time is set neither ends a wait nor makes it longer.
type clock struct{ wall, began time.Time }

func newClock() clock { return clock{wall(), time.Now()} }

// now returns the time as it is kept.
func (c clock) now() time.Time { return c.wall.Add(time.Since(c.began)) }
