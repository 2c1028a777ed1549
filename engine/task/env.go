// Package task runs the tasks of one generation: the loops that read, execute, align
// and emit, and the committers beside them.
package task

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Env is what the tasks of a region share.
type Env struct {
	Plan  *plan.Plan
	RunID string
	// Factory makes a new instance of a component.
	Factory func(component string) any
	// Barriers is false for at-most-once topologies, which have none.
	Barriers    bool
	ExactlyOnce bool
	BatchDelay  time.Duration
	FrameMax    int
	Frames      int // that a channel holds
	Poison      bool
	State       checkpoint.StateOpener
	Config      func(component string) config.Values
	Logger      *slog.Logger
	// Suspects are the tuples that user code has failed on, and what to do about them;
	// never nil.
	Suspects *poison.Suspects
	// Reported is told of errors that components report; see txn.Context.ReportError.
	Reported func(component string, task int, err error)
	// Credentials are those of txn.Context, if set.
	Credentials func() map[string]string
	// Hooks watch tasks.
	Hooks []txn.TaskHook
	// Hook is called at named steps of the commit protocol; never nil.
	Hook func(step string)
	// Now is a monotonic clock.
	Now func() time.Duration
	// Processing is the processing time of keyed state; see NewProcessingTime.
	Processing *ProcessingTime
	// Post tells the topology master what happened; it never waits.
	Post func(checkpoint.Event)
	// Busy tells the worker that a task is, so that another flush will be due.
	Busy func()
}

// Restore is the checkpoint that tasks begin with.
type Restore struct {
	Batch tuple.BatchID // 0 = from the beginning
	// Tasks are the snapshots by component.
	Tasks map[string][]checkpoint.TaskSnapshot
}

// Control is what the topology master tells a spout task.
type Control struct {
	Resume   bool
	Hold     bool // emit nothing until Resume
	Activity Activity
	// A barrier to inject, if Kind is not MarkNone.
	Kind  tuple.MarkKind
	Batch tuple.BatchID
	Pause bool          // emit nothing after it
	At    time.Duration // when the barrier was sent
}

// Activity says whether an operator wants input.
type Activity uint8

// The activities.
const (
	Unchanged Activity = iota
	Active
	Inactive
)

// Slot is the place of one task through all generations of a run: its counters, and
// the instance that a rollback may keep.
type Slot struct {
	plan.Task
	Stats

	kept    any // a healthy stateful bolt of the last generation
	keptCtx *txn.Context
}

// task is one task in one generation.
type task struct {
	*Slot
	env     *Env
	comp    *plan.Component
	conf    config.Values // of the component
	gen     *Generation
	restore *Restore
	ctx     *txn.Context
	inst    any
	out     *txn.Collector
	inputs  []*link.Channel
	bell    *link.Bell
	mail    *link.Mailbox[Control]
	com     *committer
	flush   atomic.Bool // a flush is due
	woken   atomic.Bool // Wake was called since the last NextTuple began
	current *tuple.Tuple
	// executing is set while user code has a frame: a failure is then one of a tuple.
	executing bool
	loop      func() error
	phases    phases // of the batch that was finished last
	failed    sync.Once
	closers   []func() error // of what the engine opened for the instance
	earlier   []uint64       // tuples emitted by older generations, by stream
}

// name returns how errors call the task.
func (t *task) name() string { return fmt.Sprintf("component %q task %d", t.comp.ID, t.Index) }

// fail reports the first error of a task, unless its generation is over anyway.
func (t *task) fail(err error) {
	t.failed.Do(func() {
		t.Slot.kept = nil
		if t.gen.over() {
			return
		}
		t.env.Post(checkpoint.TaskFailed{Generation: t.gen.Number, Task: checkpoint.TaskID(t.ID), Err: err})
	})
}

// where describes what the task was doing, for errors.
func (t *task) where() string {
	if t.current == nil {
		return t.name()
	}
	return fmt.Sprintf("%s: stream %q of %q, tuple %s", t.name(),
		t.current.Stream().ID, t.current.Stream().Component, t.current)
}

