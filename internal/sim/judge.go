package sim

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/nimbus"
	"github.com/isobar-io/isobar/engine/cluster/schedule"
)

// look brings everything to where it is to be: one write after the other, until there is
// none left to make.
func (d *daemon) look() {
	switch {
	case !d.leads || !d.open || d.busy:
		return
	case d.p.cutOff:
		d.p.cutOff, d.away = false, true
		d.look()
		return
	case d.silent || !d.records().reachable(d.p):
		d.away = true
		d.lookLater(300 * time.Millisecond)
		return
	case d.away || d.stale:
		d.read(func() {
			if d.away {
				d.heard, d.last = d.p.clock(), map[string]time.Duration{}
			}
			d.away, d.stale = false, false
			d.look()
		})
		return
	}
	if d.p.clock()-d.cleaned >= d.w.fleet.timing.Unneeded/2 { // an earlier leader may have written something late
		d.cleaned = d.p.clock()
		d.read(d.look)
		return
	}
	changes := d.next()
	if len(changes) == 0 {
		d.lookLater(d.w.fleet.timing.Monitor)
		return
	}
	d.make(changes)
}

// change is a write that is to be made; without a value it deletes.
type change struct {
	key   string
	value any
}

// make makes changes, and then looks again.
func (d *daemon) make(changes []change) {
	if len(changes) == 0 {
		d.look()
		return
	}
	d.write(changes[0].key, changes[0].value, func(err error) {
		if d.stale = err != nil; d.stale {
			d.lookLater(300 * time.Millisecond)
			return
		}
		d.make(changes[1:])
	})
}

func (d *daemon) lookLater(after time.Duration) {
	d.looks++
	n := d.looks
	d.w.after(after, d.in(func() {
		if d.looks == n {
			d.look()
		}
	}))
}

// next returns the next changes that are to be made.
func (d *daemon) next() []change {
	var wanted, frozen []cluster.Topology
	for _, key := range d.keys(cluster.BucketTopologies + "/") {
		t := d.kept[key].value.(cluster.Topology)
		out := nimbus.Decide(d.about(t))
		if !reflect.DeepEqual(out.Topology, t) {
			return []change{{key, out.Topology}}
		}
		if changes := d.apply(t, out); changes != nil {
			return changes
		}
		if out.Runs {
			wanted = append(wanted, t)
		} else {
			frozen = append(frozen, t)
		}
	}
	if changes := d.clean(); changes != nil {
		return changes
	}
	return d.assign(wanted, frozen)
}

// clean ends what no topology has needed for a while: an assignment may be written to a
// store that has just lost its topology.
func (d *daemon) clean() []change {
	ids := map[string]bool{cluster.KeyMark: true}
	for _, key := range d.keys(cluster.BucketTopologies + "/") {
		ids[d.kept[key].value.(cluster.Topology).ID] = true
	}
	for _, key := range d.keys(cluster.BucketAssignments + "/") {
		id := strings.TrimPrefix(key, cluster.BucketAssignments+"/")
		since, known := d.unused[id]
		switch {
		case ids[id]:
			delete(d.unused, id)
		case !known:
			d.unused[id] = d.p.clock()
		case d.p.clock()-since >= d.w.fleet.timing.Unneeded:
			a, _ := d.assignment(id)
			if changes := d.ending(a); changes != nil {
				return changes
			}
		}
	}
	return nil
}

