package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
)

// crew is a topology master's end of its connections to workers: what package remote is.
type crew struct {
	c       *chief
	place   map[taskID]string // worker by task
	members []*member
	latest  map[string]uint64 // highest incarnation seen, by worker
	live    []*crewTasks
	quit    bool // the run is over for good
}

// member is a worker that is connected.
type member struct {
	*end
	worker      string
	incarnation uint64
	since       time.Duration // when it was connected, by the world's clock
	of          *crew
	at          *hand
}

func newCrew(c *chief) *crew { return &crew{c: c, latest: map[string]uint64{}} }

func (c *crew) member(worker string) *member {
	for _, m := range c.members {
		if m.worker == worker {
			return m
		}
	}
	return nil
}

// workers returns the ids of those that are connected.
func (c *crew) workers() []string {
	var ids []string
	for _, m := range c.members {
		ids = append(ids, m.worker)
	}
	slices.Sort(ids)
	return ids
}

// incomplete reports whether a worker is missing that is to have tasks.
func (c *crew) incomplete() bool {
	for _, worker := range c.place {
		if c.member(worker) == nil {
			return true
		}
	}
	return len(c.place) == 0
}

// settle says which worker is to run which tasks from the next generation on.
func (c *crew) settle(place map[taskID]string) {
	c.place = place
	c.changed()
}

// enter makes a worker a member, unless a later process has taken its place.
func (c *crew) enter(m *member) error {
	w := c.c.p.w
	if m.incarnation < c.latest[m.worker] && w.is(Incarnations) {
		w.count("old worker refused")
		return fmt.Errorf("worker %s has been replaced by a later process", m.worker)
	}
	if m.incarnation < c.latest[m.worker] {
		w.violate("worker %s#%d is let in, though %d has taken its place", m.worker, m.incarnation, c.latest[m.worker])
	}
	if old := c.member(m.worker); old != nil {
		w.count("worker replaced")
		old.close(errors.New("replaced by a later process, or a later connection of it"))
	}
	c.latest[m.worker] = max(m.incarnation, c.latest[m.worker])
	c.members = append(c.members, m)
	m.since = w.now
	m.lost = func(err error) { c.leave(m, err) }
	if c.quit {
		m.send(m.at.dismissed)
	}
	w.tracef("%s: worker %s#%d is connected", c.c.p.name, m.worker, m.incarnation)
	c.changed()
	return nil
}

// leave fails the tasks on a worker that is gone.
func (c *crew) leave(m *member, err error) {
	c.c.p.w.tracef("%s: worker %s#%d is lost: %v", c.c.p.name, m.worker, m.incarnation, err)
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	for _, t := range slices.Clone(c.live) {
		t.lost(m, err)
	}
	c.changed()
}

// changed looks again whether those who are waited for are there.
func (c *crew) changed() {
	for _, t := range slices.Clone(c.live) {
		t.order()
	}
	c.c.tell()
}

// told takes what a worker says of a generation.
func (c *crew) told(g generation, do func(t *crewTasks)) {
	for _, t := range c.live {
		if t.gen == g {
			do(t)
			return
		}
	}
	if !c.c.p.w.is(GenerationCheck) { // it counts for whatever there is now
		for _, t := range c.live {
			do(t)
		}
	}
}

// dismiss tells all workers that the run is over.
func (c *crew) dismiss() {
	c.quit = true
	for _, m := range c.members {
		m.send(m.at.dismissed)
	}
}

// crewTasks are the tasks of a region in one generation, on the workers of a crew.
type crewTasks struct {
	*crew
	lead    *lead
	gen     generation
	from    *checkpoint.Manifest
	on      []*tenure
	where   map[taskID]*member // nil: not ordered yet
	stopped bool
	over    bool
	then    []func()
}

// tenure is what runs on one worker, until it has ended there.
type tenure struct {
	*member
	runs bool
}

func (c *crew) make(l *lead, g generation, from *checkpoint.Manifest) *crewTasks {
	t := &crewTasks{crew: c, lead: l, gen: g, from: from}
	c.live = append(c.live, t)
	t.order()
	return t
}

// order has the workers make their tasks, once all of them are there.
func (t *crewTasks) order() {
	if t.stopped || t.where != nil {
		return
	}
	where := map[taskID]*member{}
	var on []*tenure
	for _, spec := range t.lead.region.tasks {
		m := t.member(t.place[spec.ID])
		if m == nil {
			return
		}
		where[spec.ID] = m
		if !slices.ContainsFunc(on, func(x *tenure) bool { return x.member == m }) {
			on = append(on, &tenure{m, true})
		}
	}
	t.where, t.on = where, on
	o := order{gen: t.gen, lead: t.lead, from: t.from, where: where, failures: map[poison.Key]int{}}
	for k, n := range t.lead.failures {
		o.failures[k] = n
	}
	o.suspects = t.lead.suspects.Suspects()
	for _, x := range on {
		x.send(func() { x.at.restore(x.member, o) })
	}
}

// event passes on what a task on a worker has posted.
func (t *crewTasks) event(ev checkpoint.Event) { t.lead.later(ev) }

// lost is told that a worker has gone.
func (t *crewTasks) lost(m *member, err error) {
	i := slices.IndexFunc(t.on, func(x *tenure) bool { return x.member == m })
	if i < 0 {
		return
	}
	t.on = slices.Delete(t.on, i, i+1)
	for _, spec := range t.lead.region.tasks {
		if t.where[spec.ID] == m && !t.stopped {
			t.lead.later(checkpoint.TaskFailed{Generation: t.gen, Task: spec.ID, Err: fmt.Errorf("worker %s is lost: %w", m.worker, err)})
			break
		}
	}
	t.check()
}

// ended is told that a worker runs nothing of the generation any more.
func (t *crewTasks) ended(m *member) {
	for _, x := range t.on {
		if x.member == m {
			x.runs = false
		}
	}
	t.check()
}

func (t *crewTasks) check() {
	if !t.stopped || t.over || slices.ContainsFunc(t.on, func(x *tenure) bool { return x.runs }) {
		return
	}
	t.over = true
	t.live = slices.DeleteFunc(t.live, func(o *crewTasks) bool { return o == t })
	for _, then := range t.then {
		then()
	}
	t.then = nil
}

// whenOver calls then when no connected worker runs any of it. Waiting too long for that
// costs the run.
func (t *crewTasks) whenOver(then func()) {
	if t.over {
		then()
		return
	}
	t.then = append(t.then, then)
	w := t.c.p.w
	w.after(w.fleet.timing.Stop, func() {
		if !t.over {
			w.count("stop took too long")
			t.c.over(errHung)
		}
	})
}

var errHung = errors.New("user code did not return")

// halt ends the tasks.
func (t *crewTasks) halt() {
	if t.stopped {
		return
	}
	t.stopped = true
	t.check()
	for _, x := range t.on {
		x.send(func() { x.at.stop(t.gen) })
	}
}

// send brings a message to a task.
func (t *crewTasks) send(id taskID, do func(*task)) {
	if m := t.where[id]; m != nil {
		m.send(func() { m.at.tell(t.gen, id, do) })
	}
}
