package master

import (
	"fmt"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/measure"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
)

// Inspector looks at a run from outside. Any goroutine may use it at any time, also
// after the run.
type Inspector struct{ m *Master }

// Plan returns the topology's plan.
func (i *Inspector) Plan() *plan.Plan { return i.m.cfg.Plan }

// Engine returns the version of Isobar.
func (i *Inspector) Engine() string { return i.m.cfg.Engine }

// Elapsed returns how long the run has lasted.
func (i *Inspector) Elapsed() time.Duration { return i.m.now() }

// Stats returns what a task has done.
func (i *Inspector) Stats(id int) *task.Stats { return i.m.cfg.Crew.Stats(id) }

// Queues calls fn with how full each channel is, from 0 to 1.
func (i *Inspector) Queues(fn func(from, to int, fill float64)) {
	for _, r := range i.m.regions {
		if g := r.gen.Load(); g != nil {
			g.Queues(fn)
		}
	}
}

// Regions returns how the regions are.
func (i *Inspector) Regions() []RegionStatus {
	var all []RegionStatus
	for _, r := range i.m.regions {
		s := r.record.status()
		s.Name, s.Tasks = r.Name, r.Tasks
		if s.OutageSince != 0 {
			s.Degraded = append(s.Degraded, fmt.Sprintf("store unreachable for %s: %s",
				(i.m.now()-s.OutageSince).Round(time.Second), s.LastError))
		}
		for _, id := range r.Tasks {
			if s.Running {
				s.Degraded = append(s.Degraded, i.Stats(id).Troubles()...)
			}
		}
		if !s.Running && !s.Over && s.LastError != "" && s.OutageSince == 0 {
			s.Degraded = append(s.Degraded, "after a failure: "+s.LastError)
		}
		all = append(all, s)
	}
	return all
}

// RegionStatus is how a region is, and what has become of its batches in this run.
type RegionStatus struct {
	Name  string
	Tasks []int
	checkpoint.Look
	Committed, GivenUp, Restarts uint64
	ManifestBytes                uint64          // of all manifests stored
	Last                         *checkpoint.Ref // the newest complete checkpoint, or nil
	LastError                    string          // what last went wrong, or ""
	Failed                       bool            // the region is over, because of LastError
	Degraded                     []string        // what keeps it from working as it should, now

	// From barrier to commit; storing the manifest; moving the head.
	Total, Store, Commit measure.Distribution
}

// record is what the master writes down about a region.
type record struct {
	mu                   sync.Mutex
	now                  RegionStatus
	batches              map[checkpoint.BatchID]*times
	total, store, commit *measure.Histogram
}

// times are when things happened to a batch; 0 if they have not.
type times struct {
	injected, storing, moving time.Duration
	ref                       checkpoint.Ref
}

func newRecord() *record {
	return &record{
		batches: map[checkpoint.BatchID]*times{},
		total:   task.NewPhase(),
		store:   task.NewPhase(),
		commit:  task.NewPhase(),
	}
}

func (r *record) status() RegionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now
	r.total.AddTo(&s.Total)
	r.store.AddTo(&s.Store)
	r.commit.AddTo(&s.Commit)
	return s
}

// last returns the newest complete checkpoint, or nil.
func (r *record) last() *checkpoint.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Last
}

// happened writes down an event before the Coordinator takes it.
func (r *record) happened(now time.Duration, ev checkpoint.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ev := ev.(type) {
	case checkpoint.GenerationRaised:
		r.now.Last = ev.From
	case checkpoint.ManifestStored:
		if b := r.batches[ev.Ref.Batch]; b != nil && ev.Generation == r.now.Generation {
			r.store.Observe(now-b.storing, 1)
			r.now.ManifestBytes += uint64(ev.Ref.Size)
		}
	case checkpoint.HeadMoved:
		if b := r.batches[ev.Batch]; b != nil && ev.Generation == r.now.Generation {
			r.commit.Observe(now-b.moving, 1)
			r.total.Observe(now-b.injected, 1)
			r.now.Committed++
			r.now.Last = &b.ref
			delete(r.batches, ev.Batch)
		}
	case checkpoint.ManifestFailed:
		r.now.LastError = ev.Err.Error()
	case checkpoint.HeadFailed:
		r.now.LastError = ev.Err.Error()
	case checkpoint.StoreFailed:
		r.now.LastError = ev.Err.Error()
	case checkpoint.TaskFailed:
		r.now.LastError = ev.Err.Error()
	default:
	}
}

// did writes down an action of the Coordinator's.
func (r *record) did(now time.Duration, a checkpoint.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch a := a.(type) {
	case checkpoint.Restore:
		clear(r.batches)
	case checkpoint.InjectBarrier:
		r.batches[a.Batch] = &times{injected: now}
	case checkpoint.StoreManifest:
		if b := r.batches[a.Batch]; b != nil && b.storing == 0 {
			b.storing = now
		}
	case checkpoint.MoveHead:
		if b := r.batches[a.Ref.Batch]; b != nil {
			b.moving, b.ref = now, a.Ref
		}
	case checkpoint.GiveUp:
		r.now.GivenUp++
		delete(r.batches, a.Batch)
	case checkpoint.FailRegion:
		r.now.Failed = true
		r.now.LastError = a.Err.Error()
	default:
	}
}

// restarted counts a rollback.
func (r *record) restarted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Restarts++
}

// looks writes down how the region looks.
func (r *record) looks(l checkpoint.Look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Look = l
}
