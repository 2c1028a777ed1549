package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// orders is the operator of a cluster: what he asks for while everything goes wrong, and
// what must have become of it.
type orders struct {
	f      *fleet
	names  int // of submissions and savepoints
	wishes []*wish
	starts map[string]bool              // regions that have gone back at a start, by its name
	saved  []string                     // savepoints that were confirmed
	left   map[string]map[string]string // where the versions had left off that take their places again, by the name of the start
	tried  map[string]checkpoint.Ref    // the newest checkpoints when the last update was tried, by region
	asked  map[string]generation        // of the head, when a start was asked for, by its name
}

// wish is a rollback that the operator has asked for.
type wish struct {
	region string
	ref    checkpoint.Ref
	done   bool
}

const topologyName = "sim"

func newOrders(f *fleet) *orders {
	return &orders{f: f, starts: map[string]bool{}, asked: map[string]generation{}, left: map[string]map[string]string{}}
}

// begin submits the topology, and sees to it until all its input is processed.
func (o *orders) begin() {
	w := o.f.w
	o.attend()
	w.every(time.Duration(1+w.rng.IntN(6))*time.Second, o.act)
	w.queue.push(w.faults.Until+endBound, func() {
		if !w.done {
			w.violate("the topology is stuck\n%s", o.state())
		}
	})
}

// attend looks again and again how the topology is: one that is not there is submitted,
// one that has failed is killed, and one that is not active is activated in the end.
func (o *orders) attend() {
	w := o.f.w
	if w.done {
		return
	}
	w.queue.push(w.now+300*time.Millisecond+w.around(300*time.Millisecond), o.attend)
	o.ask(func(d *daemon) {
		t, ok := d.topology()
		switch {
		case !ok:
			o.submit(d)
		case t.Step == "" && t.Status.Runs() && t.Status != cluster.Killed && o.f.programs[t.Version.Binary.SHA256].broken:
			o.kill(d, t) // nothing else will help
		case t.Status == cluster.Failed:
			w.count("topology failed")
			o.kill(d, t)
		case t.Status == cluster.Inactive && w.now >= w.faults.Until:
			o.toggle(d, t, cluster.CommandActivate)
		case t.Status == cluster.Finished:
			o.finish()
		}
	})
}

func (o *orders) finish() {
	w := o.f.w
	if w.done || w.now < w.faults.Until && w.rng.IntN(8) > 0 { // what may still happen to it
		return
	}
	w.count("finished")
	w.done = true
	for _, r := range w.shape.regions {
		w.check.visible(r, true)
	}
	w.queue.push(w.now+w.linger(), o.f.end)
}

// ask lets do happen at the nimbus that leads, if one can be reached.
func (o *orders) ask(do func(*daemon)) {
	w := o.f.w
	for _, d := range o.f.daemons {
		if d.p == nil || d.p.dead || !d.valid() || !d.open || d.busy || d.stale || d.away || !d.p.reaches(toPeers) {
			continue
		}
		w.queue.push(w.now+w.hop(), func() {
			d.p.deliver(func() {
				if d.valid() && d.open && !d.busy && !d.stale && !d.away {
					do(d)
				}
			})
		})
		return
	}
}

// topology returns the topology as a leader knows it.
func (d *daemon) topology() (cluster.Topology, bool) {
	t, ok := d.kept[cluster.BucketTopologies+"/"+topologyName].value.(cluster.Topology)
	return t, ok
}

func (d *daemon) set(t cluster.Topology) {
	d.write(cluster.BucketTopologies+"/"+t.Name, t, func(err error) {
		d.stale = err != nil
		d.look()
	})
}

// submit submits the topology: from nothing the first time, then from its newest
// checkpoint, or from one that it keeps.
func (o *orders) submit(d *daemon) {
	w := o.f.w
	o.names++
	v := o.version(w.shape, false)
	v.Epoch, v.Start.From = 1, cluster.FromHead
	if h := w.store.head; h != nil && w.now < w.faults.Until && (o.f.faults.Restless || w.rng.IntN(2) == 0) {
		if from := o.anyKept(h); from != "" {
			w.count("submitted from a checkpoint")
			v.Start.From, v.Start.DropUnpublished = from, w.rng.IntN(2) == 0
			o.asked[fmt.Sprintf("%s-%d-1/1", topologyName, o.names)] = h.Generation
		}
	}
	if o.f.faults.Restless && w.strikes(0.3) {
		w.queue.push(w.now+w.around(time.Second), func() { o.f.records.fail(w.around(time.Second), true) })
	}
	w.count("submitted")
	w.tracef("operator: submits from %q", v.Start.From)
	d.set(cluster.Topology{
		Name: topologyName, ID: fmt.Sprintf("%s-%d-1", topologyName, o.names), Status: cluster.Active,
		Launched: d.wall(), Version: v,
	})
}

