package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// chief is a topology master as a process of a cluster: it leads the master that is in it,
// does what the coordination store says, and tells there how it is.
type chief struct {
	p       *process
	spec    spec
	m       *master
	crew    *crew
	address string

	known, active bool // what is wanted is known; spouts may emit
	stop          bool // the cluster wants the run to end
	ended         bool
	phase         cluster.Phase // of a run that is over
	elsewhere     bool
	why           string
	beat          uint64
	telling       bool // a status is on its way
	again         bool // and is to be followed by another
	began         bool // noted that the run has begun
	saving        []*saving
	edits         int
}

func newChief(p *process, s spec) *chief {
	f := p.w.fleet
	f.masters++
	c := &chief{p: p, spec: s, address: p.name}
	c.m = &master{w: p.w, name: fmt.Sprintf("m%d", f.masters), shape: s.program.shape, alive: true, chief: c}
	c.crew = newCrew(c)
	f.chiefs[c.address] = c
	return c
}

// once names the start of the epoch.
func (c *chief) once() string { return fmt.Sprintf("%s/%d", c.spec.id, c.spec.epoch) }

// run is what the process begins with.
func (c *chief) run() {
	w := c.p.w
	w.fleet.records.watch(cluster.TopologyBucket(c.spec.id)+"/", c.heed)
	w.after(w.fleet.timing.Intent, func() {
		if !c.known {
			c.activate(true)
		}
	})
	c.announce()
	c.report()
	c.start()
}

// heed does what a record says.
func (c *chief) heed(e entry) {
	switch v := e.value.(type) {
	case cluster.MasterRecord:
		if v.Address != c.address && c.p.w.is(MasterRecords) {
			c.announce()
		}
	case cluster.Assignment:
		if v.Version.Epoch != c.spec.epoch {
			return
		}
		place := map[taskID]string{}
		for _, w := range v.Workers {
			for _, t := range w.Tasks {
				place[taskID(t-1)] = w.ID()
			}
		}
		c.crew.settle(place)
	case cluster.Intent:
		if v.Epoch != c.spec.epoch {
			return
		}
		c.known = true
		c.activate(v.Active)
		if v.Stop {
			c.stop = true
			c.end()
		}
	}
	if e.key == "" { // the store was away
		c.announce()
	}
}

func (c *chief) activate(active bool) {
	if c.active == active {
		return
	}
	c.active = active
	for _, l := range c.m.regions {
		if l.started {
			c.startActive(l)
		}
	}
	c.tell()
}

func (c *chief) startActive(l *lead) {
	active := c.active
	l.toSpouts(l.gen, func(t *task) { t.activate(active) })
}

// terminate is what the supervisor's signal does: a last checkpoint.
func (c *chief) terminate() {
	if c.ended {
		c.exit(1)
		return
	}
	c.end()
	c.giveUp()
}

// giveUp ends the process if the workers are not there that a last checkpoint takes.
func (c *chief) giveUp() {
	c.p.w.after(c.p.w.fleet.timing.Lease, func() {
		if !c.ended && c.crew.incomplete() {
			c.exit(cluster.ExitSignal)
			return
		}
		c.giveUp()
	})
}

func (c *chief) end() {
	for _, l := range c.m.regions {
		l.later(checkpoint.StopRequested{})
	}
	if len(c.m.regions) == 0 {
		c.exit(1)
	}
}

// announce tells workers where this topology master is. If a later one has, this one ends. A
// worker that is started knows no other than the one that is written there last.
func (c *chief) announce() {
	records, key := c.p.w.fleet.records, cluster.TopologyBucket(c.spec.id)+"/"+cluster.KeyMaster
	again := func() { c.p.w.after(300*time.Millisecond, c.announce) }
	mine := cluster.MasterRecord{Epoch: c.spec.epoch, Incarnation: c.spec.incarnation, Address: c.address}
	if !c.p.w.is(MasterRecords) {
		c.persist(cluster.KeyMaster, func() any { return mine }, func() {})
		return
	}
	records.get(key, func(e entry, err error) {
		if err != nil && !errors.Is(err, errAbsent) {
			again()
			return
		}
		if there, ok := e.value.(cluster.MasterRecord); ok {
			switch order := cmp.Or(cmp.Compare(there.Epoch, mine.Epoch), cmp.Compare(there.Incarnation, mine.Incarnation)); {
			case order == 0:
				return
			case order > 0:
				c.p.w.count("later master found")
				c.exit(cluster.ExitSignal)
				return
			}
		}
		records.update(key, mine, e.revision, func(_ uint64, err error) {
			if err != nil {
				again()
			}
		})
	})
}

// persist writes a record, and again until that succeeds.
func (c *chief) persist(key string, value func() any, done func()) {
	c.p.w.fleet.records.put(cluster.TopologyBucket(c.spec.id)+"/"+key, value(), func(_ uint64, err error) {
		if err != nil {
			c.p.w.after(300*time.Millisecond, func() { c.persist(key, value, done) })
			return
		}
		done()
	})
}

// start reads the head and begins as the start says.
func (c *chief) start() {
	w := c.p.w
	w.store.readHead(func(h headRead, err error) {
		if err != nil { // another try may do better
			c.exit(1)
			return
		}
		c.wanted(h, func(targets map[string]*checkpoint.Target, err error) {
			if err != nil {
				c.over(err)
				return
			}
			strict := len(c.spec.start.Unmoved) > 0 || len(targets) > 0 && w.is(StrictStarts)
			c.m.open(h, strict, targets)
			if c.stop {
				c.end()
			}
		})
	})
}

