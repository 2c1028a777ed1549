package master

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
)

// Start says what a run goes on from, and how its components have changed since.
type Start struct {
	// From is "", to go on from the latest checkpoints, or to begin if there never were any;
	// "latest", which takes it for an error if there never were; "empty", to begin anew
	// although there are checkpoints; or the names of kept checkpoints, GENERATION.BATCH,
	// separated by commas, of different regions.
	From string
	// Map gives components of the checkpoint other names: old to new. COMPONENT/STATE to
	// COMPONENT/STATE does so for a keyed state, with the name that the component has now.
	Map map[string]string
	// Drop are components whose state, positions and transactions are left behind, and,
	// as COMPONENT/STATE with the name that the component has now, single keyed states. Of
	// a component that holds transactions which may not be published yet this is refused, unless
	// DropUnpublished is set. So it is to go on From a checkpoint that was undone before
	// its transactions were known to be published.
	Drop            []string
	DropUnpublished bool
	// TakeOver lets a run that begins from a copied checkpoint publish or discard the
	// transactions of the original. Without it they are left alone, and what may be one,
	// or state, is refused: the handles of a txn.StatefulBolt that is no sink of package txn.
	TakeOver bool
	// Once, if it is not "", names this start. Each region begins where From says only once
	// under a name: a process that dies and is started again in the same way goes on.
	Once string
	// Begun says that this start had begun before: if another one has taken its place since,
	// it has nothing more to do, and the error wraps ErrReplaced.
	Begun bool
	// Kept says that the topology has run before: without a head nothing begins, and the error
	// wraps ErrStoreUnreachable. So it is as well if Begun, or with an Unmoved checkpoint.
	Kept bool
	// Later, if set, reports whether another start was wanted after this one: if it has begun
	// meanwhile, this one is too late, and the error wraps ErrReplaced.
	Later func(once string) bool
	// Unmoved, if there is any, are the current checkpoints that regions must have, by name:
	// else nothing is changed, and the error wraps ErrElsewhere.
	Unmoved map[string]string
}

// FromLatest and FromNew are each a From: there must be checkpoints, or there must be none.
const (
	FromLatest = "latest"
	FromNew    = "new"
)

// ErrElsewhere is wrapped by the error of a run that was to begin from Start.Unmoved.
var ErrElsewhere = errors.New("the head has moved on")

// ErrReplaced is wrapped by the error of a run in whose place another start has come.
var ErrReplaced = errors.New("another start has taken the place of this one")

// begun reports whether a region has begun where From says already.
func (s Start) begun(h *checkpoint.Head, region string) bool {
	return s.Once != "" && h != nil && h.Regions[region].Started == s.Once
}

// lastBegun returns the newest generation that this start has given a region, 0 if there
// is none.
func (s Start) lastBegun(h *checkpoint.Head) (last checkpoint.Generation) {
	for name, r := range h.Regions {
		if s.begun(h, name) {
			last = max(last, r.StartedAt)
		}
	}
	return last
}

// someBegun reports whether any region has begun.
func (s Start) someBegun(h *checkpoint.Head) bool { return h != nil && s.lastBegun(h) > 0 }

// allowed reports what speaks against beginning at all.
func (s Start) allowed(h *checkpoint.Head, topology string) error {
	if h == nil {
		return s.missed(topology)
	}
	own := s.lastBegun(h)
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		r, now := h.Regions[name], "none"
		if current := r.Current(); current != nil {
			now = current.String()
		}
		// A region that an earlier start has begun is one that this start had not come to when
		// its process died, or does not have any more.
		another := (s.Begun || own > 0) && r.Started != "" && r.StartedAt > own
		switch want, ok := s.Unmoved[name]; {
		case s.begun(h, name):
		case another, s.Later != nil && s.Later(r.Started):
			return fmt.Errorf("region %q of topology %q was started as %s, this is %s: %w", name, topology, r.Started, s.Once, ErrReplaced)
		case s.From == FromNew && now != "none":
			return fmt.Errorf("topology %q has checkpoints, the newest is %s: say what it is to go on from: --from latest, empty or GENERATION.BATCH", topology, now)
		case ok && cmp.Or(want, "none") != now:
			return fmt.Errorf("region %q of topology %q was to go on from checkpoint %s, and is at %s: %w", name, topology, want, now, ErrElsewhere)
		}
	}
	return nil
}

// missed returns an error if there must be a head and there is none: somebody has taken the
// checkpoints away, or what they are in, and may put them back.
func (s Start) missed(topology string) error {
	kept := slices.ContainsFunc(slices.Collect(maps.Values(s.Unmoved)), func(want string) bool { return want != "" })
	switch {
	case s.Begun || s.Kept || kept:
	case s.From == FromLatest:
		return fmt.Errorf("start from latest: topology %q has no checkpoints in its store: is it the right name and store? --from empty begins anew", topology)
	default:
		return nil
	}
	return Unreachable(fmt.Errorf("topology %q has run, and the store has no head that says what is committed: put its checkpoints back", topology))
}

