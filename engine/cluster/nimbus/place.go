package nimbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/schedule"
)

// place has the scheduler say where everything runs, and writes the assignments that differ.
func (l *leader) place(ctx context.Context, outcomes map[string]outcome) error {
	now := time.Now()
	var errs []error
	var view schedule.View
	for id, s := range l.supervisors.all() {
		alive := !l.undecided(now) && !l.silentSupervisor(id, now)
		s.Ports = l.freed(s)
		view.Supervisors = append(view.Supervisors, schedule.Supervisor{Supervisor: labelled(s), Alive: alive})
	}
	var wanted []cluster.Topology
	for name, t := range l.topologies.all() {
		out, decided := outcomes[name]
		a, assigned := l.assignments.get(t.ID)
		place := schedule.Topology{Record: t}
		if assigned {
			place.Places, place.Master, place.MasterDead = l.places(t, a, now)
		}
		runs := decided && out.place == placeRun && out.topology.ID == t.ID
		if runs {
			why, err := l.bind(ctx, &place.Record, now)
			errs = append(errs, err)
			if runs = why == "" && err == nil; !runs {
				l.waits(name, why)
			}
		} else {
			l.waits(name, "")
		}
		if place.Frozen = !runs; runs {
			wanted = append(wanted, place.Record)
			place.Record = confined(place.Record, view.Supervisors)
			if assigned && a.Version.Epoch != t.Version.Epoch { // all of it is made anew
				place.Places, place.Master, place.MasterDead = nil, "", false
			}
		}
		if runs || assigned {
			view.Topologies = append(view.Topologies, place)
		}
	}
	plan := l.schedule(view)
	for _, t := range wanted {
		if err := l.assignTo(ctx, t, plan[t.ID], now); err != nil {
			errs = append(errs, fmt.Errorf("topology %s: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// freed returns the ports of a supervisor without those of topologies that are not known, as
// when the store has lost everything: such a topology runs until its name is submitted again.
func (l *leader) freed(s cluster.Supervisor) []int {
	return slices.DeleteFunc(slices.Clone(s.Ports), func(port int) bool {
		return slices.ContainsFunc(s.Processes, func(p cluster.ProcessStatus) bool {
			name, ok := cluster.NameOfID(p.ID)
			_, known := l.topologies.get(name)
			return ok && !known && p.Running && p.Role == cluster.RoleWorker && p.Port == port
		})
	})
}

// waits notes why a topology has not what it wants; "" if it has.
func (l *leader) waits(name, why string) {
	if l.waiting[name] == why {
		return
	}
	if l.waiting[name] = why; why == "" {
		delete(l.waiting, name)
		return
	}
	l.Log.Warn("a topology has not what it wants", "topology", name, "why", why)
}

// places returns where a topology runs now, and who of it is dead.
func (l *leader) places(t cluster.Topology, a cluster.Assignment, now time.Time) (places []schedule.Place, master string, dead bool) {
	s := standing{
		assignment: a,
		silence:    l.heard.silence(masterOf(t.ID), now),
		supervisor: func(id string) (cluster.Supervisor, time.Duration) {
			s, _ := l.supervisors.get(id)
			return s, l.heard.silence(id, now)
		},
	}
	if b := l.own[t.ID]; b != nil && b.run != nil && b.run.Epoch == a.Version.Epoch {
		s.run = b.run
		s.reporting = min(now.Sub(b.since), now.Sub(l.heard.since))
		b.note(a, now)
		s.apart, s.unlinked = b.apart.lengths(now), b.unlinked.lengths(now)
	}
	if at, ok := l.placed[t.ID]; ok {
		s.launching = now.Sub(at) <= s.silence
		s.silence = min(s.silence, now.Sub(at))
	}
	s.launching = s.launching || s.run == nil
	lost := s.workersLost(l.limits)
	if l.undecided(now) { // those that are left would be given all of it
		lost = nil
	}
	for _, w := range a.Workers {
		avoid, dead := lost[w.Slot]
		places = append(places, schedule.Place{WorkerPlace: w, Dead: dead, Avoid: avoid})
	}
	return places, a.Master, s.masterLost(l.limits)
}

// assignTo writes the assignment that follows from a placement, unless it is there.
func (l *leader) assignTo(ctx context.Context, t cluster.Topology, p schedule.Placement, now time.Time) error {
	why := strings.Join(p.Conditions, "; ")
	if why != "" && l.undecided(now) {
		why = "it is not known yet which supervisors are alive"
	}
	l.waits(t.Name, why)
	if p.Master == "" || len(p.Workers) == 0 || len(p.Unplaced) > 0 {
		return nil
	}
	old, was := l.assignments.get(t.ID)
	a := cluster.Assignment{Topology: t.Name, ID: t.ID, Number: old.Number, Version: t.Version, Master: p.Master, Workers: p.Workers}
	same, err := sameJSON(a, old)
	if err != nil {
		return err
	}
	if was && same {
		return l.copyOf(ctx, old)
	}
	if !was || old.Master != a.Master || old.Version.Epoch != a.Version.Epoch {
		l.placed[t.ID] = now
	}
	a.Number++
	l.Log.Info("assigning", "topology", t.Name, "id", t.ID, "number", a.Number, "epoch", a.Version.Epoch, "master", a.Master, "workers", len(a.Workers))
	return l.assign(ctx, a)
}

// copyOf makes sure that the topology master sees the assignment that supervisors see.
func (l *leader) copyOf(ctx context.Context, a cluster.Assignment) error {
	b, err := l.bucketOf(ctx, a.ID)
	if err != nil {
		return err
	}
	return errors.Join(l.secret(ctx, a), b.put(ctx, cluster.KeyAssignment, a))
}

// sameJSON reports whether two values are kept as the same text: what was read has other
// types in it than what is to be written.
func sameJSON(a, b any) (bool, error) {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return bytes.Equal(x, y), errors.Join(err1, err2)
}
