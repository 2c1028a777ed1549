package nimbus

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// versions yields what a topology runs, or may run next.
func versions(t cluster.Topology) iter.Seq[cluster.Version] {
	return func(yield func(cluster.Version) bool) {
		for _, v := range []*cluster.Version{&t.Version, t.Before, t.Next} {
			if v != nil && !yield(*v) {
				return
			}
		}
	}
}

// sweepEvery is how often the coordination store is tidied up.
const sweepEvery = time.Hour

// clean removes what no topology names: programs, buckets and assignments. What it finds is
// left alone for a while first, counted by the leader's own clock, because a submission may be
// on its way, and because a topology without a record may be one that was lost.
func (l *leader) clean(ctx context.Context) error {
	if s, ok := l.Store.(cluster.Sweeper); ok && time.Since(l.swept) >= sweepEvery {
		l.swept = time.Now()
		if err := s.Sweep(ctx); err != nil {
			l.Log.Warn("tidying up the coordination store", "error", err)
		}
	}
	if err := l.assignments.load(ctx); err != nil { // an earlier leader may have made one late
		return err
	}
	binaries, err := l.Store.Objects(ctx, cluster.ObjectsBinaries)
	if err != nil {
		return err
	}
	objects, err := binaries.List(ctx)
	if err != nil {
		return err
	}
	buckets, err := l.Store.Buckets(ctx)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	ids := map[string]bool{}
	for _, t := range l.topologies.all() {
		ids[t.ID] = true
		for v := range versions(t) {
			named[v.Binary.SHA256] = true
		}
	}
	var errs []error
	for _, o := range objects {
		if l.unneeded(o.Name, named[o.Name]) {
			errs = append(errs, l.guarded(ctx, func(ctx context.Context) error { return binaries.Delete(ctx, o.Name) }))
		}
	}
	if len(l.topologies.damaged) > 0 { // whose are the rest?
		return errors.Join(errs...)
	}
	for id, a := range l.assignments.all() {
		if l.unneeded(id, ids[id]) {
			_, err := l.end(ctx, a)
			errs = append(errs, err)
		}
	}
	for _, name := range buckets {
		id, ok := strings.CutPrefix(name, cluster.TopologyBucket(""))
		if _, assigned := l.assignments.get(id); ok && l.unneeded(name, ids[id] || assigned || l.runsSomewhere(id)) {
			errs = append(errs, l.deleteBucket(ctx, id), l.secrets.remove(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// unneeded reports whether something was without use for long enough.
func (l *leader) unneeded(what string, used bool) bool {
	now := time.Now()
	since, known := l.unused[what]
	switch {
	case used:
		delete(l.unused, what)
		return false
	case !known:
		l.unused[what] = now
		return false
	}
	return now.Sub(since) >= l.limits.unneeded
}

// guarded deletes something, if this nimbus still leads.
func (l *leader) guarded(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := do(ctx); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	return nil
}
