// Package worker runs the tasks of a topology that belong to one process. A topology
// master leads them: directly, if it is in the same process, or through package
// worker/remote.
package worker

import (
	"context"
	"log/slog"
	"sync"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/tuple"
)

// Crew makes and keeps the tasks that a topology master leads, wherever they run.
type Crew interface {
	// Make has the tasks of a region made for a generation, which go on from r. They
	// answer to env.Post. It does not wait, and is called once those of the generation
	// before have ended.
	Make(ctx context.Context, env *task.Env, region plan.Region, n tuple.Generation, r *task.Restore) Tasks
	// Stats returns what a task has done.
	Stats(id int) *task.Stats
	// Close lets go of what was kept for a next generation. With hung, tasks may still
	// run.
	Close(hung bool)
}

// Tasks are the tasks of one region in one generation.
type Tasks interface {
	// Start lets the tasks, which must all be ready, run.
	Start()
	// Stop ends them: whatever waits inside returns, whatever is still done is void.
	Stop()
	// Ended is closed when nothing of them runs any more.
	Ended() <-chan struct{}
	Spout(id checkpoint.TaskID, c task.Control)
	AckCommit(id checkpoint.TaskID, n, oldest tuple.BatchID, last bool)
	// Queues calls fn with how full each channel is, from 0 to 1.
	Queues(fn func(from, to int, fill float64))
}

// Worker is the Crew of this process. It has slots for all tasks of the topology, of
// which it may run some.
type Worker struct {
	plan  *plan.Plan
	log   *slog.Logger
	slots []*task.Slot
	flush flusher
	ended chan struct{}

	mu   sync.Mutex
	live []*task.Generation
}

// New returns a Worker, which must be closed.
func New(p *plan.Plan, log *slog.Logger) *Worker {
	w := &Worker{plan: p, log: log, slots: task.NewSlots(p), flush: newFlusher(), ended: make(chan struct{})}
	go w.flush.run(w.flushDue, w.ended)
	return w
}

// Make makes all tasks of a region.
func (w *Worker) Make(ctx context.Context, env *task.Env, region plan.Region, n tuple.Generation, r *task.Restore) Tasks {
	return w.MakeSome(ctx, env, region.Tasks, n, r, nil)
}

// MakeSome makes some tasks of a region; links lead to the others. env.Busy is set by it.
func (w *Worker) MakeSome(ctx context.Context, env *task.Env, ids []int, n tuple.Generation, r *task.Restore, links task.Links) *task.Generation {
	own := *env
	own.Busy = w.flush.busy
	g := task.NewGeneration(ctx, &own, ids, w.slots, n, r, links)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = append(w.running(), g)
	return g
}

// running returns the generations that have not ended. The caller holds mu.
func (w *Worker) running() []*task.Generation {
	var live []*task.Generation
	for _, g := range w.live {
		select {
		case <-g.Ended():
		default:
			live = append(live, g)
		}
	}
	return live
}

// Stats returns what a task has done in this process.
func (w *Worker) Stats(id int) *task.Stats { return &w.slots[id-1].Stats }

// Count is what a task has done: tuples by output stream and by input, as its component
// has them.
type Count struct {
	Task     int      `json:"task"`
	Emitted  []uint64 `json:"emitted"`
	Executed []uint64 `json:"executed"`
}

// CountOf returns what the task of a slot has done so far.
func CountOf(s *task.Slot) Count {
	n := Count{Task: s.ID}
	for i := range s.Emitted {
		n.Emitted = append(n.Emitted, s.Emitted[i].Load())
	}
	for i := range s.Executed {
		n.Executed = append(n.Executed, s.Executed[i].Load())
	}
	return n
}

// Running returns the ids of the tasks that run here.
func (w *Worker) Running() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []int
	for _, g := range w.running() {
		ids = append(ids, g.TaskIDs()...)
	}
	return ids
}

// Counts returns what tasks have done in this process.
func (w *Worker) Counts(ids []int) []Count {
	all := make([]Count, len(ids))
	for i, id := range ids {
		all[i] = CountOf(w.slots[id-1])
	}
	return all
}

// Queues calls fn with how full each channel to a task here is, from 0 to 1.
func (w *Worker) Queues(fn func(from, to int, fill float64)) {
	w.mu.Lock()
	live := w.running()
	w.mu.Unlock()
	for _, g := range live {
		g.Queues(fn)
	}
}

// Close ends what the Worker does itself; its tasks must have ended, but for hung.
func (w *Worker) Close(hung bool) {
	w.flush.stop()
	<-w.ended
	if !hung { // else they may still be in use
		task.CloseKept(w.slots, w.plan, w.log)
	}
}

// flushDue has all tasks flush that have heeded the last time, and reports whether there
// are any.
func (w *Worker) flushDue() (busy bool) {
	w.mu.Lock()
	live := w.live
	w.mu.Unlock()
	for _, g := range live {
		if g.FlushDue() {
			busy = true
		}
	}
	return busy
}
