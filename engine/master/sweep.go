package master

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// sweeper deletes what no retained checkpoint names, one job at a time, on a
// goroutine of its own. It deletes nothing before the head that no longer names it
// has moved.
type sweeper struct {
	store  checkpoint.Store
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

func newSweeper(store checkpoint.Store, log *slog.Logger, grace time.Duration, hook func(string)) *sweeper {
	s := &sweeper{
		store:     store,
		log:       log,
		grace:     grace,
		hook:      hook,
		ended:     make(chan struct{}),
		jobs:      make(chan struct{}, 1),
		manifests: map[string]*checkpoint.Manifest{},
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
		s.mu.Lock()
		head, dropped := s.head, s.dropped
		s.dropped = nil
		s.mu.Unlock()
		if err := s.sweep(head, dropped); err != nil && s.ctx.Err() == nil {
			s.log.Warn("cannot delete old checkpoints yet", "err", err)
			s.mu.Lock()
			s.dropped = append(dropped, s.dropped...) // again with the next job
			s.mu.Unlock()
		}
	}
}

func (s *sweeper) sweep(head *checkpoint.Head, dropped []checkpoint.Ref) error {
	var kept []*checkpoint.Manifest
	for _, ref := range retainedOf(head) {
		mf, err := s.read(ref)
		if err != nil {
			return err // without it nothing can be known to be free
		}
		kept = append(kept, mf)
	}
	for _, ref := range dropped {
		if err := s.free(ref, kept); err != nil {
			return err
		}
	}
	// After the dropped ones, which are orphans too but would be missed by free.
	if now := time.Now(); s.tidied.IsZero() || now.Sub(s.tidied) >= max(s.grace, tidyMin) {
		if err := s.tidy(head, kept); err != nil {
			return err
		}
		s.tidied = now
	}
	return nil
}

// free deletes what only a dropped checkpoint names, its manifest last, so that a
// crash in between leaves something to go by.
func (s *sweeper) free(ref checkpoint.Ref, kept []*checkpoint.Manifest) error {
	mf, err := s.read(ref)
	if hopeless(err) {
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
	current := head.Generation
	for _, mf := range kept {
		for _, t := range mf.Tasks {
			for _, f := range t.Files {
				named[f.Name] = true
			}
		}
	}
	for _, r := range head.Regions {
		current = min(current, r.Generation)
	}
	var objects []checkpoint.ObjectInfo
	for o, err := range s.store.List(s.ctx, "") {
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	until := time.Now().Add(-s.grace).UnixMilli()
	for _, name := range checkpoint.Orphans(objects, named, current, until) {
		if err := s.store.Delete(s.ctx, name); err != nil {
			return err
		}
	}
	return nil
}
