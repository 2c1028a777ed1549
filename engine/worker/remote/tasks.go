package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/tuple"
)

// crewTasks are the tasks of a region in one generation, on the workers of a Crew.
type crewTasks struct {
	crew    *Crew
	env     *task.Env
	region  plan.Region
	number  tuple.Generation
	restore *task.Restore
	ended   chan struct{}
	stopped chan struct{}

	mu    sync.Mutex       // taken after the Crew's
	on    map[*member]bool // where the tasks run; true until they have ended there
	where map[checkpoint.TaskID]*member
	// unlinked is whom each worker does not reach.
	unlinked map[*member][]string

	over bool // ended is closed
	stop bool // stopped is closed
}

// make waits until all workers of the region are connected, and orders them to make their
// tasks.
func (t *crewTasks) make(ctx context.Context) {
	told := ""
	for {
		missing, changed := t.order()
		if missing == nil {
			return
		}
		if text := strings.Join(missing, ", "); text != told {
			told = text
			t.crew.cfg.Logger.Info("waiting for workers", "region", t.region.Name, "generation", t.number, "workers", text)
		}
		select {
		case <-changed:
		case <-t.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// order sends each worker its order, if all are there; or it returns those that are
// missing, and what is closed when that has changed.
func (t *crewTasks) order() (missing []string, changed <-chan struct{}) {
	c := t.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop {
		return nil, nil
	}
	order := restore{RunID: t.env.RunID, Region: t.region.Name, Batch: t.restore.Batch, Place: map[int]string{}, Links: map[string]Peer{}}
	lacking := map[string]bool{}
	for _, id := range t.region.Tasks {
		name, placed := c.place[id]
		m := c.members[name]
		switch {
		case !placed:
			lacking["any for "+c.cfg.Plan.Component(id).ID] = true
		case m == nil:
			lacking[name] = true
		default:
			order.Place[id] = name
			order.Links[name] = Peer{m.Links, m.Incarnation}
		}
	}
	if len(lacking) > 0 {
		return slices.Sorted(maps.Keys(lacking)), c.changed
	}
	t.on, t.where, t.unlinked = map[*member]bool{}, map[checkpoint.TaskID]*member{}, map[*member][]string{}
	for id, name := range order.Place {
		m := c.members[name]
		t.where[checkpoint.TaskID(id)] = m
		t.on[m] = true
	}
	order.suspects(t.env)
	for m := range t.on {
		own := order
		own.Tasks = t.snapshots(m)
		m.send(message{Kind: kindRestore, Generation: t.number, Restore: &own})
	}
	return nil, nil
}

// snapshots returns what the tasks on a worker may need: all of their components.
func (t *crewTasks) snapshots(m *member) map[string][]checkpoint.TaskSnapshot {
	need := map[string][]checkpoint.TaskSnapshot{}
	for id, on := range t.where {
		if name := t.crew.cfg.Plan.Component(int(id)).ID; on == m {
			need[name] = t.restore.Tasks[name]
		}
	}
	return need
}

// suspects adds what is known of poison tuples.
func (o *restore) suspects(env *task.Env) {
	o.OneByOne = slices.Sorted(maps.Keys(env.Suspects.OneByOne))
	for k, f := range env.Suspects.Failed {
		o.Failed = append(o.Failed, failed{k, f})
	}
}

// lost is told that a worker has gone. The Crew's mu is held.
func (t *crewTasks) lost(m *member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, here := t.on[m]; !here {
		return
	}
	delete(t.on, m)
	first := checkpoint.TaskID(0)
	for id, on := range t.where {
		if on == m && (first == 0 || id < first) {
			first = id
		}
	}
	if !t.stop {
		t.env.Post(checkpoint.TaskFailed{Generation: t.number, Task: first, Err: fmt.Errorf("worker %s is lost: %w", m.Worker, m.conn.reason())})
	}
	t.check()
}

// told takes what a worker says about this generation.
func (t *crewTasks) told(m *member, msg message) error {
	switch msg.Kind {
	case kindReport:
		if r := msg.Report; r != nil {
			t.env.Reported(r.Component, r.Task, fmt.Errorf("%s", r.Error))
		}
		return nil
	case kindEnded:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.on[m] {
			t.on[m] = false
			t.check()
		}
		return nil
	default:
	}
	if msg.Kind == kindUnlinked {
		return t.toldUnlinked(m, msg.Unlinked)
	}
	if msg.Event == nil {
		return fmt.Errorf("an %s message without one", msg.Kind)
	}
	ev, err := msg.Event.decode(t.number)
	if err != nil {
		return err
	}
	t.mu.Lock()
	mine := t.where[msg.Event.Task] == m || msg.Event.Task == 0
	t.mu.Unlock()
	if !mine {
		return fmt.Errorf("a %q event of task %d, which does not run there", msg.Event.Type, msg.Event.Task)
	}
	t.env.Post(ev)
	return nil
}

// toldUnlinked takes which workers one does not reach.
func (t *crewTasks) toldUnlinked(m *member, others []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := map[string]bool{}
	for _, on := range t.where {
		known[on.Worker] = on != m
	}
	if len(others) > len(known) {
		return fmt.Errorf("worker %s does not reach %d others, and there are %d workers", m.Worker, len(others), len(known))
	}
	for _, name := range others {
		if !known[name] {
			return fmt.Errorf("worker %s does not reach worker %.100q, which is none that it has links to", m.Worker, name)
		}
	}
	if t.on[m] {
		t.unlinked[m] = others
		go t.crew.cfg.Changed()
	}
	return nil
}

// unlinkedInto adds the pairs of workers that do not reach each other. Once the generation
// has failed, that is no news of what there is. The Crew's mu is held.
func (t *crewTasks) unlinkedInto(pairs map[[2]string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop {
		return
	}
	runs := map[string]bool{}
	for m := range t.on {
		runs[m.Worker] = t.on[m]
	}
	for m, others := range t.unlinked {
		for _, name := range others {
			if runs[m.Worker] && runs[name] {
				pairs[[2]string{min(m.Worker, name), max(m.Worker, name)}] = true
			}
		}
	}
}

// check closes ended when no worker runs anything of a stopped generation any more.
func (t *crewTasks) check() {
	if !t.stop || t.over {
		return
	}
	for _, runs := range t.on {
		if runs {
			return
		}
	}
	t.over = true
	close(t.ended)
	go t.forget()
}

// forget is not under mu, which is taken after the Crew's.
func (t *crewTasks) forget() {
	t.crew.mu.Lock()
	defer t.crew.mu.Unlock()
	delete(t.crew.live, t.number)
}

// Start lets the tasks run.
func (t *crewTasks) Start() { t.all(message{Kind: kindStart, Generation: t.number}) }

// Stop ends them.
func (t *crewTasks) Stop() {
	t.mu.Lock()
	if !t.stop {
		t.stop = true
		close(t.stopped)
	}
	t.check()
	t.mu.Unlock()
	t.all(message{Kind: kindStop, Generation: t.number})
}

// Ended is closed when no connected worker runs any of them.
func (t *crewTasks) Ended() <-chan struct{} { return t.ended }

func (t *crewTasks) all(msg message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for m := range t.on {
		m.send(msg)
	}
}

func (t *crewTasks) one(id checkpoint.TaskID, msg message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.where[id]; m != nil {
		m.send(msg)
	}
}

// Spout tells a spout task something.
func (t *crewTasks) Spout(id checkpoint.TaskID, c task.Control) {
	t.one(id, message{Kind: kindSpout, Generation: t.number, Spout: &spoutOrder{id, c}})
}

// AckCommit tells a task that all batches up to n are committed.
func (t *crewTasks) AckCommit(id checkpoint.TaskID, n, oldest tuple.BatchID, last bool) {
	t.one(id, message{Kind: kindAck, Generation: t.number, Ack: &ackOrder{id, n, oldest, last}})
}

// Queues knows of none: the workers show their own.
func (t *crewTasks) Queues(func(from, to int, fill float64)) {}
