package nimbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/schedule"
	"github.com/isobar-io/isobar/engine/config"
)

// place has the scheduler say where everything runs, and writes the assignments that differ.
func (l *leader) place(ctx context.Context, outcomes map[string]outcome) error {
	now := time.Now()
	var errs []error
	var view schedule.View
	for id, s := range l.supervisors.all() {
		view.Supervisors = append(view.Supervisors, schedule.Supervisor{Supervisor: labelled(s), Alive: !l.silentSupervisor(id, now)})
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
		s.apart = b.miss(a, b.run.Workers, now)
	}
	if at, ok := l.placed[t.ID]; ok {
		s.launching = now.Sub(at) <= s.silence
		s.silence = min(s.silence, now.Sub(at))
	}
	s.launching = s.launching || s.run == nil
	lost := map[cluster.Slot]bool{}
	for _, slot := range s.workersLost(l.limits) {
		lost[slot] = true
	}
	for _, w := range a.Workers {
		places = append(places, schedule.Place{WorkerPlace: w, Dead: lost[w.Slot]})
	}
	return places, a.Master, s.masterLost(l.limits)
}

// bind ties a topology whose checkpoints are in a folder of one machine to that machine: on
// another one it would begin from nothing. It returns why it cannot run, if it cannot.
func (l *leader) bind(ctx context.Context, t *cluster.Topology, now time.Time) (why string, err error) {
	conf, err := config.OfJSON("", t.Version.Config)
	if err != nil {
		return fmt.Sprintf("its configuration is refused by this version of Isobar: %v", err), nil
	}
	if t.Machine != "" || !unshared(conf) {
		return "", nil
	}
	switch all := machines(l.present(now)); {
	case len(all) == 0:
		return "no supervisor is alive", nil
	case len(all) > 1:
		return fmt.Sprintf("its checkpoints are in a folder, %s, and there are %d machines by now: it is not known which has it. Submit it again with a store that all of them see", conf.String("checkpoint.store"), len(all)), nil
	default:
		t.Machine = all[0]
	}
	return "", l.topologies.set(ctx, t.Name, *t)
}

// assignTo writes the assignment that follows from a placement, unless it is there.
func (l *leader) assignTo(ctx context.Context, t cluster.Topology, p schedule.Placement, now time.Time) error {
	l.waits(t.Name, strings.Join(p.Conditions, "; "))
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
