package slots

import (
	"fmt"

	"github.com/isobar-io/isobar/engine/cluster"
)

func (t *Table) apply(ev Event) {
	switch ev := ev.(type) {
	case Recovered:
		t.recovered(ev)
	case Listed:
		t.listed(ev)
	case Assigned:
		t.assigned(ev.Assignment)
	case Removed:
		if o, ok := t.orders[ev.ID]; ok && !o.Gone {
			o.Gone = true
			t.changes++
		}
	case MasterSeen:
		t.masterSeen(ev)
	case Looked:
		t.looked(ev)
	case Exited:
		t.exited(ev)
	case Cleaned:
		if s := t.slots[ev.Place]; s != nil && s.Phase == Cleaning {
			delete(t.slots, ev.Place)
			t.changes++
			if o, ok := t.orders[ev.Place.ID]; ok {
				t.follow(o) // it may be wanted by another epoch
			}
		}
	case HealthFound:
		t.unhealthy = ev.Unhealthy
		t.changes++
	case BlobsChanged:
		for _, p := range ev.Places {
			t.again(t.slots[p])
		}
	case KillOrdered:
		t.killOrdered()
	case Closing:
		t.closing = &ev
	case Prepared, PrepareFailed, Started, StartFailed:
		t.launched(ev)
	case Ticked:
	}
}

// launched takes how a start goes on.
func (t *Table) launched(ev Event) {
	switch ev := ev.(type) {
	case Prepared:
		t.prepared(ev.Place)
	case PrepareFailed:
		if s := t.in(ev.Place, Preparing); s != nil {
			t.failed(s, ev.Reason)
		}
	case Started:
		if s := t.in(ev.Place, Starting); s != nil {
			s.PID, s.Birth, s.Since = ev.PID, ev.Birth, t.at.Unix
			t.run(s)
		}
	case StartFailed:
		if s := t.in(ev.Place, Starting); s != nil {
			t.failed(s, ev.Reason)
		}
	}
}

// in returns the slot of a place if it is in a phase.
func (t *Table) in(p Place, phase Phase) *Slot {
	if s := t.slots[p]; s != nil && s.Phase == phase {
		return s
	}
	return nil
}

// run begins to watch a process.
func (t *Table) run(s *Slot) {
	t.set(s, Running)
	s.Ordered = false
	s.began, s.beat, s.beaten, s.still = t.at.Now, t.at.Now, false, 0
}

// again ends a process that is to be started again.
func (t *Table) again(s *Slot) {
	if s != nil && s.Phase == Running {
		t.terminate(s, true)
	}
}

// killOrdered ends all. What has vanished is not started again: an operator has the last
// word where the store has none.
func (t *Table) killOrdered() {
	for _, o := range t.orders {
		if o.Gone && !o.Stop {
			o.Stop = true
			t.changes++
		}
	}
	for _, p := range t.sorted() {
		if _, known := t.wish(p); known {
			t.again(t.slots[p])
		} else if s := t.in(p, Running); s != nil {
			t.terminate(s, false)
		}
	}
}

func (t *Table) recovered(ev Recovered) {
	adopted := map[Place]bool{}
	for _, a := range ev.Alive {
		s := t.slots[a.Place]
		if s == nil {
			s = &Slot{Place: a.Place, Since: t.at.Unix}
			t.slots[a.Place] = s
		}
		s.Epoch, s.Incarnation, s.PID, s.Birth = a.Epoch, a.Incarnation, a.PID, a.Birth
		t.last = max(t.last, a.Incarnation)
		adopted[a.Place] = true
		if s.Phase == Starting {
			s.Since = t.at.Unix
		}
		ordered := s.Ordered && s.Phase.Alive()
		t.run(s)
		t.do(Adopt{Slot: *s})
		if ordered {
			t.terminate(s, false)
		}
	}
	for _, e := range ev.Ended {
		if !adopted[e.Place] {
			t.exited(e)
		}
	}
	for _, p := range t.sorted() {
		if s := t.slots[p]; s.Phase.Alive() && !adopted[p] {
			t.exited(Exited{Place: p, Incarnation: s.Incarnation, Code: -1, How: "ended while no supervisor was there"})
		}
	}
}

func (t *Table) listed(ev Listed) {
	t.mark = ev.Mark
	there := map[string]bool{}
	for _, id := range ev.Unread {
		there[id] = true
	}
	for _, a := range ev.Assignments {
		there[a.ID] = true
		t.assigned(a)
		if o, ok := t.orders[a.ID]; ok && (o.Mark != ev.Mark || o.Missed > 0) {
			o.Mark, o.Missed = ev.Mark, 0
			t.changes++
		}
	}
	for id, o := range t.orders {
		if there[id] {
			continue
		}
		if !o.Gone {
			o.Gone = true
			t.changes++
		}
		if ev.Mark == "" || ev.Mark != o.Mark || o.Stop {
			continue
		}
		o.Missed++
		o.Stop = o.Missed >= missedMax
		t.changes++
	}
}

