package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/barrier"
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// slot is a task of the topology, which may have several incarnations at a time.
type slot struct {
	comp    *component
	index   int
	id      taskID
	reports bool
	newest  generation // of the incarnations there have been
	tasks   []*task    // those that have not ended, oldest first
}

// current returns the newest incarnation if it has not ended.
func (s *slot) current() *task {
	if n := len(s.tasks); n > 0 && s.tasks[n-1].gen == s.newest {
		return s.tasks[n-1]
	}
	return nil
}

func (s *slot) of(g generation) *task {
	for _, t := range s.tasks {
		if t.gen == g {
			return t
		}
	}
	return nil
}

type taskState int

const (
	restoring taskState = iota
	ready
	running
	ended
)

var taskStateNames = [...]string{"restoring", "ready", "running", "ended"}

// task is one incarnation of a slot: it belongs to one generation and one master.
type task struct {
	*slot
	w     *world
	gen   generation
	m     *master
	state taskState
	cut   bool // a zombie: it has no connection to its master

	from      origin
	handles   []txn.Handle // of those restored, what its Participant begins with
	suspects  *poison.Suspects
	told      map[poison.Key]int // failures that the master knew of
	careful   bool               // looks at its tuples one by one
	logic     logic
	aligner   *barrier.Aligner
	committer *committer // nil if it does not report
	inputs    []input
	outputs   []*output
	working   bool          // its next step is scheduled
	closed    batchID       // the last batch it closed
	upAt      time.Duration // when the last message to the master arrives
	downAt    time.Duration // when the last one from the master does

	storeFailed bool // said so since its last report

	// Of spout tasks.
	paused, changed, saidFinished bool
	inactive                      bool // the operator wants no input

	home *part // on a cluster: what it is part of on its worker
}

func (t *task) String() string {
	return fmt.Sprintf("%s[%d]#%d/g%d", t.comp.name, t.index, t.id, t.gen)
}

// input is the receiving end of a channel.
type input struct {
	edge     *edge
	queue    []*frame
	received uint64 // tuples since the last barrier
	blocked  bool
}

// output is the sending end of a channel.
type output struct {
	edge   *edge
	to     *slot
	input  int // at the receiver
	open   []item
	count  uint64 // tuples since the last barrier
	lastAt time.Duration
}

// frame is what travels on a channel.
type frame struct {
	gen   generation
	to    *slot
	input int
	items []item
	mark  tuple.Mark
}

func newTask(l *lead, s *slot, g generation, from origin) *task {
	return makeTask(l.m, s, g, from, l.suspects.Suspects(), maps.Clone(l.failures))
}

func makeTask(m *master, s *slot, g generation, from origin, suspects *poison.Suspects, told map[poison.Key]int) *task {
	t := &task{slot: s, w: m.w, gen: g, m: m, from: from, suspects: suspects, told: told}
	t.careful = t.suspects.Careful(s.comp.name)
	for _, e := range s.comp.inputs {
		for range e.from.tasks {
			t.inputs = append(t.inputs, input{edge: e})
		}
	}
	for _, e := range s.comp.outputs {
		for i := range e.to.tasks {
			t.outputs = append(t.outputs, &output{edge: e, to: t.m.shape.slots[e.to.first+taskID(i)], input: e.base + s.index})
		}
	}
	t.logic = newLogic(t)
	s.newest = g
	s.tasks = append(s.tasks, t)
	return t
}

// end lets the task end now, whatever it was doing.
func (t *task) end() {
	t.interrupt()
	t.leave()
}

func (t *task) leave() {
	if t.state != ended {
		t.state = ended
		t.slot.tasks = slices.DeleteFunc(t.slot.tasks, func(o *task) bool { return o == t })
		t.w.tracef("%s: ended", t)
		if t.home != nil {
			t.home.left()
		}
	}
}

// fail ends the task, and its master hears why.
func (t *task) fail(err error) {
	if t.state == ended {
		return
	}
	t.w.tracef("%s: fails: %v", t, err)
	t.sayFailed(err)
	t.leave()
}

func (t *task) sayFailed(err error) {
	t.tell(checkpoint.TaskFailed{Generation: t.gen, Task: t.id, Err: fmt.Errorf("%s: %w", t, err)})
}

// becomeZombie lets the task go on for a while without a master.
func (t *task) becomeZombie() {
	if t.state == ended || t.cut {
		return
	}
	t.cut = true
	t.w.count("zombie task")
	t.w.tracef("%s: is a zombie now", t)
	t.w.after(t.w.linger(), t.end)
}

