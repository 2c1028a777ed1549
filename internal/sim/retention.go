package sim

import (
	"maps"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
)

// snapshots returns what the tasks of a component contributed to a manifest, by index.
func snapshots(man *checkpoint.Manifest, component string) []*checkpoint.TaskSnapshot {
	var all []*checkpoint.TaskSnapshot
	for i := range man.Tasks {
		if t := &man.Tasks[i]; t.Component == component {
			all = append(all, t)
		}
	}
	return all
}

// drop deletes what only checkpoints name that are not retained any more. It gives
// up on any error: what is left over are orphans.
func (m *master) drop(refs []checkpoint.Ref) {
	if len(refs) == 0 {
		return
	}
	m.manifests(refs, nil, func(dropped []*checkpoint.Manifest) {
		m.retained(func(_ *checkpoint.Head, _ []checkpoint.Ref, retained []*checkpoint.Manifest) {
			for _, name := range checkpoint.Deletable(dropped, retained) {
				m.w.count("object dropped")
				m.w.store.remove(name)
			}
			for _, ref := range refs {
				m.w.store.remove(ref.Manifest)
			}
		})
	})
}

// sweep deletes orphans, without any grace.
func (m *master) sweep() {
	m.retained(func(h *checkpoint.Head, refs []checkpoint.Ref, retained []*checkpoint.Manifest) {
		named := map[string]bool{}
		for i, ref := range refs {
			named[ref.Manifest] = true
			for _, t := range retained[i].Tasks {
				for _, f := range t.Files {
					named[f.Name] = true
				}
			}
		}
		// The oldest generation that still runs: regions have their own.
		current := h.Generation
		for _, r := range h.Regions {
			current = min(current, r.Generation)
		}
		m.w.after(m.w.hop(), func() {
			for _, name := range checkpoint.Orphans(m.w.store.list(), named, current, m.w.now.Milliseconds()) {
				m.w.count("orphan")
				m.w.store.remove(name)
			}
		})
	})
}

// retained reads the head and the manifests of all checkpoints it retains.
func (m *master) retained(then func(*checkpoint.Head, []checkpoint.Ref, []*checkpoint.Manifest)) {
	m.w.store.readHead(func(h headRead, err error) {
		if err != nil || h.head == nil {
			return
		}
		var refs []checkpoint.Ref
		for _, name := range slices.Sorted(maps.Keys(h.head.Regions)) {
			refs = append(refs, h.head.Kept(name)...)
		}
		m.manifests(refs, nil, func(retained []*checkpoint.Manifest) { then(h.head, refs, retained) })
	})
}

// manifests reads manifests one after the other.
func (m *master) manifests(refs []checkpoint.Ref, read []*checkpoint.Manifest, then func([]*checkpoint.Manifest)) {
	if len(read) == len(refs) {
		then(read)
		return
	}
	m.w.store.get(refs[len(read)].Manifest, func(v any, err error) {
		if err == nil {
			m.manifests(refs, append(read, v.(*checkpoint.Manifest)), then)
		}
	})
}
