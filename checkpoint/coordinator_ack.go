package checkpoint

import "time"

// ack is the newest AckCommit. It covers all older ones, so these are dropped.
type ack struct {
	batch    BatchID
	last     bool
	waiting  map[TaskID]bool // tasks that have not confirmed it
	repeatAt time.Duration   // 0 = not needed
}

// ackCommit tells all reporting tasks that the current checkpoint is committed,
// which the head says: invariant I1.
func (c *Coordinator) ackCommit(now time.Duration, last bool) {
	c.ack = ack{batch: c.current.Batch, last: last, waiting: make(map[TaskID]bool, len(c.reporters))}
	for _, t := range c.reporters {
		c.ack.waiting[t] = true
	}
	c.sendAck(now)
}

func (c *Coordinator) sendAck(now time.Duration) {
	var tasks []TaskID
	for _, t := range c.reporters {
		if c.ack.waiting[t] {
			tasks = append(tasks, t)
		}
	}
	if c.cfg.AckRepeat > 0 {
		c.ack.repeatAt = now + c.cfg.AckRepeat
	}
	c.do(AckCommit{Generation: c.generation, Batch: c.ack.batch, Oldest: c.oldest, Last: c.ack.last, Tasks: tasks})
}

func (c *Coordinator) repeatAck(now time.Duration) {
	if c.ack.repeatAt != 0 && now >= c.ack.repeatAt {
		c.sendAck(now)
	}
}

func (c *Coordinator) ackConfirmed(ev AckConfirmed) {
	c.confirmed[ev.Task] = max(c.confirmed[ev.Task], ev.Batch)
	switch {
	case !c.ack.waiting[ev.Task]:
		c.note("task %d confirmed batch %d again, or unasked", ev.Task, ev.Batch)
		return
	case ev.Batch < c.ack.batch, c.ack.last && !ev.Last:
		return
	}
	delete(c.ack.waiting, ev.Task)
	if len(c.ack.waiting) > 0 {
		return
	}
	c.ack.repeatAt = 0
	if c.phase == phaseFinishing {
		c.finish()
	}
}

// settled returns the newest batch of which this generation knows that every task has
// acknowledged it, 0 if there is none. Later AckCommits cover earlier ones, so that each
// task counts with its own newest.
func (c *Coordinator) settled() BatchID {
	if c.current == nil {
		return 0
	}
	n := c.current.Batch
	for _, t := range c.reporters {
		n = min(n, c.confirmed[t])
	}
	return n
}
