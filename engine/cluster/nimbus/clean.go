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

// clean removes what no record names: programs, contents of blobs, buckets and assignments.
// What it finds is left alone for a while first, counted by the leader's own clock, because a
// submission or an upload may be on its way, because somebody may just be fetching it, and
// because a topology without a record may be one that was lost.
func (l *leader) clean(ctx context.Context) error {
	if s, ok := l.Store.(cluster.Sweeper); ok && time.Since(l.swept) >= sweepEvery {
		l.swept = time.Now()
		if err := s.Sweep(ctx); err != nil {
			l.Log.Warn("tidying up the coordination store", "error", err)
		}
	}
	// An earlier leader may have made a record late, or the list of this one was of before.
	if err := errors.Join(l.topologies.more(ctx), l.assignments.more(ctx), l.blobs.more(ctx)); err != nil {
		return err
	}
	left := &leavings{before: l.unused, since: map[string]time.Time{}, now: time.Now(), limit: l.limits.unneeded}
	err := errors.Join(l.cleanBlobs(ctx, left), l.cleanTopologies(ctx, left))
	l.unused = left.since
	return err
}

// cleanBlobs removes contents that no blob has.
func (l *leader) cleanBlobs(ctx context.Context, left *leavings) error {
	if len(l.blobs.damaged) > 0 { // what has it?
		return nil
	}
	named := map[string]bool{}
	for _, b := range l.blobs.all() {
		named[b.SHA256] = true
	}
	return l.cleanObjects(ctx, left, cluster.ObjectsBlobs, named)
}

// cleanTopologies removes what belongs to no topology.
func (l *leader) cleanTopologies(ctx context.Context, left *leavings) error {
	if len(l.topologies.damaged) > 0 { // whose is what?
		return nil
	}
	named, ids := map[string]bool{}, map[string]bool{}
	for _, t := range l.topologies.all() {
		ids[t.ID] = true
		for v := range versions(t) {
			named[v.Binary.SHA256] = true
		}
	}
	buckets, err := l.Store.Buckets(ctx)
	if err != nil {
		return err
	}
	errs := []error{l.cleanObjects(ctx, left, cluster.ObjectsBinaries, named)}
	for id, a := range l.assignments.all() {
		if left.due("assignment "+id, ids[id]) {
			_, err := l.end(ctx, a)
			errs = append(errs, err)
		}
	}
	for _, name := range buckets {
		id, ok := strings.CutPrefix(name, cluster.TopologyBucket(""))
		if _, assigned := l.assignments.get(id); ok && left.due("bucket "+name, ids[id] || assigned || l.runsSomewhere(id)) {
			errs = append(errs, l.deleteBucket(ctx, id), l.secrets.remove(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// cleanObjects removes what is not named of a set of objects.
func (l *leader) cleanObjects(ctx context.Context, left *leavings, set string, named map[string]bool) error {
	objects, err := l.Store.Objects(ctx, set)
	if err != nil {
		return err
	}
	all, err := objects.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if !left.due(object(set, o.Name), named[o.Name]) {
			continue
		}
		if err := l.guarded(ctx, func(ctx context.Context) error { return objects.Delete(ctx, o.Name) }); err != nil {
			errs = append(errs, err)
			continue
		}
		left.forget(object(set, o.Name))
	}
	return errors.Join(errs...)
}

// object names an object among what may be unused.
func object(set, name string) string { return set + "/" + name }

// needed begins the time anew after which an unused object is removed.
func (l *leader) needed(set, name string) { l.unused[object(set, name)] = time.Now() }

// leavings are what was found without use, and since when. What is not there any more, or has
// a use, is forgotten.
type leavings struct {
	before, since map[string]time.Time
	now           time.Time
	limit         time.Duration
}

// due reports whether something was without use for long enough.
func (u *leavings) due(what string, used bool) bool {
	if used {
		return false
	}
	since, known := u.before[what]
	if !known {
		since = u.now
	}
	u.since[what] = since
	return u.now.Sub(since) >= u.limit
}

// forget forgets what was removed: it may be put there anew at any time.
func (u *leavings) forget(what string) { delete(u.since, what) }

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