// tell sends a message to the master on the task's connection, in order.
func (t *task) tell(ev checkpoint.Event) {
	if t.home != nil {
		t.home.post(ev)
		return
	}
	t.upAt = max(t.upAt, t.w.now+t.w.hop())
	t.sendAt(t.upAt, ev)
}

// tellLossy sends a message that may get lost, come twice, or late.
func (t *task) tellLossy(ev checkpoint.Event) {
	if t.home != nil {
		t.home.post(ev)
		return
	}
	if _, report := ev.(checkpoint.SnapshotReported); report && (t.comp.region.ordered || t.storeFailed) {
		t.storeFailed = false
		t.tell(ev)
		return
	}
	if t.w.strikes(t.w.faults.Loss) {
		t.w.tracef("%s: %T is lost", t, ev)
		return
	}
	t.sendAt(t.w.now+t.w.hop(), ev)
	if t.w.strikes(t.w.faults.Double) {
		t.sendAt(t.w.now+t.w.late(), ev)
	}
}

func (t *task) sendAt(at time.Duration, ev checkpoint.Event) {
	cut := t.cut
	t.w.at(at, func() {
		if t.m.alive && !cut {
			t.m.receive(t.comp.region, ev)
		} else if t.w.strikes(t.w.faults.Stray) {
			t.w.after(t.w.late(), func() {
				if m := t.w.operator.current; m != nil {
					m.receive(t.comp.region, ev)
				}
			})
		}
	})
}

// restore makes the task's state what its origin says.
func (t *task) restore() {
	t.logic.restore(t.from, func() {
		if t.state != restoring {
			return
		}
		t.state = ready
		t.closed = t.from.batch
		if t.reports {
			t.committer = newCommitter(t)
		}
		t.w.tracef("%s: ready", t)
		t.tell(checkpoint.TaskReady{Generation: t.gen, Task: t.id})
	})
}

// void reports whether what carries generation g is void for the task.
func (t *task) void(g generation) bool {
	if g < t.gen && t.w.is(GenerationCheck) {
		t.w.count("void")
		return true
	}
	return false
}

// start lets the task run.
func (t *task) start(g generation, next batchID) {
	if t.void(g) || t.state != ready {
		return
	}
	if next != t.closed+1 {
		t.w.violate("%s starts with batch %d, but is restored to batch %d", t, next, t.closed)
		return
	}
	t.state = running
	if t.comp.kind == source {
		t.emitLater()
		return
	}
	t.aligner = barrier.NewAligner(barrier.AlignerConfig{
		Generation:  t.gen,
		Inputs:      len(t.inputs),
		Next:        next,
		ExactlyOnce: t.w.shape.exactlyOnce && t.w.is(Alignment),
	})
	t.workLater()
}

// inject closes a batch of a spout task.
func (t *task) inject(in checkpoint.InjectBarrier) {
	switch {
	case t.void(in.Generation), t.state != running:
	case in.Batch <= t.closed:
		t.w.count("repeated injection")
	case in.Batch != t.closed+1:
		t.fail(fmt.Errorf("barrier %d is injected after barrier %d", in.Batch, t.closed))
	default:
		t.closeBatch(in.Batch, in.Kind)
		t.pause(in.Pause)
	}
}

func (t *task) pause(paused bool) {
	wasPaused := t.paused
	t.paused = paused
	if wasPaused && !paused {
		t.emitLater()
	}
}

// activate says whether the operator wants input.
func (t *task) activate(active bool) {
	if t.inactive = !active; active && t.state == running {
		t.emitLater()
	}
}

func (t *task) resume(g generation) {
	if !t.void(g) && t.state == running {
		t.pause(false)
	}
}

// emitLater schedules the next NextTuple of a spout task.
func (t *task) emitLater() {
	if t.working || t.saidFinished {
		return
	}
	t.working = true
	pause := time.Millisecond + t.w.around(t.w.timing.Emit)
	if t.w.rng.IntN(12) == 0 { // no input for a while
		pause += t.w.around(3 * t.w.timing.Interval)
	}
	t.w.after(pause, func() {
		t.working = false
		if t.state != running || t.paused || t.inactive {
			return
		}
		emitted, finished := t.logic.(*sourceLogic).next()
		if finished {
			t.saidFinished = true
			t.tell(checkpoint.SpoutFinished{Generation: t.gen, Task: t.id})
			return
		}
		t.flush()
		if emitted && !t.changed {
			t.changed = true
			t.tell(checkpoint.InputChanged{Generation: t.gen, Task: t.id, After: t.closed})
		}
		t.emitLater()
	})
}

