package master

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
)

// Start says what a run goes on from, and how its components have changed since.
type Start struct {
	// From is "latest", which "" stands for; "empty", to begin anew although there are
	// checkpoints; or the names of kept checkpoints, GENERATION.BATCH, separated by
	// commas, of different regions.
	From string
	// Map gives components of the checkpoint other names: old to new.
	Map map[string]string
	// Drop are components whose state, positions and transactions are left behind. Of
	// one that holds transactions which may not be published yet this is refused, unless
	// DropUnpublished is set.
	Drop            []string
	DropUnpublished bool
	// TakeOver lets a run that begins from a copied checkpoint publish or discard the
	// transactions of the original. Without it they are left alone.
	TakeOver bool
}

// targets returns what each region is to go back to, by name; none for those that go on
// from their current checkpoint.
func (s Start) targets(h *checkpoint.Head, topology string) (map[string]*checkpoint.Target, error) {
	targets := map[string]*checkpoint.Target{}
	switch s.From {
	case "", "latest":
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
			if holds(t) && !s.DropUnpublished && mf.RunID == runID {
				return 0, fmt.Errorf("component %q cannot be dropped: it holds transactions of batch %d that may not be published yet: run it once more, or drop them too (--drop-unpublished)",
					t.Component, t.Handles[len(t.Handles)-1].Batch)
			}
			continue
		}
		t.Component = s.renamed(t.Component)
		if mf.RunID != runID && !s.TakeOver && holds(t) {
			left += len(t.Handles)
			t.Handles = nil
		}
		tasks = append(tasks, t)
	}
	mf.Tasks = tasks
	return left, nil
}

// holds reports whether a task has handed in anything but empty handles.
func holds(t checkpoint.TaskSnapshot) bool {
	for _, h := range t.Handles {
		if len(h.Data) > 0 {
			return true
		}
	}
	return false
}
