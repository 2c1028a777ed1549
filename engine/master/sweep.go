package master

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
)

// sweeper deletes what no retained checkpoint names, one job at a time, on a
// goroutine of its own. It deletes nothing before the head that no longer names it
// has moved.
type sweeper struct {
	store  checkpoint.Store
	owners map[string]string // the regions of components
	log    *slog.Logger
	grace  time.Duration
	hook   func(string)
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	jobs   chan struct{} // there is something to do

	mu      sync.Mutex
	head    *checkpoint.Head // the newest known
	dropped []checkpoint.Ref

	manifests map[string]*checkpoint.Manifest // read so far
	tidied    time.Time                       // when orphans were last looked for
}

func newSweeper(store checkpoint.Store, p *plan.Plan, log *slog.Logger, grace time.Duration, hook func(string)) *sweeper {
	s := &sweeper{
		store:     store,
		owners:    map[string]string{},
		log:       log,
		grace:     grace,
		hook:      hook,
		ended:     make(chan struct{}),
		jobs:      make(chan struct{}, 1),
		manifests: map[string]*checkpoint.Manifest{},
	}
	for _, r := range p.Regions {
		for _, id := range r.Tasks {
			s.owners[p.Component(id).ID] = r.Name
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s
}

// moved tells the head that was moved and the checkpoints that left the retained set
// with it, in one step: to the newer head alone they would look like orphans, and by
// an older one they would still be kept.
func (s *sweeper) moved(h *checkpoint.Head, dropped []checkpoint.Ref) {
	s.mu.Lock()
	s.head = h
	s.dropped = append(s.dropped, dropped...)
	s.mu.Unlock()
}

// start has the sweeper look for what can be deleted.
func (s *sweeper) start() {
	select {
	case s.jobs <- struct{}{}:
	default:
	}
}

// close ends the sweeper; what is left is found as orphans later.
func (s *sweeper) close() {
	s.cancel()
	<-s.ended
}

func (s *sweeper) run() {
	defer close(s.ended)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.jobs:
		}
		s.work()
	}
}

// work does one job.
func (s *sweeper) work() {
	s.mu.Lock()
	head, dropped := s.head, s.dropped
	s.dropped = nil
	s.mu.Unlock()
	left, err := s.sweep(head, dropped)
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("cannot delete old checkpoints yet", "err", err)
		s.putOff(head, left)
	}
}

// droppedMax is how many checkpoints wait to be deleted. What is forgotten are orphans,
// once its generation has passed.
const droppedMax = 1000

// putOff keeps what could not be deleted for the next job. A store that refuses for ever
// must not fill the memory: neither with these nor with their manifests.
func (s *sweeper) putOff(head *checkpoint.Head, left []checkpoint.Ref) {
	s.mu.Lock()
	s.dropped = append(left, s.dropped...)
	s.dropped = slices.Clone(s.dropped[max(0, len(s.dropped)-droppedMax):])
	s.mu.Unlock()
	kept := map[string]bool{}
	for _, ref := range retainedOf(head) {
		kept[ref.Manifest] = true
	}
	maps.DeleteFunc(s.manifests, func(name string, _ *checkpoint.Manifest) bool { return !kept[name] })
}

// sweep returns the dropped checkpoints that are still to be deleted if it fails.
func (s *sweeper) sweep(head *checkpoint.Head, dropped []checkpoint.Ref) (left []checkpoint.Ref, err error) {
	var kept []*checkpoint.Manifest
	for _, ref := range retainedOf(head) {
		mf, err := s.read(ref)
		if err != nil {
			return dropped, err // without it nothing can be known to be free
		}
		kept = append(kept, mf)
	}
	for i, ref := range dropped {
		if err := s.free(ref, kept); err != nil {
			return dropped[i:], err
		}
	}
	// After the dropped ones, which are orphans too but would be missed by free.
	if now := time.Now(); s.tidied.IsZero() || now.Sub(s.tidied) >= max(s.grace, tidyMin) {
		if err := s.tidy(head, kept); err != nil {
			return nil, err
		}
		s.tidied = now
	}
	return nil, nil
}

// free deletes what only a dropped checkpoint names, its manifest last, so that a
// crash in between leaves something to go by.
func (s *sweeper) free(ref checkpoint.Ref, kept []*checkpoint.Manifest) error {
	mf, err := s.read(ref)
	if checkpoint.Hopeless(err) {
		s.log.Warn("cannot read a dropped checkpoint, its objects stay", "checkpoint", ref.String(), "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	names := append(checkpoint.Deletable([]*checkpoint.Manifest{mf}, kept), ref.Manifest)
	for _, name := range names {
		if err := s.store.Delete(s.ctx, name); err != nil {
			return err
		}
	}
	delete(s.manifests, ref.Manifest)
	return nil
}

func (s *sweeper) read(ref checkpoint.Ref) (*checkpoint.Manifest, error) {
	if mf := s.manifests[ref.Manifest]; mf != nil {
		return mf, nil
	}
	mf, err := checkpoint.ReadManifest(s.ctx, s.store, ref)
	if err == nil {
		s.manifests[ref.Manifest] = mf
	}
	return mf, err
}

// tidyMin is how much time at least lies between two looks for orphans.
const tidyMin = time.Minute

// tidy deletes what older generations have left behind.
func (s *sweeper) tidy(head *checkpoint.Head, kept []*checkpoint.Manifest) error {
	named := map[string]bool{}
	for _, ref := range retainedOf(head) {
		named[ref.Manifest] = true
	}
	for _, mf := range kept {
		for _, t := range mf.Tasks {
			for _, f := range t.Files {
				named[f.Name] = true
			}
		}
	}
	objects := map[checkpoint.Generation][]checkpoint.ObjectInfo{} // by that of their region
	for o, err := range s.store.List(s.ctx, "") {
		if err != nil {
			return err
		}
		g := s.current(head, o.Name)
		objects[g] = append(objects[g], o)
	}
	until := time.Now().Add(-s.grace).UnixMilli()
	for g, objects := range objects {
		for _, name := range checkpoint.Orphans(objects, named, g, until) {
			if err := s.store.Delete(s.ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// current returns the generation of the region that an object is of; if that cannot be told,
// the lowest of all.
func (s *sweeper) current(head *checkpoint.Head, name string) checkpoint.Generation {
	region, component := checkpoint.NameOwner(name)
	if component != "" {
		region = s.owners[component]
	}
	if r, ok := head.Regions[region]; ok {
		return r.Generation
	}
	lowest := head.Generation
	for _, r := range head.Regions {
		lowest = min(lowest, r.Generation)
	}
	return lowest
}
