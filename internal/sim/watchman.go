package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// What must hold of a cluster, besides what the checker knows of the data.

// made is a task in a generation.
type made struct {
	slot taskID
	gen  generation
}

// makes checks that no task is made twice in a generation.
func (c *checker) makes(s *slot, g generation) {
	if c.made[made{s.id, g}] {
		c.w.violate("task %d of generation %d is made twice", s.id, g)
	}
	c.made[made{s.id, g}] = true
}

// failed checks that no topology gives up while nothing is wrong with it.
func (o *orders) failed(c *chief, err error) {
	for _, may := range []error{errElsewhere, errReplaced, errNotKept} {
		if errors.Is(err, may) {
			return
		}
	}
	if !o.f.w.leads(c.m) { // it does not know yet that it is fenced
		o.f.w.count("zombie gave up")
		return
	}
	o.f.w.violate("%s gives up: %v", c.p.name, err)
}

// written checks what nimbus writes.
func (o *orders) written(key string, before *entry, value any) {
	if before == nil {
		return
	}
	switch now := value.(type) {
	case cluster.Assignment:
		if was, ok := before.value.(cluster.Assignment); ok && strings.HasPrefix(key, cluster.BucketAssignments+"/") {
			o.assigned(was, now)
		}
	case cluster.Topology:
		if was, ok := before.value.(cluster.Topology); ok {
			o.changed(was, now)
		}
	}
}

// changed checks that a version which does not work is not taken for one that does. What
// the one before has committed at the last moment may be mistaken for its work.
func (o *orders) changed(was, now cluster.Topology) {
	current := map[string]checkpoint.Ref{}
	if h := o.f.w.store.head; h != nil {
		for name, r := range h.Regions {
			if ref := r.Current(); ref != nil {
				current[name] = *ref
			}
		}
	}
	if now.Step == cluster.StepTry && was.Step != cluster.StepTry {
		o.tried = current
	}
	if now.Step == cluster.StepReturn {
		o.left[fmt.Sprintf("%s/%d", now.ID, now.Version.Epoch)] = now.Left
	}
	if was.Step == "" || now.Step != "" || !o.f.programs[now.Version.Binary.SHA256].broken {
		return
	}
	if now.Status != cluster.Active && now.Status != cluster.Inactive {
		return
	}
	o.f.w.count("broken version accepted")
	if maps.Equal(o.tried, current) {
		o.f.w.violate("epoch %d of %s counts as working, though it has committed nothing", now.Version.Epoch, now.ID)
	}
}

// began checks that what ran before an update takes its place again only where it had left
// off: not once the update has committed.
func (o *orders) began(r *region, was, is checkpoint.RegionHead) {
	left, returns := o.left[is.Started]
	if !returns {
		return
	}
	now := ""
	if ref := was.Current(); ref != nil {
		now = ref.String()
	}
	if now != left[r.name] {
		o.f.w.violate("%s: start %s takes an update back, which has gone on from %q to %q", r.name, is.Started, left[r.name], now)
	}
	o.f.w.count("update taken back")
}

// assigned checks an assignment: who is connected to the topology master and does well stays
// where he is.
func (o *orders) assigned(was, now cluster.Assignment) {
	if was.Version.Epoch != now.Version.Epoch {
		return
	}
	for _, p := range was.Workers {
		if slices.ContainsFunc(now.Workers, func(q cluster.WorkerPlace) bool { return q.Slot == p.Slot }) {
			continue
		}
		o.f.w.count("worker moved")
		if since, ok := o.well(was, p); ok {
			o.f.w.violate("worker %s is moved, though it is connected to its topology master since %v", p.ID(), since)
		}
	}
	if was.Master != now.Master {
		o.f.w.count("master moved")
	}
}

// well reports since when a worker has been connected to the topology master of an
// assignment, if that is so long that nimbus must know it.
func (o *orders) well(a cluster.Assignment, p cluster.WorkerPlace) (time.Duration, bool) {
	f := o.f
	long := f.timing.Times.Task + f.timing.Times.Task/4 + 3*time.Second
	for _, x := range f.processes {
		if x.dead || x.paused || x.hosted == nil || x.hosted.astray || x.hosted.epoch != a.Version.Epoch || x.machine.id != a.Master {
			continue
		}
		c, ok := x.hosted.main.(*chief)
		if !ok || c.ended || c.spec.id != a.ID {
			continue
		}
		m := c.crew.member(p.ID())
		if m != nil && !m.at.p.dead && !m.at.p.paused && !*m.cut && f.w.now-m.since > long {
			return m.since, true
		}
	}
	return 0, false
}

// state describes who waits for what, for runs that are stuck.
func (o *orders) state() string {
	var sb strings.Builder
	for _, key := range o.f.records.keys("") {
		fmt.Fprintf(&sb, "%s = %s\n", key, o.f.show(o.f.records.kept[key].value))
	}
	for _, d := range o.f.daemons {
		fmt.Fprintf(&sb, "%s: leads %v, open %v, busy %v, stale %v, away %v\n", d.p.name, d.leads, d.open, d.busy, d.stale, d.away)
	}
	for _, p := range o.f.processes {
		if p.dead || p.hosted == nil {
			continue
		}
		switch main := p.hosted.main.(type) {
		case *chief:
			fmt.Fprintf(&sb, "%s: incarnation %d, workers %v, place %v, ended %v\n", p.name, main.spec.incarnation, main.crew.workers(), main.crew.place, main.ended)
			for _, l := range main.m.regions {
				fmt.Fprintf(&sb, "  %s generation %d: %+v\n", l.region.name, l.gen, l.core.Look())
			}
		case *hand:
			address := "nowhere"
			if main.address != nil {
				address = main.address.p.name
			}
			fmt.Fprintf(&sb, "%s: incarnation %d, knows topology master %d at %s, connected %v\n", p.name, main.spec.incarnation, main.newest, address, main.up != nil)
			for _, part := range main.parts {
				fmt.Fprintf(&sb, "  generation %d: tasks %v, linked %v, stopped %v\n", part.gen, part.ids, part.linked, part.stopped)
			}
		}
	}
	return sb.String()
}