var (
	errElsewhere = errors.New("the head has moved on")
	errReplaced  = errors.New("another start has taken the place of this one")
)

// begun reports whether a region has begun where the start says.
func (c *chief) begun(h *checkpoint.Head, region string) bool {
	return h != nil && h.Regions[region].Started == c.once() && c.p.w.is(StartOnce)
}

// late reports whether a region was started by somebody else after this start was asked for.
func (c *chief) late(h *checkpoint.Head, region string) bool {
	w := c.p.w
	return w.is(OldStarts) && h.Regions[region].StartedAt > w.fleet.orders.asked[c.once()]
}

// wanted returns what each region is to go back to, as package master does.
func (c *chief) wanted(h headRead, then func(map[string]*checkpoint.Target, error)) {
	targets := map[string]*checkpoint.Target{}
	if h.head == nil {
		then(targets, nil)
		return
	}
	var from []string
	if s := c.spec.start.From; s != "" && s != cluster.FromHead {
		from = strings.Split(s, ",")
	}
	for _, r := range c.m.shape.regions {
		now := "none"
		if current := h.head.Regions[r.name].Current(); current != nil {
			now = current.String()
		}
		want, bound := c.spec.start.Unmoved[r.name]
		if c.p.w.is(NothingLeft) {
			want = cmp.Or(want, "none")
		}
		switch {
		case c.begun(h.head, r.name):
		case c.spec.begun && h.head.Regions[r.name].Started != "", from != nil && c.late(h.head, r.name):
			c.p.w.count("replaced master")
			then(nil, errReplaced)
			return
		case bound && want != now:
			c.p.w.count("head elsewhere")
			then(nil, errElsewhere)
			return
		}
	}
	c.find(h, from, targets, then)
}

// find reads the manifests of what is to be gone back to.
func (c *chief) find(h headRead, from []string, targets map[string]*checkpoint.Target, then func(map[string]*checkpoint.Target, error)) {
	if len(from) == 0 {
		then(targets, nil)
		return
	}
	g, n, err := checkpoint.ParseRef(from[0])
	if err != nil {
		then(nil, err)
		return
	}
	name, ref, ok := h.head.Find(g, n)
	if !ok {
		if slices.ContainsFunc(c.m.shape.regions, func(r *region) bool { return c.begun(h.head, r.name) }) {
			c.find(h, from[1:], targets, then)
			return
		}
		then(nil, fmt.Errorf("%w: %s", errNotKept, from[0]))
		return
	}
	if c.begun(h.head, name) {
		c.find(h, from[1:], targets, then)
		return
	}
	c.p.w.store.get(ref.Manifest, func(v any, err error) {
		switch {
		case errors.Is(err, checkpoint.ErrNotFound):
			then(nil, fmt.Errorf("%w: %s", errNotKept, from[0]))
		case err != nil:
			c.exit(1)
		default:
			to, err := checkpoint.TargetOf(h.head, name, ref, v.(*checkpoint.Manifest), c.spec.start.DropUnpublished)
			if err != nil {
				then(nil, fmt.Errorf("%w: %w", errNotKept, err))
				return
			}
			targets[name] = &to
			c.find(h, from[1:], targets, then)
		}
	})
}

var errNotKept = errors.New("that checkpoint cannot be gone back to")

// fit makes of a manifest what tasks are restored from: without the transactions that are
// to be left behind.
func (m *master) fit(man *checkpoint.Manifest, from *checkpoint.Ref, r *region) *checkpoint.Manifest {
	if man == nil || !m.mover.Head().Regions[r.name].LeavesBehind(*from) {
		return man
	}
	left := *man
	left.Tasks = slices.Clone(man.Tasks)
	for i, t := range left.Tasks {
		left.Tasks[i].Handles = slices.Clone(t.Handles)
		for j, h := range t.Handles {
			if _, ok := h.Transaction(); ok {
				left.Tasks[i].Handles[j].Data = nil
			}
		}
	}
	return &left
}

// startedTasks lets the tasks of a generation know what the operator wants.
func (m *master) startedTasks(l *lead) {
	if m.chief != nil {
		m.chief.startActive(l)
		m.chief.saveAgain(l)
		m.chief.tell()
	}
}

// over hears that the run has ended, and tells so before the process ends.
func (c *chief) over(err error) {
	if c.ended {
		return
	}
	c.ended, c.m.alive = true, false
	c.p.w.tracef("%s: the run is over: %v", c.p.name, err)
	for _, l := range c.m.regions {
		if l.tasks != nil {
			l.tasks.halt()
		}
	}
	switch stopped := slices.ContainsFunc(c.m.regions, func(l *lead) bool { return l.outcome == checkpoint.Stopped }); {
	case errors.Is(err, checkpoint.ErrHeadMoved), errors.Is(err, errHung) && c.p.w.is(HungAgain): // the next one reports
		c.exit(1)
		return
	case err != nil:
		c.phase, c.why, c.elsewhere = cluster.PhaseFailed, err.Error(), errors.Is(err, errElsewhere)
		c.p.w.fleet.orders.failed(c, err)
	case !stopped:
		c.phase = cluster.PhaseFinished
	case c.stop:
		c.phase = cluster.PhaseStopped
	default:
		c.exit(cluster.ExitSignal)
		return
	}
	c.persist(cluster.KeyStatus, func() any { return c.status() }, func() {
		c.crew.dismiss()
		c.p.w.after(c.p.w.fleet.timing.Lease/2, func() { c.exit(cluster.ExitDone) })
	})
}

func (c *chief) exit(code int) {
	c.m.alive = false
	c.p.exit(code)
}
