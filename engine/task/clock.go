package task

import (
	"sync/atomic"
	"time"
)

// ProcessingTime tells the time of timers and of what expires: that of the machine's
// clock, except that it never goes back. While the machine's clock is behind, because
// it was set back, it goes on with the monotonic clock, so that nothing freezes. Its
// methods may be called concurrently.
type ProcessingTime struct {
	read func() (wall time.Time, monotonic time.Duration)
	lead atomic.Int64 // the most by which the one was ever ahead of the other, in ns
}

// NewProcessingTime returns the processing time of this machine.
func NewProcessingTime() *ProcessingTime {
	begun := time.Now()
	return newProcessingTime(func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(begun)
	})
}

func newProcessingTime(read func() (time.Time, time.Duration)) *ProcessingTime {
	p := &ProcessingTime{read: read}
	wall, monotonic := read()
	p.lead.Store(wall.UnixNano() - int64(monotonic))
	return p
}

// UnixMilli returns the time in milliseconds since 1970.
func (p *ProcessingTime) UnixMilli() int64 {
	wall, monotonic := p.read()
	ahead := wall.UnixNano() - int64(monotonic)
	lead := p.lead.Load()
	for ahead > lead && !p.lead.CompareAndSwap(lead, ahead) {
		lead = p.lead.Load()
	}
	return time.Duration(int64(monotonic) + max(ahead, lead)).Milliseconds()
}