// run is the task's goroutine.
func (t *task) run() {
	defer func() {
		if t.com != nil {
			t.com.wait()
		}
		t.release()
	}()
	defer func() {
		if r := recover(); r != nil {
			t.fail(t.blame(&PanicError{Where: t.where(), Value: r, Stack: debug.Stack()}))
		}
	}()
	if err := t.open(); err != nil {
		t.fail(fmt.Errorf("%s: open: %w", t.name(), err))
		return
	}
	for _, h := range t.env.Hooks {
		h.Opened(t.ctx)
	}
	t.env.Post(checkpoint.TaskReady{Generation: t.gen.Number, Task: checkpoint.TaskID(t.ID)})
	select {
	case <-t.gen.start:
	case <-t.gen.ctx.Done():
		return
	}
	t.Activity.Enter(measure.Busy)
	defer t.Activity.Enter(measure.Off)
	defer t.count()
	if err := t.loop(); err != nil {
		t.fail(t.blame(fmt.Errorf("%s: %w", t.where(), err)))
	}
}

// PanicError is a panic in user code.
type PanicError struct {
	Where string // component, task, stream and tuple
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s: panic: %v", e.Where, e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// release closes the instance, unless a rollback may go on with it.
func (t *task) release() {
	for _, c := range t.closers {
		if err := c(); err != nil {
			t.env.Logger.Warn("close state", "component", t.comp.ID, "task", t.Index, "err", err)
		}
	}
	for _, h := range t.env.Hooks {
		t.closed(h)
	}
	if t.Slot.kept != nil {
		return
	}
	closeInstance(t.inst, t.env.Logger, t.comp.ID)
}

// closed tells a hook that the task has ended. The process must outlive its panic.
func (t *task) closed(h txn.TaskHook) {
	defer func() {
		if r := recover(); r != nil {
			t.env.Logger.Warn("hook panicked", "component", t.comp.ID, "panic", r)
		}
	}()
	h.Closed(t.ctx)
}

func closeInstance(inst any, log *slog.Logger, component string) {
	c, ok := inst.(txn.Closer)
	if !ok {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			log.Warn("close panicked", "component", component, "panic", r)
		}
	}()
	if err := c.Close(); err != nil {
		log.Warn("close", "component", component, "err", err)
	}
}

// Generation is the tasks of one region in one generation.
type Generation struct {
	Number tuple.Generation
	ctx    context.Context
	cancel context.CancelFunc
	start  chan struct{}
	ended  chan struct{}
	tasks  []*task
	ending atomic.Bool
}

func (g *Generation) over() bool { return g.ending.Load() }

// Start lets the tasks, which must all be ready, run.
func (g *Generation) Start() { close(g.start) }

// Stop ends the generation: whatever waits inside it returns, whatever it still does
// is void.
func (g *Generation) Stop() {
	g.ending.Store(true)
	g.cancel()
}

// Ended is closed when every goroutine of the generation has returned.
func (g *Generation) Ended() <-chan struct{} { return g.ended }

// TaskIDs returns the ids of the tasks.
func (g *Generation) TaskIDs() []int {
	ids := make([]int, len(g.tasks))
	for i, t := range g.tasks {
		ids[i] = t.ID
	}
	return ids
}

// Spout tells a spout task something.
func (g *Generation) Spout(id checkpoint.TaskID, c Control) {
	for _, t := range g.tasks {
		if t.ID == int(id) {
			t.mail.Put(c)
			t.bell.Ring()
		}
	}
}

// AckCommit tells a task that all batches up to n are committed.
func (g *Generation) AckCommit(id checkpoint.TaskID, n, oldest tuple.BatchID, last bool) {
	for _, t := range g.tasks {
		if t.ID == int(id) && t.com != nil {
			t.com.ackReceived(n, oldest, last)
		}
	}
}

// FlushDue makes every busy task hand over its open frames soon, and reports whether
// there may be any. Called every few milliseconds while there are.
func (g *Generation) FlushDue() (busy bool) {
	for _, t := range g.tasks {
		if !t.flush.Load() {
			t.flush.Store(true)
			busy = true
		}
	}
	return busy
}

// flushDue reports whether the task is to flush now, once each time.
func (t *task) flushDue() bool {
	if !t.flush.Load() {
		return false
	}
	t.flush.Store(false)
	t.env.Busy()
	return true
}
