package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Cordon returns a view in which the supervisors of some names, which are ids, hosts or
// machines, get no more processes. What runs there stays.
func Cordon(v View, names []string) View {
	return exclude(v, func(s *Supervisor) string {
		if slices.ContainsFunc([]string{s.ID, s.Host, s.machine()}, func(name string) bool { return slices.Contains(names, name) }) {
			return "it is cordoned"
		}
		return ""
	})
}

// exclude sets why supervisors are excluded, of those that are not yet.
func exclude(v View, why func(*Supervisor) string) View {
	v.Supervisors = slices.Clone(v.Supervisors)
	for i := range v.Supervisors {
		s := &v.Supervisors[i]
		s.Excluded = cmp.Or(s.Excluded, why(s))
	}
	return v
}

// BlacklistConfig says when a supervisor is excluded. Of the keys, which begin with
// blacklist.scheduler, the defaults are 3, 300 and 1800.
type BlacklistConfig struct {
	Count  int           // tolerance.count: so many failures
	Within time.Duration // tolerance.time.secs: in so long
	For    time.Duration // resume.time.secs: exclude it for so long
}

// Blacklist remembers which supervisors fail again and again. Like Storm's it lets them
// work again when there are too few slots without them, those first that were excluded
// first. Times are of any clock that goes on evenly.
type Blacklist struct {
	config   BlacklistConfig
	failures map[string][]time.Duration
	until    map[string]time.Duration
}

// NewBlacklist returns a Blacklist that is empty.
func NewBlacklist(c BlacklistConfig) *Blacklist {
	return &Blacklist{config: c, failures: map[string][]time.Duration{}, until: map[string]time.Duration{}}
}

// Failed counts a failure of a supervisor: it has fallen silent, or a worker has died on it.
func (b *Blacklist) Failed(now time.Duration, supervisor string) {
	recent := slices.DeleteFunc(append(b.failures[supervisor], now), func(at time.Duration) bool {
		return now-at >= b.config.Within
	})
	b.failures[supervisor] = recent
	if len(recent) >= b.config.Count {
		b.until[supervisor] = now + b.config.For
		delete(b.failures, supervisor)
	}
}

// Apply returns a view in which what is on the list at that time is excluded. What the
// topologies need for want of slots comes off the list.
func (b *Blacklist) Apply(now time.Duration, v View) View {
	maps.DeleteFunc(b.until, func(_ string, until time.Duration) bool { return now >= until })
	for id, recent := range b.failures {
		if now-slices.Max(recent) >= b.config.Within {
			delete(b.failures, id)
		}
	}
	b.release(v)
	why := fmt.Sprintf("it has failed %d times within %v", b.config.Count, b.config.Within)
	return exclude(v, func(s *Supervisor) string {
		if _, listed := b.until[s.ID]; listed {
			return why
		}
		return ""
	})
}

// release takes off the list what there are too few slots without.
func (b *Blacklist) release(v View) {
	board := newBoard(v)
	board.keep()
	missing := 0
	for _, j := range board.jobs {
		if !j.fixed() {
			missing += max(0, min(max(1, j.Record.Version.Workers), len(j.tasks))-len(j.kept))
		}
	}
	var listed []*Supervisor
	for _, s := range board.supervisors {
		if _, is := b.until[s.ID]; is {
			listed = append(listed, s)
		} else if s.usable() {
			missing -= len(board.freePorts(s))
		}
	}
	slices.SortStableFunc(listed, func(x, y *Supervisor) int { return cmp.Compare(b.until[x.ID], b.until[y.ID]) })
	for _, s := range listed {
		if missing <= 0 {
			return
		}
		if free := len(board.freePorts(s)); s.usable() && free > 0 {
			missing -= free
			delete(b.until, s.ID)
		}
	}
}