// wanted returns what From means: for each region that it is about, by name, what to go
// back to.
func (s Start) wanted(h *checkpoint.Head, topology string) (map[string]*checkpoint.Target, error) {
	targets := map[string]*checkpoint.Target{}
	switch s.From {
	case "", FromLatest, FromNew:
		return targets, nil
	case "empty":
		if h != nil {
			for name := range h.Regions {
				targets[name] = &checkpoint.Target{}
			}
		}
		return targets, nil
	}
	for name := range strings.SplitSeq(s.From, ",") {
		region, ref, err := Find(h, topology, name)
		if err != nil && s.someBegun(h) {
			continue // it has begun there long ago, and need not be kept any more
		}
		if err != nil {
			return nil, fmt.Errorf("start from %s: %w", s.From, err)
		}
		if targets[region] != nil {
			return nil, fmt.Errorf("start from %s: two checkpoints of region %q", s.From, region)
		}
		targets[region] = &checkpoint.Target{Ref: &ref}
	}
	return targets, nil
}

// targets returns what each region is to go back to, by name; none for those that go on
// from their current checkpoint. It refuses what could not be restored, before anything
// is written.
func (m *Master) targets(h *checkpoint.Head) (map[string]*checkpoint.Target, error) {
	if err := m.cfg.Start.Check(); err != nil {
		return nil, err
	}
	if err := m.cfg.Start.allowed(h, m.cfg.Plan.Topology); err != nil {
		return nil, err
	}
	targets, err := m.cfg.Start.wanted(h, m.cfg.Plan.Topology)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(targets, func(region string, _ *checkpoint.Target) bool { return m.cfg.Start.begun(h, region) })
	for _, region := range slices.Sorted(maps.Keys(targets)) {
		if targets[region].Ref == nil {
			continue
		}
		if *targets[region], err = m.target(h, region, *targets[region].Ref); err != nil {
			return nil, fmt.Errorf("start from %s: %w", m.cfg.Start.From, err)
		}
	}
	return targets, nil
}

// target is targets for one region.
func (m *Master) target(h *checkpoint.Head, region string, ref checkpoint.Ref) (checkpoint.Target, error) {
	if !slices.ContainsFunc(m.cfg.Plan.Regions, func(r plan.Region) bool { return r.Name == region }) {
		return checkpoint.Target{}, fmt.Errorf("checkpoint %s is of region %q, and the topology has none of its components any more; it has the regions %s",
			ref, region, regionNames(m.cfg.Plan))
	}
	mf, err := checkpoint.ReadManifest(m.ctx, m.cfg.Store, ref)
	switch {
	case checkpoint.Hopeless(err):
		return checkpoint.Target{}, err
	case err != nil:
		return checkpoint.Target{}, Unreachable(err)
	}
	to, err := checkpoint.TargetOf(h, region, ref, mf, m.cfg.Start.DropUnpublished)
	if err == nil {
		_, err = m.fit(mf, fitting{old: true, quiet: true})
	}
	return to, err
}

// Find returns the kept checkpoint of a name, GENERATION.BATCH, and its region.
func Find(h *checkpoint.Head, topology, name string) (string, checkpoint.Ref, error) {
	g, n, err := checkpoint.ParseRef(name)
	if err != nil {
		return "", checkpoint.Ref{}, err
	}
	if h == nil {
		return "", checkpoint.Ref{}, fmt.Errorf("topology %q has no checkpoints", topology)
	}
	region, ref, ok := h.Find(g, n)
	if !ok {
		var kept []string
		for _, region := range slices.Sorted(maps.Keys(h.Regions)) {
			for _, ref := range h.Kept(region) {
				kept = append(kept, ref.String())
			}
		}
		return "", ref, fmt.Errorf("topology %q keeps no checkpoint %s; it keeps %s", topology, name, strings.Join(kept, ", "))
	}
	return region, ref, nil
}

// renamed returns the name that a component of a checkpoint has now.
func (s Start) renamed(component string) string {
	if name, ok := s.Map[component]; ok {
		return name
	}
	return component
}

// reshape renames and drops the snapshots of a manifest, and leaves the transactions of
// another run alone. It returns how many those were.
func (s Start) reshape(mf *checkpoint.Manifest, runID string) (left int, err error) {
	components := map[string]checkpoint.ComponentMeta{}
	for name, meta := range mf.Components {
		to := s.renamed(name)
		if _, taken := components[to]; taken {
			return 0, fmt.Errorf("components %q and another would both be %q: map only one of them to it", name, to)
		}
		components[to] = meta
	}
	mf.Components = components
	var tasks []checkpoint.TaskSnapshot
	for _, t := range mf.Tasks {
		if slices.Contains(s.Drop, t.Component) {
			if t.HoldsTransactions() && !s.DropUnpublished && mf.RunID == runID {
				return 0, fmt.Errorf("component %q cannot be dropped: it holds transactions of batch %d that may not be published yet: run it once more, or drop them too (--drop-unpublished)",
					t.Component, t.Handles[len(t.Handles)-1].Batch)
			}
			continue
		}
		t.Component = s.renamed(t.Component)
		if t.States, err = s.restate(t.Component, t.States); err != nil {
			return 0, err
		}
		tasks = append(tasks, t)
	}
	mf.Tasks = tasks
	if mf.RunID == runID || s.TakeOver {
		return 0, nil
	}
	left = leaveBehind(mf)
	for _, t := range mf.Tasks {
		if t.HoldsTransactions() {
			return 0, fmt.Errorf("component %q is a stateful bolt with handles of run %s, of which the checkpoint is a copy: they may be its state, or transactions that the original is to publish: let it have them (--take-over), or leave the component behind (--drop %s)",
				t.Component, mf.RunID, t.Component)
		}
	}
	return left, nil
}