// version returns a version that runs a shape.
func (o *orders) version(s *shape, broken bool) cluster.Version {
	w := o.f.w
	v := cluster.Version{Binary: cluster.Binary{SHA256: o.f.program(s, broken)}, Workers: 1 + w.rng.IntN(4)}
	for _, c := range s.components {
		v.Components = append(v.Components, cluster.ComponentSpec{ID: c.name, FirstTask: int(c.first) + 1, Tasks: c.tasks})
	}
	return v
}

// anyKept draws, for each region that may go back, a checkpoint that the head keeps.
func (o *orders) anyKept(h *checkpoint.Head) string {
	var names []string
	for _, r := range o.f.w.shape.regions {
		kept := h.Kept(r.name)
		if i := slices.IndexFunc(kept, func(ref checkpoint.Ref) bool { return ref == *h.Regions[r.name].Current() }); i >= 0 && len(kept) > 1 {
			kept = slices.Delete(kept, i, i+1)
		}
		if len(kept) > 0 && r.mayGoBack() {
			names = append(names, kept[o.f.w.rng.IntN(len(kept))].String())
		}
	}
	return strings.Join(names, ",")
}

// mayGoBack: the sums that ordered sinks have written cannot be taken back.
func (r *region) mayGoBack() bool { return !r.ordered }

// act asks for something.
func (o *orders) act() {
	what := o.f.w.rng.IntN(9)
	if o.f.faults.Restless && o.f.w.rng.IntN(3) > 0 {
		what = 5
	}
	switch what {
	case 0, 1:
		o.rollback()
	case 2:
		o.savepoint()
	case 3, 4:
		o.ask(o.update)
	case 5, 6:
		o.ask(func(d *daemon) {
			if t, ok := d.topology(); ok {
				o.kill(d, t)
			}
		})
	default:
		o.ask(func(d *daemon) {
			if t, ok := d.topology(); ok {
				o.toggle(d, t, []cluster.Command{cluster.CommandActivate, cluster.CommandDeactivate}[o.f.w.rng.IntN(2)])
			}
		})
	}
}

func (o *orders) toggle(d *daemon, t cluster.Topology, c cluster.Command) {
	status, err := cluster.Transition(t.Name, t.Status, c)
	if err != nil || status == t.Status {
		return
	}
	o.f.w.count(string(c))
	t.Status = status
	d.set(t)
}

func (o *orders) kill(d *daemon, t cluster.Topology) {
	w := o.f.w
	was := t.Status
	status, err := cluster.Transition(t.Name, t.Status, cluster.CommandKill)
	if err != nil || was == cluster.Killed {
		return
	}
	w.count("killed")
	w.tracef("operator: kills %s", t.ID)
	t.Status = status
	settleChange(&t)
	t.Deadline = d.wall().Add(w.around(500 * time.Millisecond))
	t.NoCheckpoint = w.rng.IntN(2) == 0 || o.f.faults.Restless
	d.set(t)
}

// settleChange forgets a change, as package nimbus does.
func settleChange(t *cluster.Topology) {
	t.Previous, t.Step, t.Before, t.Next, t.Left = "", "", nil, nil, nil
	t.UpdateSecs, t.Deadline = 0, time.Time{}
}

// update gives the topology another version: with other numbers of tasks and workers, or
// one that does not work.
func (o *orders) update(d *daemon) {
	w := o.f.w
	t, ok := d.topology()
	if _, assigned := d.assignment(t.ID); !ok || !assigned {
		return
	}
	command := []cluster.Command{cluster.CommandUpdate, cluster.CommandRebalance}[w.rng.IntN(2)]
	status, err := cluster.Transition(t.Name, t.Status, command)
	if err != nil {
		return
	}
	broken := command == cluster.CommandUpdate && w.rng.IntN(3) == 0
	next := o.version(o.f.programs[t.Version.Binary.SHA256].shape.resized(w.rng), broken)
	next.Start.From = cluster.FromHead
	w.count(string(command))
	w.tracef("operator: %s, broken: %v", command, broken)
	t.Previous, t.Status, t.Step, t.Next = t.Status, status, cluster.StepDrain, &next
	t.Deadline = d.wall().Add(w.around(300 * time.Millisecond))
	t.UpdateSecs = int(o.f.timing.Update / time.Second)
	t.Error = ""
	d.set(t)
}