// closeBatch ends a batch: snapshot, then barrier, then commit.
func (t *task) closeBatch(n batchID, kind tuple.MarkKind) {
	t.logic.finish(n, kind)
	t.flush()
	for _, o := range t.outputs {
		t.send(o, &frame{mark: tuple.Mark{Kind: kind, Batch: n, Count: o.count}})
		o.count = 0
	}
	t.closed, t.changed = n, false
	if t.committer != nil {
		t.committer.finished(n)
	}
}

// emit sends a tuple to one task of each component that reads this one.
func (t *task) emit(it item) { t.emitTo(false, it) }

// emitTo sends it to those that read the failed stream, or to the others.
func (t *task) emitTo(failed bool, it item) {
	outs := t.outputs
	for _, e := range t.comp.outputs {
		to := int(it.key) % e.to.tasks
		if !e.byKey {
			to = t.w.rng.IntN(e.to.tasks)
		}
		o := outs[to]
		outs = outs[e.to.tasks:]
		if e.failed == failed {
			o.open = append(o.open, it)
			o.count++
		}
	}
}

func (t *task) flush() {
	for _, o := range t.outputs {
		if len(o.open) > 0 {
			t.send(o, &frame{items: o.open})
			o.open = nil
		}
	}
}

func (t *task) send(o *output, f *frame) {
	f.gen, f.to, f.input = t.gen, o.to, o.input
	if t.home != nil {
		t.home.carry(f)
		return
	}
	if t.w.strikes(t.w.faults.FrameLoss) {
		t.w.count("frame lost")
		t.w.tracef("%s: frame to %d is lost", t, f.to.id)
		if t.comp.region.ordered {
			t.w.after(t.w.hop(), func() { t.fail(fmt.Errorf("the channel to %d was lost", f.to.id)) })
		}
		return
	}
	o.lastAt = max(o.lastAt, t.w.now+t.w.hop())
	t.w.at(o.lastAt, func() { t.w.arrive(f) })
	if t.w.strikes(t.w.faults.FrameDouble) {
		t.w.count("frame doubled")
		t.w.at(o.lastAt, func() { t.w.arrive(f) })
	}
}

// arrive brings a frame to the receiver of its generation; a stray one also comes
// to the receiver there is now.
func (w *world) arrive(f *frame) {
	s := f.to
	if t := s.of(f.gen); t != nil {
		t.take(f)
	}
	if t := s.current(); t != nil && t.gen > f.gen && w.strikes(w.faults.Stray) {
		t.take(f)
	}
}

func (t *task) take(f *frame) {
	in := &t.inputs[f.input]
	in.queue = append(in.queue, f)
	t.workLater()
}

// readable returns an input that has something to read and is not blocked, or -1.
func (t *task) readable() int {
	found, seen := -1, 0
	for i := range t.inputs {
		if in := &t.inputs[i]; len(in.queue) > 0 && !in.blocked {
			if seen++; t.w.rng.IntN(seen) == 0 {
				found = i
			}
		}
	}
	return found
}

func (t *task) workLater() {
	if t.working || t.state != running || t.readable() < 0 {
		return
	}
	t.working = true
	t.w.after(t.w.around(time.Millisecond), func() {
		t.working = false
		if t.state == running {
			t.work()
			t.workLater()
		}
	})
}

// work reads one frame.
func (t *task) work() {
	i := t.readable()
	if i < 0 {
		return
	}
	in := &t.inputs[i]
	f := in.queue[0]
	in.queue = in.queue[1:]
	if len(f.items) > 0 {
		if t.void(f.gen) {
			return
		}
		in.received += uint64(len(f.items))
		if err := t.execute(in.edge, f.items); err != nil {
			t.w.count("tuple failed")
			t.fail(err)
			return
		}
		t.flush()
		return
	}
	seen := barrier.BarrierSeen{
		Input: i, Generation: f.gen, Kind: f.mark.Kind, Batch: f.mark.Batch,
		Announced: f.mark.Count, Received: in.received,
	}
	if !t.w.is(GenerationCheck) {
		seen.Generation = t.gen
	}
	for _, a := range t.aligner.Step(seen) {
		t.align(a)
	}
	if seen.Generation == t.gen {
		in.received = 0
	}
}
