package barrier

import (
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// ScheduleConfig says when barriers are due in a region.
type ScheduleConfig struct {
	Interval time.Duration // between barriers
	// MaxPending is how many batches may be closed and neither committed nor given
	// up; 0 = no limit.
	MaxPending int
	Next       tuple.BatchID // the first batch to close
}

// Schedule decides when the next barrier is injected into a region, whether the
// spouts pause behind it, and when they go on. It is told what happened and asked
// by Decide. It is not safe for concurrent use.
type Schedule struct {
	cfg       ScheduleConfig
	next      tuple.BatchID // the open batch
	settled   tuple.BatchID // batches up to here are committed or given up
	committed tuple.BatchID
	changed   tuple.BatchID // the newest batch that is known to hold a change
	due       time.Duration
	paused    bool
	forced    bool
	last      tuple.MarkKind // how to close the last batch; MarkNone: not asked for
	lastSent  tuple.BatchID  // the newest batch closed that way; 0: none
}

// Decision is what to do now.
type Decision struct {
	// Inject, unless its Kind is MarkNone, is the barrier to inject.
	Inject Injection
	// Resume lets the paused spouts emit again.
	Resume bool
	// WakeAt is when to ask again if nothing happens before; 0 = not needed.
	WakeAt time.Duration
}

// Injection is one barrier for all spout tasks of a region.
type Injection struct {
	Batch tuple.BatchID
	Kind  tuple.MarkKind
	Pause bool // the spouts emit nothing after it
}

// NewSchedule returns the Schedule of a region that starts now, with nothing
// changed since the batch before Next was committed.
func NewSchedule(c ScheduleConfig, now time.Duration) *Schedule {
	done := c.Next - 1
	return &Schedule{cfg: c, next: c.Next, settled: done, committed: done, changed: done, due: now + c.Interval}
}

// InputChanged says that a task that has closed batch after changed something.
func (s *Schedule) InputChanged(after tuple.BatchID) { s.changed = max(s.changed, after+1) }

// Committed says that n, and with it every batch before, is committed.
func (s *Schedule) Committed(n tuple.BatchID) {
	s.settled = max(s.settled, n)
	s.committed = max(s.committed, n)
}

// GaveUp says that the checkpoint of n will not be completed. Batches are given up
// in order; a later one has to cover what they held.
func (s *Schedule) GaveUp(n tuple.BatchID) {
	s.settled = max(s.settled, n)
	s.changed = max(s.changed, n)
}

// Request asks for a barrier without waiting for the interval or a change. A kind
// other than MarkBarrier closes the last batch: nothing is injected after it,
// unless it is given up; then it is closed again, in the same way. MarkLastBarrier
// takes the place of a MarkEnd that was not yet injected, but not the reverse.
func (s *Schedule) Request(kind tuple.MarkKind) {
	switch {
	case kind == tuple.MarkBarrier:
		s.forced = true
	case s.last == tuple.MarkNone, s.lastSent == 0 && kind == tuple.MarkLastBarrier:
		s.last = kind
	}
}

// Quiet reports whether everything that happened is committed.
func (s *Schedule) Quiet() bool { return s.pending() == 0 && s.changed <= s.committed }

func (s *Schedule) pending() int { return int(s.next - 1 - s.settled) }

// idle reports whether nothing has changed that is neither committed nor in a
// batch which still may be.
func (s *Schedule) idle() bool {
	if s.pending() > 0 {
		return s.changed < s.next
	}
	return s.changed <= s.committed
}

func (s *Schedule) full() bool { return s.cfg.MaxPending > 0 && s.pending() >= s.cfg.MaxPending }

// closed reports whether the last batch is closed and was not given up.
func (s *Schedule) closed() bool {
	return s.lastSent > s.settled || s.lastSent != 0 && s.lastSent <= s.committed
}

// Decide returns what to do at a moment, and takes it as done. Inject and Resume
// are never both set.
func (s *Schedule) Decide(now time.Duration) Decision {
	switch {
	case s.full(), s.closed():
		return Decision{}
	case s.last != tuple.MarkNone:
		return Decision{Inject: s.inject(now, s.last)}
	case s.forced, !s.idle() && now >= s.due:
		return Decision{Inject: s.inject(now, tuple.MarkBarrier)}
	}
	d := Decision{Resume: s.paused}
	s.paused = false
	if !s.idle() {
		d.WakeAt = s.due
	}
	return d
}

func (s *Schedule) inject(now time.Duration, kind tuple.MarkKind) Injection {
	in := Injection{Batch: s.next, Kind: kind}
	s.next++
	s.due = now + s.cfg.Interval
	s.forced = false
	if kind != tuple.MarkBarrier {
		s.lastSent = in.Batch
	}
	in.Pause = kind != tuple.MarkBarrier || s.full()
	s.paused = in.Pause
	return in
}
