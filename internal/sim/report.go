package sim

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// report tells how the run is, again and again.
func (c *chief) report() {
	if c.ended {
		return
	}
	c.tell()
	c.p.w.after(c.p.w.fleet.timing.Status, c.report)
}

// tell has the status written now, unless one is on its way: then after that.
func (c *chief) tell() {
	if c.ended {
		return
	}
	if c.telling {
		c.again = true
		return
	}
	c.telling, c.again = true, false
	c.note()
	c.p.w.fleet.records.put(cluster.TopologyBucket(c.spec.id)+"/"+cluster.KeyStatus, c.status(), func(uint64, error) {
		if c.telling = false; c.again {
			c.tell()
		}
	})
}

// note remembers on the machine that the run has begun.
func (c *chief) note() {
	if c.began || len(c.m.regions) == 0 || c.m.regions[0].gen == 0 {
		return
	}
	c.began = true
	c.p.machine.begun[c.once()] = true
}

func (c *chief) status() cluster.RunStatus {
	c.beat++
	s := cluster.RunStatus{
		Epoch: c.spec.epoch, Incarnation: c.spec.incarnation, Beat: c.beat, Phase: c.phase,
		Active: c.active, Workers: c.crew.workers(), Error: c.why, HeadMoved: c.elsewhere,
	}
	running := len(c.m.regions) > 0
	for _, l := range c.m.regions {
		r := cluster.RegionState{Name: l.region.name, Generation: l.gen, Running: l.started && !l.over}
		if l.last != nil {
			r.Last = l.last.String()
		}
		s.Regions = append(s.Regions, r)
		running = running && (r.Running || l.over)
	}
	if s.Phase == "" {
		s.Phase = cluster.PhaseStarting
		if running {
			s.Phase = cluster.PhaseRunning
		}
	}
	return s
}

// What an operator asks of a topology master.

var errNotRunning = errors.New("the region is not running: try again")

// saving is a savepoint that is being taken.
type saving struct {
	name  string
	reply func(error)
	after map[*lead]batchID // regions without it yet: the last batch that is too early
	edits map[int]bool      // pins under way
}

// savepoint takes a checkpoint of every region and pins it under a name.
func (c *chief) savepoint(name string, reply func(error)) {
	s := &saving{name: name, reply: reply, after: map[*lead]batchID{}, edits: map[int]bool{}}
	c.saving = append(c.saving, s)
	for _, l := range c.m.regions {
		if !l.started || l.over {
			c.saved(s, errNotRunning)
			return
		}
		s.after[l] = l.injected
	}
	if len(s.after) == 0 {
		c.saved(s, errNotRunning)
		return
	}
	for _, l := range c.m.regions {
		l.later(checkpoint.CheckpointRequested{})
	}
}

// saveAgain asks once more for the checkpoints that savepoints wait for.
func (c *chief) saveAgain(l *lead) {
	for _, s := range c.saving {
		if _, waits := s.after[l]; waits {
			s.after[l] = l.injected
			l.later(checkpoint.CheckpointRequested{})
		}
	}
}

// committed goes on with the savepoints that wait for a checkpoint of a region.
func (c *chief) committed(l *lead, g generation, n batchID) {
	if r := c.m.mover.Head().Regions[l.region.name]; r.Current() != nil {
		l.last = r.Current()
	}
	for _, s := range c.saving {
		if early, waits := s.after[l]; waits && n > early {
			delete(s.after, l)
			c.edits++
			s.edits[c.edits] = true
			c.m.move(checkpoint.EditRequested{ID: c.edits, Edit: checkpoint.PinEdit(g, n, s.name)})
		}
	}
}

// edited takes what has become of a pin.
func (c *chief) edited(a checkpoint.Edited) {
	for _, s := range c.saving {
		if !s.edits[a.ID] {
			continue
		}
		delete(s.edits, a.ID)
		if a.Err != nil || len(s.edits)+len(s.after) == 0 {
			c.saved(s, a.Err)
		}
		return
	}
}

func (c *chief) saved(s *saving, err error) {
	for i, other := range c.saving {
		if other == s {
			c.saving = append(c.saving[:i:i], c.saving[i+1:]...)
			break
		}
	}
	s.reply(err)
}

// rollback takes the region of a kept checkpoint back to it.
func (c *chief) rollback(g generation, n batchID, drop bool, reply func(error)) {
	if c.m.mover == nil || c.m.mover.Head() == nil {
		reply(errNotRunning)
		return
	}
	name, ref, ok := c.m.mover.Head().Find(g, n)
	if !ok {
		reply(fmt.Errorf("%w: %d.%d", errNotKept, g, n))
		return
	}
	l := c.m.lead(name)
	may := func() bool { return !l.over && l.started && !l.raising && l.rolling == nil }
	if !may() {
		reply(errNotRunning)
		return
	}
	c.p.w.store.get(ref.Manifest, func(v any, err error) {
		if err == nil && !may() {
			err = errNotRunning
		}
		if err != nil {
			reply(err)
			return
		}
		to, err := checkpoint.TargetOf(c.m.mover.Head(), name, ref, v.(*checkpoint.Manifest), drop)
		if err != nil {
			reply(err)
			return
		}
		l.rolling = reply
		l.step(checkpoint.RollbackRequested{To: to})
	})
}