// assigned takes an assignment. One that never named this supervisor is of no interest.
func (t *Table) assigned(a cluster.Assignment) {
	t.replaced(a)
	o, known := t.orders[a.ID]
	switch {
	case !known && len(places(a, t.lim.Supervisor)) == 0 && !t.uses(a.ID):
	case !known:
		t.orders[a.ID] = &order{Assignment: a, Mark: t.mark}
		t.changes++
	case !o.later(a):
		t.complain(Place{ID: a.ID, Role: cluster.RoleMaster}, "assignment %d of epoch %d is older than %d of epoch %d, and is ignored",
			a.Number, a.Version.Epoch, o.Number, o.Version.Epoch)
	case o.Gone || o.Number != a.Number || o.Version.Epoch != a.Version.Epoch || o.Stop != a.Stop:
		o.Assignment, o.Gone = a, false
		t.changes++
	}
}

// replaced: a name belongs to one topology at a time. If one that has vanished has left
// its name to another, which has a place, it is over.
func (t *Table) replaced(by cluster.Assignment) {
	if by.Master == "" && len(by.Workers) == 0 {
		return
	}
	for id, o := range t.orders {
		if o.Gone && !o.Stop && id != by.ID && o.Topology == by.Topology {
			o.Stop = true
			t.changes++
		}
	}
}

// uses reports whether a topology has a place here.
func (t *Table) uses(id string) bool {
	for p := range t.slots {
		if p.ID == id {
			return true
		}
	}
	return false
}

func (t *Table) masterSeen(ev MasterSeen) {
	old := t.masters[ev.ID]
	newer := ev.Record.Epoch > old.Epoch || ev.Record.Epoch == old.Epoch && ev.Record.Incarnation > old.Incarnation
	if _, known := t.orders[ev.ID]; known && newer {
		t.masters[ev.ID] = ev.Record
		t.changes++
	}
}

// prepared gives the process its incarnation and has it started, if it is still wanted.
func (t *Table) prepared(p Place) {
	s := t.in(p, Preparing)
	if s == nil {
		return
	}
	a, _ := t.wish(p)
	if s.abandon || a == nil || a.Version.Epoch != s.Epoch || t.held() || t.closing != nil {
		t.set(s, Waiting)
		s.due = t.at.Now
		return
	}
	start := Start{Place: p, Assignment: *a}
	s.Incarnation = max(uint64(max(t.at.Unix, 0)), t.last+1)
	if m, ok := t.masters[p.ID]; ok {
		if p.Role == cluster.RoleMaster {
			s.Incarnation = max(s.Incarnation, m.Incarnation+1) // it was on another machine
		} else {
			start.Master = &m
		}
	}
	t.last = s.Incarnation
	s.Number, s.Ordered = a.Number, false
	start.Incarnation = s.Incarnation
	t.set(s, Starting)
	t.do(start)
}

// looked judges a process by its beat. It counts the looks, too: after the machine or
// this supervisor was suspended, the first look may come before the process had a chance.
func (t *Table) looked(ev Looked) {
	s := t.in(ev.Place, Running)
	if s == nil || s.Incarnation != ev.Incarnation {
		return
	}
	if ev.Changed {
		s.beat, s.beaten, s.still = t.at.Now, true, 0
		return
	}
	s.still++
	limit := t.lim.StartTimeout
	if s.beaten {
		limit = t.lim.BeatTimeout
	}
	if silent := t.at.Now - s.beat; silent > limit && s.still >= looksMin {
		t.complain(s.Place, "process %d has given no sign for %s: it is told to write its stacks, and ended", s.PID, silent)
		t.set(s, Dumping)
		s.due = t.at.Now + t.lim.DumpTime
		t.do(DumpStacks{Place: s.Place})
	}
}

func (t *Table) exited(ev Exited) {
	s := t.slots[ev.Place]
	if s == nil || !s.Phase.Alive() || s.Incarnation != ev.Incarnation {
		return
	}
	hung := s.Phase == Dumping || s.Phase == Killing && !s.Ordered
	s.PID, s.Birth, s.Since, s.Exit = 0, "", t.at.Unix, ev.How
	t.changes++
	switch {
	case s.Ordered || t.ending():
		t.set(s, Waiting)
		s.due, s.pause = t.at.Now, 0
	case ev.Code == cluster.ExitDone && !hung:
		t.set(s, Done)
	default:
		s.Restarts++
		if hung {
			s.Exit = "it gave no sign: " + s.Exit
		}
		if t.at.Now-s.began >= t.lim.Settled {
			s.pause = 0
		}
		if (ev.Code == cluster.ExitUsage || ev.Code == cluster.ExitFenced) && !hung {
			s.pause = t.lim.RestartMax
		}
		t.failed(s, s.Exit)
	}
}

// failed has a slot wait, each time twice as long.
func (t *Table) failed(s *Slot, reason string) {
	t.set(s, Waiting)
	if s.abandon {
		s.abandon, s.due = false, t.at.Now
		return
	}
	s.pause = max(s.pause, t.lim.RestartMin)
	s.due = t.at.Now + s.pause
	if s.Exit != reason {
		s.Exit = reason
		t.changes++
	}
	t.complain(s.Place, "%s; next attempt in %s", fmt.Sprint(reason), s.pause)
	s.pause = min(2*s.pause, t.lim.RestartMax)
}