// chief returns a topology master that answers requests, of those that think they lead.
func (o *orders) chief() *chief {
	var all []*chief
	for _, p := range o.f.processes {
		if p.dead || p.hosted == nil || !p.reaches(toRecords) {
			continue
		}
		if c, ok := p.hosted.main.(*chief); ok && len(c.m.regions) > 0 && !c.ended {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[o.f.w.rng.IntN(len(all))]
}

// rollback asks a topology master to go back to a checkpoint.
func (o *orders) rollback() {
	w, c := o.f.w, o.chief()
	if c == nil || w.store.head == nil {
		return
	}
	r := w.shape.regions[w.rng.IntN(len(w.shape.regions))]
	kept := w.store.head.Kept(r.name)
	if len(kept) == 0 || !r.mayGoBack() {
		return
	}
	x := &wish{region: r.name, ref: kept[w.rng.IntN(len(kept))]}
	o.wishes = append(o.wishes, x)
	w.count("rollback asked for")
	w.tracef("operator: asks %s for a rollback of %s to %s", c.p.name, x.region, x.ref)
	drop := w.rng.IntN(2) == 0
	w.queue.push(w.now+w.hop(), func() {
		c.p.deliver(func() {
			c.rollback(x.ref.Generation, x.ref.Batch, drop, func(err error) {
				w.tracef("operator: rollback to %s: %v", x.ref, err)
				if err == nil {
					w.count("rollback")
				}
				if err == nil && !x.done {
					current := w.store.head.Regions[x.region].Current()
					if current == nil || current.Manifest != x.ref.Manifest {
						w.violate("the rollback of %s to %s is confirmed, but did not happen", x.region, x.ref)
					}
				}
			})
		})
	})
}

// savepoint asks a topology master for a savepoint.
func (o *orders) savepoint() {
	w, c := o.f.w, o.chief()
	if c == nil || len(o.saved) >= 3 {
		return
	}
	o.names++
	name := fmt.Sprintf("save%d", o.names)
	w.tracef("operator: asks %s for savepoint %s", c.p.name, name)
	w.queue.push(w.now+w.hop(), func() {
		c.p.deliver(func() {
			c.savepoint(name, func(err error) {
				w.tracef("operator: savepoint %s: %v", name, err)
				if err != nil {
					return
				}
				w.count("savepoint")
				o.saved = append(o.saved, name)
				o.headSwapped(w.store.head)
			})
		})
	})
}

// headSwapped checks that a head has all savepoints that were confirmed.
func (o *orders) headSwapped(h *checkpoint.Head) {
	for _, name := range o.saved {
		for _, r := range o.f.w.shape.regions {
			if !slices.ContainsFunc(h.Pins, func(p checkpoint.Pin) bool { return p.Region == r.name && p.Name == name }) {
				o.f.w.violate("savepoint %q was confirmed, but %s has no such pin", name, r.name)
			}
		}
	}
}

// wentBack checks that a region goes back because of a start, which does so only once, or
// of a rollback that was asked for.
func (o *orders) wentBack(r *region, was, is checkpoint.RegionHead) {
	w := o.f.w
	now := is.Current()
	if is.Started != was.Started {
		key := is.Started + " " + r.name
		if o.starts[key] {
			w.violate("%s: start %s goes back to %s once more", r.name, is.Started, now)
		}
		o.starts[key] = true
		id, epoch := topologyEpoch(is.Started)
		oldID, oldEpoch := topologyEpoch(was.Started)
		if cmp.Or(cmp.Compare(id, oldID), cmp.Compare(epoch, oldEpoch)) < 0 {
			w.violate("%s: start %s goes back to %s, but %s has taken its place", r.name, is.Started, now, was.Started)
		}
		w.count("start went back")
		return
	}
	for _, x := range o.wishes {
		if x.region == r.name && x.ref.Manifest == now.Manifest && !x.done {
			x.done = true
			w.count("rollback went back")
			return
		}
	}
	w.violate("%s goes back to %s, which nobody has asked for", r.name, now)
}

// topologyEpoch takes the name of a start apart: the number of the topology, the epoch.
func topologyEpoch(start string) (id, epoch int) {
	if n, err := fmt.Sscanf(start, topologyName+"-%d-1/%d", &id, &epoch); err != nil || n != 2 {
		return 0, 0
	}
	return id, epoch
}
