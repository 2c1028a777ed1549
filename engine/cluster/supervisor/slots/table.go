package slots

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Table is all that a supervisor knows of its slots. It is not safe for concurrent use.
type Table struct {
	lim     Limits
	orders  map[string]*order // by topology id
	masters map[string]cluster.MasterRecord
	slots   map[Place]*Slot
	last    uint64 // highest incarnation that was ever given
	mark    string // of the last listing

	unhealthy string
	closing   *Closing

	changes uint64
	at      Moment
	out     []Action
}

// State is what a Table keeps on disk.
type State struct {
	Last    uint64                          `json:"last"`
	Orders  []*order                        `json:"orders"`
	Masters map[string]cluster.MasterRecord `json:"masters,omitempty"`
	Slots   []Slot                          `json:"slots"`
}

// New returns a Table that goes on from what a former one has kept. Its first event is
// Recovered.
func New(lim Limits, s State) *Table {
	t := &Table{lim: lim, orders: map[string]*order{}, masters: map[string]cluster.MasterRecord{}, slots: map[Place]*Slot{}, last: s.Last}
	for _, o := range s.Orders {
		t.orders[o.ID] = o
	}
	maps.Copy(t.masters, s.Masters)
	for _, slot := range s.Slots {
		if !slot.Phase.Alive() && slot.Phase != Done {
			slot.Phase = Waiting
		}
		t.slots[slot.Place] = &slot
	}
	return t
}

// State returns what is to be kept on disk. It shares nothing that changes.
func (t *Table) State() State {
	s := State{Last: t.last, Masters: maps.Clone(t.masters), Slots: t.Slots()}
	for _, id := range slices.Sorted(maps.Keys(t.orders)) {
		o := *t.orders[id]
		s.Orders = append(s.Orders, &o)
	}
	return s
}

// Changes goes up whenever State may have changed.
func (t *Table) Changes() uint64 { return t.changes }

// Slots returns all places in use, in order.
func (t *Table) Slots() []Slot {
	all := make([]Slot, 0, len(t.slots))
	for _, p := range t.sorted() {
		all = append(all, *t.slots[p])
	}
	return all
}

// Assignment returns the newest assignment of a topology that is known.
func (t *Table) Assignment(id string) (cluster.Assignment, bool) {
	if o, ok := t.orders[id]; ok {
		return o.Assignment, true
	}
	return cluster.Assignment{}, false
}

// Topologies returns the ids of those that have, or may get, a place here.
func (t *Table) Topologies() []string { return slices.Sorted(maps.Keys(t.orders)) }

// Closed reports whether everything has come to rest that must before the supervisor ends.
func (t *Table) Closed() bool {
	if t.closing == nil {
		return false
	}
	for _, s := range t.slots {
		switch {
		case s.Phase == Preparing, s.Phase == Starting, s.Phase == Cleaning:
			return false
		case t.closing.EndProcesses && s.Phase.Alive():
			return false
		}
	}
	return true
}

// Next returns when Ticked is due, if it is.
func (t *Table) Next() (time.Duration, bool) {
	var next time.Duration
	found := false
	for _, s := range t.slots {
		switch s.Phase {
		case Waiting, Dumping, Ending, Killing:
			// What waits for something else is seen to when that happens.
			if s.due > t.at.Now && (!found || s.due < next) {
				next, found = s.due, true
			}
		default:
		}
	}
	return next, found
}

// Step takes an event and returns what is to be done.
func (t *Table) Step(at Moment, ev Event) []Action {
	t.at, t.out = at, nil
	t.apply(ev)
	for _, id := range slices.Sorted(maps.Keys(t.orders)) {
		t.follow(t.orders[id])
	}
	for _, p := range t.sorted() {
		t.decide(t.slots[p])
	}
	return t.out
}

func (t *Table) sorted() []Place { return slices.SortedFunc(maps.Keys(t.slots), compare) }

func (t *Table) do(a Action) { t.out = append(t.out, a) }

func (t *Table) complain(p Place, format string, args ...any) {
	t.do(Complain{Place: p, Text: fmt.Sprintf(format, args...)})
}

