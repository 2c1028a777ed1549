package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// A checkpoint is settled when every AckCommit of its batch, and so of all before it, was
// confirmed: everything that it lists is published.
//
// Who goes back along the line of the current checkpoint needs no more than what the older
// one lists. It was still prepared when the next checkpoint was taken, and is listed there
// too (invariant I7), or it was published by then, and publishing it again does nothing.
// So nothing of it was ever discarded: only what was prepared later is.
//
// Off that line it is different. Going on from a checkpoint discards what was prepared and
// is not listed in it. What an undone checkpoint lists may be gone, unless it was settled
// by the time it was undone. It is no use to a sink then, and going on from there as if
// nothing had happened would lose it without a word.

// settle notes that everything on the current line up to batch n is published. It reports
// whether that is news.
func (r *RegionHead) settle(n BatchID) bool {
	current := r.Current()
	if current == nil || min(n, current.Batch) <= r.Settled {
		return false
	}
	r.Settled = min(n, current.Batch)
	return true
}

// LeavesBehind reports whether a region that goes on from ref must do without the
// transactions that it lists.
func (r RegionHead) LeavesBehind(ref Ref) bool { return slices.Contains(r.Unsettled, ref.Manifest) }

// undo notes which checkpoints go out of the line when the region goes on from t, and how
// far the new line is settled. at is the index of t among the retained ones, or -1.
func (h *Head) undo(region string, r *RegionHead, t Target, at int) {
	undone := r.Retained[at+1:]
	older := h.pinnedBefore(region)
	if at < 0 {
		undone = slices.Concat(undone, older)
	}
	for _, ref := range undone {
		itself := t.Ref != nil && ref.Manifest == t.Ref.Manifest // a pin of this line
		if !itself && ref.Batch > r.Settled && !r.LeavesBehind(ref) {
			r.Unsettled = append(r.Unsettled, ref.Manifest)
		}
	}
	switch {
	case t.Ref == nil:
		r.Settled = 0
	case at < 0 && !holds(older, *t.Ref): // of another line: settled, or left behind
		r.Settled = t.Ref.Batch
	default:
		r.Settled = min(r.Settled, t.Ref.Batch)
	}
}

// pinnedBefore returns the pinned checkpoints that may be on the line of the retained ones
// and older. The head does not tell them from those that were undone, unless they are
// superseded.
func (h *Head) pinnedBefore(region string) (pinned []Ref) {
	r := h.Regions[region]
	for _, p := range h.Pins {
		older := len(r.Retained) > 0 && p.Generation <= r.Retained[0].Generation && p.Batch < r.Retained[0].Batch
		if p.Region == region && older && !holds(r.Superseded, p.Ref) {
			pinned = append(pinned, p.Ref)
		}
	}
	return pinned
}

// trim forgets what it knew of checkpoints that are not kept any more.
func (h *Head) trim() {
	for name, r := range h.Regions {
		kept := h.Kept(name)
		r.Unsettled = slices.DeleteFunc(r.Unsettled, func(manifest string) bool {
			return !slices.ContainsFunc(kept, func(ref Ref) bool { return ref.Manifest == manifest })
		})
		h.Regions[name] = r
	}
}

// distrust takes all checkpoints off the current lines for not settled: a head that was
// written before this was recorded does not tell.
func (h *Head) distrust() {
	for name, r := range h.Regions {
		r.Settled, r.Unsettled = 0, nil
		for _, ref := range h.Kept(name) {
			if !holds(r.Retained, ref) {
				r.Unsettled = append(r.Unsettled, ref.Manifest)
			}
		}
		h.Regions[name] = r
	}
}

// holds reports whether a checkpoint is among refs.
func holds(refs []Ref, ref Ref) bool {
	return slices.ContainsFunc(refs, func(r Ref) bool { return r.Manifest == ref.Manifest })
}

// TargetOf returns what takes a region to one of its kept checkpoints, of which m is the
// manifest. It refuses one that was undone before it was settled and lists transactions,
// unless drop is set: then they are to be left behind.
func TargetOf(h *Head, region string, ref Ref, m *Manifest, drop bool) (Target, error) {
	r := h.Regions[region]
	if !r.LeavesBehind(ref) || holds(r.Retained, ref) { // to go on from a retained one was accepted before
		return Target{Ref: &ref}, nil
	}
	if holders := m.holders(); len(holders) > 0 && !drop {
		return Target{}, fmt.Errorf("checkpoint %s of region %q was undone before all that it lists was known to be published, and what was not is gone if anything ran since: "+
			"transactions of %s: go back to a checkpoint before it, or accept the loss of what they have not published (--drop-unpublished)",
			ref, region, strings.Join(holders, ", "))
	}
	return Target{Ref: &ref, DropUnpublished: true}, nil
}

// holders returns the components of which the manifest lists more than empty handles.
func (m *Manifest) holders() (names []string) {
	for _, t := range m.Tasks {
		if t.HoldsTransactions() && !slices.Contains(names, fmt.Sprintf("%q", t.Component)) {
			names = append(names, fmt.Sprintf("%q", t.Component))
		}
	}
	slices.Sort(names)
	return names
}

// HoldsTransactions reports whether a task has handed in anything but empty handles.
func (t TaskSnapshot) HoldsTransactions() bool {
	for _, h := range t.Handles {
		if len(h.Data) > 0 {
			return true
		}
	}
	return false
}
