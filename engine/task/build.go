package task

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Links connects tasks of this process with tasks of others. A channel's two ends are
// of the same generation.
type Links interface {
	// Inbound returns the end of a channel that a task of this process reads.
	Inbound(from, to int, c link.Config) *link.Channel
	// Outbound returns the end of a channel that a task of this process writes; of c it
	// heeds what concerns senders.
	Outbound(from, to int, c link.Config) *txn.Outlet
}

// NewGeneration makes tasks of a region with their channels and starts a goroutine for
// each task, which restores it, posts TaskReady or TaskFailed, and waits for Start.
// slots are those of all tasks of the topology in the order of their ids; links, nil if
// all of the region's tasks are made here, lead to the others.
func NewGeneration(ctx context.Context, env *Env, ids []int, slots []*Slot, n tuple.Generation, r *Restore, links Links) *Generation {
	g := &Generation{Number: n, start: make(chan struct{}), ended: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	byID := map[int]*task{}
	for _, id := range ids {
		byID[id] = newTask(env, g, slots[id-1], r)
		g.tasks = append(g.tasks, byID[id])
	}
	outlets := connect(env, g, byID, links)
	var running sync.WaitGroup
	for _, t := range g.tasks {
		t.out = collector(env.Plan, t, outlets, func(id int) bool { return byID[id] != nil })
		running.Go(t.run)
	}
	go func() {
		running.Wait()
		g.cancel()
		close(g.ended)
	}()
	return g
}

func newTask(env *Env, g *Generation, s *Slot, r *Restore) *task {
	s.commitTrouble.Store(nil)
	s.ackTrouble.Store(nil)
	t := &task{
		Slot:    s,
		env:     env,
		comp:    &env.Plan.Components[s.Component],
		conf:    env.Config(env.Plan.Components[s.Component].ID),
		gen:     g,
		restore: r,
		bell:    link.NewBell(),
		mail:    link.NewMailbox[Control](),
		earlier: load(s.Emitted),
	}
	t.flush.Store(true) // so that the first that it heeds wakes the flusher
	t.ctx = txn.NewContext(g.ctx, txn.Context{
		Topology:   env.Plan.Topology,
		Component:  t.comp.ID,
		TaskIndex:  s.Index,
		TaskCount:  t.comp.Tasks,
		TaskID:     s.ID,
		RunID:      env.RunID,
		Generation: g.Number,
		Logger:     env.Logger.With("component", t.comp.ID, "task", s.Index),
		Config:     t.conf.Get,
		TaskIDs:    env.Plan.IDs,
		Secrets:    env.Credentials,
		Outputs:    t.comp.Streams,
		Inputs:     env.Plan.Inputs(t.comp),
	}, t.wake)
	t.ctx.OnError(newThrottle(t).report)
	t.ctx.OnCheckpoint(func() { env.Post(checkpoint.CheckpointRequested{}) })
	return t
}

type pair struct{ from, to int }

// connect makes one channel for every pair of tasks that exchange tuples.
func connect(env *Env, g *Generation, byID map[int]*task, links Links) map[pair]*txn.Outlet {
	outlets := map[pair]*txn.Outlet{}
	for _, to := range g.tasks {
		for _, from := range env.Plan.Senders(to.comp.ID) {
			c := link.Config{
				Generation: g.Number,
				SourceTask: from,
				Receiver:   to.bell,
				Frames:     env.Frames,
				Done:       g.ctx.Done(),
				Poison:     env.Poison,
			}
			sender := byID[from]
			if sender == nil {
				to.inputs = append(to.inputs, links.Inbound(from, to.ID, c))
				continue
			}
			c.Waiting = waiting(env.Plan, sender, to.comp.ID)
			ch := link.NewChannel(c)
			to.inputs = append(to.inputs, ch)
			outlets[pair{from, to.ID}] = txn.NewOutlet(ch.NewFrame(), ch.FrameLimit(), ch.Send)
		}
	}
	for _, from := range g.tasks {
		for _, receiver := range Receivers(env.Plan, from.comp) {
			for _, to := range env.Plan.IDs(receiver) {
				if byID[to] != nil {
					continue
				}
				outlets[pair{from.ID, to}] = links.Outbound(from.ID, to, link.Config{
					Generation: g.Number,
					SourceTask: from.ID,
					Frames:     env.Frames,
					Done:       g.ctx.Done(),
					Poison:     env.Poison,
					Waiting:    waiting(env.Plan, from, receiver),
				})
			}
		}
	}
	return outlets
}

// waiting returns what notes when a task waits for a receiver, and for which.
func waiting(p *plan.Plan, from *task, receiver string) func(bool) {
	way := measure.Blocked + slices.Index(Receivers(p, from.comp), receiver)
	return func(waits bool) {
		if waits {
			from.Activity.Enter(way)
		} else {
			from.Activity.Enter(measure.Busy)
		}
	}
}

// collector returns what a task emits to. local tells the tasks of this process.
func collector(p *plan.Plan, t *task, outlets map[pair]*txn.Outlet, local func(id int) bool) *txn.Collector {
	var edges []txn.Edge
	var all []*txn.Outlet
	seen := map[string]bool{}
	for _, sub := range p.Subscribers(t.comp.ID) {
		e := txn.Edge{
			Stream:   t.comp.Stream(sub.Input.Stream),
			Grouping: sub.Input.Grouping,
			Groups:   p.KeyGroups,
		}
		ids := p.IDs(sub.Component.ID)
		e.Targets = ids
		if sub.Input.Grouping == txn.LocalOrShuffle && slices.ContainsFunc(ids, local) {
			e.Targets = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return !local(id) })
		}
		for _, to := range e.Targets {
			e.Outlets = append(e.Outlets, outlets[pair{t.ID, to}])
		}
		e.Next = t.Index % len(e.Targets) // so that senders do not all begin with the first
		if sub.Input.Custom != nil {
			e.Custom = sub.Input.Custom()
			e.Custom.Prepare(txn.GroupingContext{Stream: e.Stream, TaskID: t.ID, Targets: e.Targets})
		}
		for _, f := range sub.Input.Fields {
			e.Fields = append(e.Fields, e.Stream.Fields.Index(f))
		}
		if sub.Input.Combine != 0 {
			e.Combine = &txn.Combining{Field: e.Stream.Fields.Index(sub.Input.CombineField), How: sub.Input.Combine}
		}
		if !seen[sub.Component.ID] {
			seen[sub.Component.ID] = true
			for _, to := range ids { // barriers go to every one
				all = append(all, outlets[pair{t.ID, to}])
			}
		}
		edges = append(edges, e)
	}
	return txn.NewCollector(t.comp.Streams, edges, all)
}

// reports tells whether the topology master waits for a task in every batch.
func reports(p *plan.Plan, c *plan.Component) bool { return c.Role != plan.Plain || p.IsEnd(c.ID) }

// CoordinatorTasks describes the tasks of a region to its Coordinator.
func CoordinatorTasks(p *plan.Plan, r plan.Region) []checkpoint.Task {
	var all []checkpoint.Task
	for _, id := range r.Tasks {
		c := p.Component(id)
		all = append(all, checkpoint.Task{
			ID:      checkpoint.TaskID(id),
			Spout:   c.Role == plan.Spout,
			Reports: reports(p, c),
		})
	}
	return all
}

// CloseKept closes the instances that were kept for a rollback that did not come.
func CloseKept(slots []*Slot, p *plan.Plan, log *slog.Logger) {
	for _, s := range slots {
		if s.kept != nil {
			closeInstance(s.kept, log, p.Component(s.ID).ID)
			s.kept = nil
		}
	}
}
