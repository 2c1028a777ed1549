package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Target is the checkpoint that a region is to go on from instead of its current one.
type Target struct {
	Ref *Ref // nil: none, so from the beginning
	// DropUnpublished lets it be one whose transactions have to be left behind; see
	// [TargetOf].
	DropUnpublished bool
}

// String returns the checkpoint's name, or "the beginning".
func (t Target) String() string {
	if t.Ref == nil {
		return "the beginning"
	}
	return t.Ref.String()
}

// Edit is a change of a head by an operator, who commits nothing by it. It changes h and
// returns the checkpoints that the head keeps no more; it must depend on nothing but h,
// because it is made again on another head if that one has moved. After an error h is of
// no use.
type Edit func(h *Head) (dropped []Ref, err error)

// goBack makes t the current checkpoint of a region. What it undoes is superseded.
func (h *Head) goBack(region string, t Target) error {
	r := h.Regions[region]
	var retained []Ref
	at := -1
	if t.Ref != nil {
		if !h.keeps(region, *t.Ref) {
			return fmt.Errorf("checkpoint %s of region %q is not kept any more", t.Ref, region)
		}
		// Of another line than the current one, only the checkpoint itself is retained.
		retained = []Ref{*t.Ref}
		at = slices.IndexFunc(r.Retained, func(ref Ref) bool { return ref.Manifest == t.Ref.Manifest })
		switch {
		case at >= 0:
			retained = r.Retained[:at+1]
		case r.LeavesBehind(*t.Ref) && !t.DropUnpublished:
			return fmt.Errorf("checkpoint %s of region %q was undone before all that it lists was known to be published", t.Ref, region)
		}
	}
	h.undo(region, &r, t, at)
	var superseded []Ref
	for _, ref := range slices.Concat(r.Retained, r.Superseded) {
		if !holds(retained, ref) && !holds(superseded, ref) {
			superseded = append(superseded, ref)
		}
	}
	r.Retained, r.Superseded = slices.Clip(retained), superseded
	h.Regions[region] = r
	return nil
}

// keeps reports whether a checkpoint of a region can be gone back to.
func (h *Head) keeps(region string, ref Ref) bool {
	return holds(h.Kept(region), ref)
}

// PinEdit keeps the checkpoint of a region with that generation and batch until it is
// unpinned. A name other than "" must be valid UTF-8 and not be in use for another
// checkpoint of the region.
func PinEdit(g Generation, n BatchID, name string) Edit {
	return func(h *Head) ([]Ref, error) {
		if !utf8.ValidString(name) { // two such names could be the same once they are stored
			return nil, fmt.Errorf("pin checkpoint %d.%d as %q: a name must be valid UTF-8", g, n, name)
		}
		region, ref, ok := h.Find(g, n)
		if !ok {
			return nil, fmt.Errorf("pin checkpoint %d.%d: topology %q keeps no such checkpoint", g, n, h.Topology)
		}
		for _, p := range h.Pins {
			switch {
			case p.Region != region || p.Name != name:
			case p.Manifest == ref.Manifest:
				return nil, nil // it is pinned
			case name != "":
				return nil, fmt.Errorf("pin checkpoint %d.%d as %q: that is the name of %s: unpin it first, or take another name", g, n, name, p)
			}
		}
		h.Pins = append(h.Pins, Pin{Ref: ref, Region: region, Name: name})
		return nil, nil
	}
}

// UnpinEdit takes back the pins with a name, or all pins of a checkpoint if name is "".
func UnpinEdit(g Generation, n BatchID, name string) Edit {
	return func(h *Head) ([]Ref, error) {
		matches := func(p Pin) bool {
			if name != "" {
				return p.Name == name
			}
			return p.Generation == g && p.Batch == n
		}
		var gone []Pin
		h.Pins = slices.DeleteFunc(h.Pins, func(p Pin) bool {
			if matches(p) {
				gone = append(gone, p)
			}
			return matches(p)
		})
		if len(gone) == 0 {
			what := fmt.Sprintf("checkpoint %d.%d", g, n)
			if name != "" {
				what = fmt.Sprintf("savepoint %q", name)
			}
			return nil, fmt.Errorf("unpin %s: topology %q has no such pin", what, h.Topology)
		}
		var dropped []Ref
		for _, p := range gone {
			if !h.keeps(p.Region, p.Ref) {
				dropped = append(dropped, p.Ref)
			}
		}
		return dropped, nil
	}
}

// PruneEdit lets go of superseded checkpoints and, if keep is above 0, of all but the
// newest keep retained ones of each region. Pinned ones stay pinned.
func PruneEdit(keep int) Edit {
	return func(h *Head) ([]Ref, error) {
		if keep < 0 {
			return nil, errors.New("prune: at least one checkpoint must be kept")
		}
		var dropped []Ref
		for name, r := range h.Regions {
			gone := r.Superseded
			r.Superseded = nil
			if surplus := len(r.Retained) - keep; keep > 0 && surplus > 0 {
				gone = slices.Concat(gone, r.Retained[:surplus])
				r.Retained = slices.Clone(r.Retained[surplus:])
			}
			h.Regions[name] = r
			for _, ref := range gone {
				if !h.keeps(name, ref) {
					dropped = append(dropped, ref)
				}
			}
		}
		return dropped, nil
	}
}

// RollbackEdit makes a kept checkpoint of generation g and batch n the current one of its
// region. It raises the generation, so that whoever is running is fenced. drop is that of
// the Target; see [TargetOf].
func RollbackEdit(g Generation, n BatchID, drop bool) Edit {
	return func(h *Head) ([]Ref, error) {
		region, ref, ok := h.Find(g, n)
		if !ok {
			return nil, fmt.Errorf("roll back to checkpoint %d.%d: topology %q keeps no such checkpoint", g, n, h.Topology)
		}
		if err := h.goBack(region, Target{&ref, drop}); err != nil {
			return nil, fmt.Errorf("roll back: %w", err)
		}
		r := h.Regions[region]
		h.Generation++
		r.Generation = h.Generation
		h.Regions[region] = r
		return nil, nil
	}
}
