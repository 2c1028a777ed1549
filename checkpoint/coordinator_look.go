package checkpoint

import "time"

// Look is how a region looks from outside, for metrics and people.
type Look struct {
	Phase      string // what it is doing, in words: "running", "restoring", …
	Running    bool   // its tasks run
	Over       bool   // it has finished or failed
	Idle       bool   // its tasks run, and nothing has changed since the last commit
	Generation Generation
	Pending    int // batches that are closed, and neither committed nor given up
	// OutageSince is when the store became unreachable; 0 if it is not.
	OutageSince time.Duration
}

// Look returns how the region looks after the last Step.
func (c *Coordinator) Look() Look {
	l := Look{
		Phase:      c.phase.String(),
		Running:    c.phase == phaseRunning || c.phase == phaseFinishing,
		Over:       c.phase == phaseOver,
		Generation: c.generation,
		Pending:    len(c.batches),
	}
	if l.Running && c.schedule != nil {
		l.Idle = c.schedule.Quiet()
	}
	if c.outage.on {
		l.OutageSince = max(c.outage.since, 1)
	}
	return l
}