func (d *daemon) keys(prefix string) []string {
	var keys []string
	for key, e := range d.kept {
		if strings.HasPrefix(key, prefix) && e.value != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (d *daemon) wall() time.Time { return time.Unix(0, d.machine.unix()).UTC() }

// about returns what is known of a topology.
func (d *daemon) about(t cluster.Topology) nimbus.Case {
	f := d.w.fleet
	c := nimbus.Case{
		Now: d.wall(), StopLimit: f.timing.StopLimit, Topology: t,
		Settled: d.p.clock()-d.heard >= f.timing.Times.Supervisor,
	}
	if a, ok := d.assignment(t.ID); ok {
		c.Assignment = &a
	}
	if run, ok := d.runs[t.ID]; ok && run.Epoch == t.Version.Epoch {
		c.Run = &run
	}
	return c
}

func (d *daemon) assignment(id string) (cluster.Assignment, bool) {
	a, ok := d.kept[cluster.BucketAssignments+"/"+id].value.(cluster.Assignment)
	return a, ok
}

// apply returns what is to be written of one topology, but for where it runs.
func (d *daemon) apply(t cluster.Topology, out nimbus.Verdict) []change {
	bucket := cluster.TopologyBucket(t.ID) + "/"
	if out.Forget {
		var gone []change
		for _, key := range append(d.keys(bucket), cluster.BucketTopologies+"/"+t.Name) {
			gone = append(gone, change{key: key})
		}
		return gone
	}
	intent := cluster.Intent{Epoch: t.Version.Epoch, Active: out.Active, Stop: out.Stop}
	if !reflect.DeepEqual(d.kept[bucket+cluster.KeyIntent].value, any(intent)) {
		return []change{{bucket + cluster.KeyIntent, intent}}
	}
	if a, assigned := d.assignment(t.ID); assigned && out.Ends {
		return d.ending(a)
	}
	return nil
}

// ending ends the processes of an assignment, and then removes it.
func (d *daemon) ending(a cluster.Assignment) []change {
	switch {
	case !a.Stop:
		a.Stop = true
		a.Number++
		return d.put(a)
	case !d.runsSomewhere(a.ID):
		return []change{{key: cluster.BucketAssignments + "/" + a.ID}}
	}
	return nil
}

// put returns the writes that an assignment takes: that for its topology master comes
// first.
func (d *daemon) put(a cluster.Assignment) []change {
	return append(d.copyOf(a), change{cluster.BucketAssignments + "/" + a.ID, a})
}

// copyOf returns the one for the topology master, if it is not there.
func (d *daemon) copyOf(a cluster.Assignment) []change {
	own := cluster.TopologyBucket(a.ID) + "/" + cluster.KeyAssignment
	if reflect.DeepEqual(d.kept[own].value, any(a)) {
		return nil
	}
	return []change{{own, a}}
}

func (d *daemon) runsSomewhere(id string) bool {
	for _, s := range d.supervisors() {
		if !s.Alive {
			continue
		}
		for _, p := range s.Processes {
			if p.ID == id && p.Running {
				return true
			}
		}
	}
	return false
}

func (d *daemon) supervisors() []schedule.Supervisor {
	var all []schedule.Supervisor
	for _, key := range d.keys(cluster.BucketSupervisors + "/") {
		s := d.kept[key].value.(cluster.Supervisor)
		all = append(all, schedule.Supervisor{Supervisor: s, Alive: d.silence(s.ID) <= d.w.fleet.timing.Times.Supervisor})
	}
	return all
}

// assign returns the changes that follow from where the scheduler says that topologies are
// to run.
func (d *daemon) assign(wanted, frozen []cluster.Topology) []change {
	view := schedule.View{Supervisors: d.supervisors()}
	for i, t := range slices.Concat(wanted, frozen) {
		place := schedule.Topology{Record: t, Frozen: i >= len(wanted)}
		a, assigned := d.assignment(t.ID)
		if assigned && (place.Frozen || a.Version.Epoch == t.Version.Epoch) {
			place.Places, place.Master, place.MasterDead = d.standing(a)
		}
		if assigned || !place.Frozen {
			view.Topologies = append(view.Topologies, place)
		}
	}
	plan := schedule.Even(view)
	for _, t := range wanted {
		p := plan[t.ID]
		if p.Master == "" || len(p.Workers) == 0 || len(p.Unplaced) > 0 {
			continue
		}
		old, was := d.assignment(t.ID)
		a := cluster.Assignment{Topology: t.Name, ID: t.ID, Number: old.Number, Version: t.Version, Master: p.Master, Workers: p.Workers}
		if was && reflect.DeepEqual(a, old) {
			if changes := d.copyOf(old); changes != nil {
				return changes
			}
			continue
		}
		if !was || old.Master != a.Master || old.Version.Epoch != a.Version.Epoch {
			d.placed[t.ID] = d.p.clock()
		}
		a.Number++
		return d.put(a)
	}
	return nil
}

// standing returns where a topology runs now, and who of it is dead.
func (d *daemon) standing(a cluster.Assignment) (places []schedule.Place, master string, dead bool) {
	now := d.p.clock()
	s := nimbus.Standing{
		Assignment: a,
		Silence:    d.silence("master of " + a.ID),
		Supervisor: func(id string) (cluster.Supervisor, time.Duration) {
			s, _ := d.kept[cluster.BucketSupervisors+"/"+id].value.(cluster.Supervisor)
			return s, d.silence(id)
		},
	}
	if run, ok := d.runs[a.ID]; ok && run.Epoch == a.Version.Epoch {
		s.Run = &run
		s.Reporting = min(now-d.began[a.ID], now-d.heard)
	}
	if at, ok := d.placed[a.ID]; ok {
		s.Launching = now-at <= s.Silence
		s.Silence = min(s.Silence, now-at)
	}
	s.Launching = s.Launching || s.Run == nil
	if s.Run != nil && !d.w.is(MastersWord) {
		deaf := *s.Run
		deaf.Workers = nil
		s.Run = &deaf
	}
	dead, lost := s.Lost(d.w.fleet.timing.Times)
	for _, p := range a.Workers {
		avoid, is := lost[p.Slot]
		places = append(places, schedule.Place{WorkerPlace: p, Dead: is, Avoid: avoid})
	}
	return places, a.Master, dead
}