// follow makes places for what an order wants, and forgets one that is gone and has
// nothing left here.
func (t *Table) follow(o *order) {
	if !o.Stop {
		for _, p := range places(o.Assignment, t.lim.Supervisor) {
			if t.slots[p] == nil {
				t.slots[p] = &Slot{Place: p, Phase: Waiting, Epoch: o.Version.Epoch, Since: t.at.Unix, due: t.at.Now}
				t.changes++
			}
		}
	}
	if !o.Gone {
		return
	}
	left, done := 0, 0
	for p, s := range t.slots {
		if p.ID == o.ID {
			left++
			if s.Phase == Done {
				done++
			}
		}
	}
	switch {
	case left == 0:
		delete(t.orders, o.ID)
		delete(t.masters, o.ID)
		t.changes++
	case left == done && !o.Stop:
		o.Stop = true // it has ended, and nobody wants it again
		t.changes++
	}
}

// wish returns the assignment that wants a process at a place, or nil; known is false if
// nobody has said anything about the place.
func (t *Table) wish(p Place) (a *cluster.Assignment, known bool) {
	o, ok := t.orders[p.ID]
	switch {
	case !ok:
		return nil, false
	case o.Stop || !names(o.Assignment, t.lim.Supervisor, p):
		return nil, true
	}
	return &o.Assignment, true
}

// ending: the supervisor ends and takes its processes with it.
func (t *Table) ending() bool { return t.closing != nil && t.closing.EndProcesses }

// held: no process may run now, wanted or not.
func (t *Table) held() bool { return t.unhealthy != "" || t.ending() }

// decide compares a slot with what it should be.
func (t *Table) decide(s *Slot) {
	a, known := t.wish(s.Place)
	fits := a != nil && a.Version.Epoch == s.Epoch
	stays := fits || !known
	switch s.Phase {
	case Waiting:
		switch {
		case !fits:
			t.clean(s)
		case !t.held() && t.closing == nil && t.at.Now >= s.due && t.free(s):
			t.set(s, Preparing)
			s.abandon = false
			t.do(Prepare{Place: s.Place, Assignment: *a})
		}
	case Preparing:
		if !s.abandon && (!stays || t.held() || t.closing != nil) {
			s.abandon = true
			t.do(Abandon{Place: s.Place})
		}
	case Running:
		if !stays || t.held() && t.mayEnd(s.Place) {
			t.terminate(s, stays)
		}
	case Dumping, Ending, Killing:
		if t.at.Now >= s.due {
			t.set(s, Killing)
			s.due = t.at.Now + t.lim.Grace
			t.do(Kill{Place: s.Place})
		}
	case Done:
		switch {
		case !fits:
			t.clean(s)
		case a.Number > s.Number: // the master may have moved just then, and the next one waits
			t.set(s, Waiting)
			s.due = t.at.Now
			t.decide(s)
		}
	case Starting, Cleaning:
	}
}

// mayEnd: a topology master that is to be started again takes a last checkpoint first,
// for which it needs its workers.
func (t *Table) mayEnd(p Place) bool {
	master := t.slots[Place{ID: p.ID, Role: cluster.RoleMaster}]
	return p.Role == cluster.RoleMaster || master == nil || !master.Phase.Alive()
}

// free reports whether a slot's port may be used, and lets the slot tell if not.
func (t *Table) free(s *Slot) bool {
	if s.Role == cluster.RoleMaster {
		return true
	}
	why := ""
	if !slices.Contains(t.lim.Ports, s.Port) {
		why = fmt.Sprintf("this supervisor has no slot %d", s.Port)
	}
	for _, p := range t.sorted() {
		other := t.slots[p]
		if p != s.Place && p.Port == s.Port && (other.Phase == Preparing || other.Phase.Alive()) {
			why = fmt.Sprintf("port %d is used by topology %s", s.Port, p.ID)
		}
	}
	switch {
	case why != s.blocked && why != "":
		s.Exit = why
		t.changes++
		t.complain(s.Place, "%s", why)
	case why != s.blocked:
		s.Exit = ""
		t.changes++
	}
	s.blocked = why
	return why == ""
}

func (t *Table) set(s *Slot, p Phase) {
	if s.Phase != p {
		s.Phase = p
		t.changes++
	}
}

func (t *Table) clean(s *Slot) {
	t.set(s, Cleaning)
	t.do(Clean{Place: s.Place})
}

// terminate asks a process to end. A topology master that is to be started again may
// take longer.
func (t *Table) terminate(s *Slot, again bool) {
	grace := t.lim.Grace
	if again && s.Role == cluster.RoleMaster {
		grace = t.lim.CloseGrace
	}
	t.set(s, Ending)
	s.Ordered, s.due = true, t.at.Now+grace
	t.do(Terminate{Place: s.Place})
}
