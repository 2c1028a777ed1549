package task

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/tuple"
)

// Stats is what one task has done in this run, through all of its generations, with
// what was done again after a rollback. The task and its committer write it, once a
// frame or less often; anyone may read it.
type Stats struct {
	Emitted  []atomic.Uint64    // tuples by output stream, as the component has them
	Executed []atomic.Uint64    // tuples by input, as the component has them
	Execute  *measure.Histogram // of a tuple, as the mean of its frame; waiting for receivers included
	Activity *measure.Activity  // blocked by receiver: see Receivers
	Late     []atomic.Uint64    // nanoseconds by source after the first barrier of a batch: see Sources

	// The task's part in a checkpoint: until a spout takes the barrier; from the first
	// barrier to the last; finishing the batch, which holds the task up; from then on
	// until the state is durable.
	Wait, Align, Copy, Write *measure.Histogram

	StoredBytes atomic.Uint64 // of state files written
	StateBytes  atomic.Int64  // of the state files of the newest batch
	HeldBytes   atomic.Int64  // of entries of state in memory, at the last barrier
	store       atomic.Pointer[checkpoint.StateMeter]

	// What is tried again and again without success, or nil.
	commitTrouble, ackTrouble atomic.Pointer[string]
}

// Bounds of the histograms: 0.1 µs to 0.8 s for a tuple, 0.1 ms to 52 s for a phase.
const (
	executeUnit  = 100 * time.Nanosecond
	executeCount = 24
	phaseUnit    = 100 * time.Microsecond
	phaseCount   = 20
)

// NewPhase returns a histogram for a phase of a checkpoint.
func NewPhase() *measure.Histogram { return measure.NewHistogram(phaseUnit, phaseCount) }

// NewSlots returns the slots of all tasks of a topology in the order of their ids.
func NewSlots(p *plan.Plan) []*Slot {
	var slots []*Slot
	for _, t := range p.Tasks {
		c := &p.Components[t.Component]
		slots = append(slots, &Slot{Task: t, Stats: Stats{
			Emitted:  measure.Counters(len(c.Streams)),
			Executed: measure.Counters(len(c.Inputs)),
			Execute:  measure.NewHistogram(executeUnit, executeCount),
			Activity: measure.NewActivity(len(Receivers(p, c))),
			Late:     measure.Counters(len(Sources(c))),
			Wait:     NewPhase(), Align: NewPhase(), Copy: NewPhase(), Write: NewPhase(),
		}})
	}
	return slots
}

// Receivers returns the components that read from c, each once.
func Receivers(p *plan.Plan, c *plan.Component) []string {
	var ids []string
	for _, s := range p.Subscribers(c.ID) {
		if !slices.Contains(ids, s.Component.ID) {
			ids = append(ids, s.Component.ID)
		}
	}
	return ids
}

// Sources returns the components that c reads from, each once.
func Sources(c *plan.Component) []string {
	var ids []string
	for _, in := range c.Inputs {
		if !slices.Contains(ids, in.Component) {
			ids = append(ids, in.Component)
		}
	}
	return ids
}

// TuplesEmitted returns the tuples emitted on all streams.
func (s *Stats) TuplesEmitted() uint64 { return sum(s.Emitted) }

// TuplesExecuted returns the tuples executed from all inputs.
func (s *Stats) TuplesExecuted() uint64 { return sum(s.Executed) }

func sum(counters []atomic.Uint64) uint64 {
	total := uint64(0)
	for _, n := range load(counters) {
		total += n
	}
	return total
}

// Troubles returns what the task tries again and again without success.
func (s *Stats) Troubles() []string {
	var all []string
	for _, t := range []*atomic.Pointer[string]{&s.commitTrouble, &s.ackTrouble} {
		if text := t.Load(); text != nil {
			all = append(all, *text)
		}
	}
	return all
}

func load(counters []atomic.Uint64) []uint64 {
	all := make([]uint64, len(counters))
	for i := range all {
		all[i] = counters[i].Load()
	}
	return all
}

// count publishes the tuples emitted so far.
func (t *task) count() {
	for i, earlier := range t.earlier {
		t.Emitted[i].Store(earlier + t.out.EmittedOn(i))
	}
}

// executed counts the tuples of a frame.
func (t *task) executed(s *tuple.Stream, n int, took time.Duration) {
	for i := range t.comp.Inputs {
		if in := &t.comp.Inputs[i]; in.Stream == s.ID && in.Component == s.Component {
			t.Executed[i].Add(uint64(n))
			break
		}
	}
	t.Execute.Observe(took, n)
}

// alignment measures how long the barriers of a batch take to come in.
type alignment struct {
	sources []int // of each input, as in Stats.Late
	first   map[tuple.BatchID]time.Duration
	last    time.Duration // how long the last batch that is in took
}

func newAlignment(t *task) alignment {
	a := alignment{first: map[tuple.BatchID]time.Duration{}}
	sources := Sources(t.comp)
	for _, in := range t.inputs {
		from := t.env.Plan.Component(in.Source()).ID
		a.sources = append(a.sources, slices.Index(sources, from))
	}
	return a
}

// barrier notes that the barrier of batch n is in on an input.
func (a *alignment) barrier(t *task, input int, n tuple.BatchID) {
	now := t.env.Now()
	first, later := a.first[n]
	if !later {
		first = now
		a.first[n] = now
	}
	t.Late[a.sources[input]].Add(uint64(now - first))
}

// complete notes that the barrier of batch n is in on all of them.
func (a *alignment) complete(t *task, n tuple.BatchID) {
	a.last = t.env.Now() - a.first[n]
	t.Align.Observe(a.last, 1)
	delete(a.first, n)
}

// phases is how long a barrier has held a task up.
type phases struct{ align, copy time.Duration }

// held notes that finishing a batch has held the task up since began.
func (t *task) held(began, align time.Duration) {
	t.phases = phases{align, t.env.Now() - began}
	t.Copy.Observe(t.phases.copy, 1)
}

// Store returns what the task's local store takes; nothing if it has none, or none that
// can tell.
func (s *Stats) Store() checkpoint.StateStats {
	if m := s.store.Load(); m != nil {
		return (*m).Stats()
	}
	return checkpoint.StateStats{}
}

// Queues calls fn with how full each channel of a generation is, from 0 to 1.
func (g *Generation) Queues(fn func(from, to int, fill float64)) {
	for _, t := range g.tasks {
		for _, in := range t.inputs {
			fn(in.Source(), t.ID, float64(in.Len())/float64(in.Cap()))
		}
	}
}

func totalBytes(files []checkpoint.FileRef) int64 {
	n := int64(0)
	for _, f := range files {
		n += f.Size
	}
	return n
}

// stored counts the files of a new batch.
func (s *Stats) stored(before, now []checkpoint.FileRef) {
	for _, f := range now {
		if !slices.ContainsFunc(before, func(old checkpoint.FileRef) bool { return old.Name == f.Name }) {
			s.StoredBytes.Add(uint64(f.Size))
		}
	}
	s.StateBytes.Store(totalBytes(now))
}
