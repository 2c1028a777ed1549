package master

import (
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
)

// newManifest returns the part of a region's manifests that does not change.
func newManifest(cfg Config, r plan.Region, runID string) *checkpoint.Manifest {
	mf := &checkpoint.Manifest{
		Topology:   cfg.Plan.Topology,
		RunID:      runID,
		Region:     r.Name,
		Engine:     cfg.Engine,
		Table:      checkpoint.TableFormat,
		KeyGroups:  cfg.Plan.KeyGroups,
		Graph:      cfg.Plan.Fingerprint(r),
		Components: map[string]checkpoint.ComponentMeta{},
	}
	for _, id := range r.Tasks {
		c := cfg.Plan.Component(id)
		mf.Components[c.ID] = checkpoint.ComponentMeta{Parallelism: c.Tasks, Keyed: c.Role == plan.Keyed}
	}
	return mf
}

// fitting says what a checkpoint needs to be made to fit.
type fitting struct {
	// old: an earlier run has committed it. What this one has, has its components' names
	// and lacks nothing that is still to be dropped.
	old bool
	// behind: its transactions are left behind.
	behind bool
	quiet  bool // it is only asked whether it fits
}

// fitting returns what the checkpoint needs that a region goes on from.
func (m *Master) fitting(r *region, from *checkpoint.Ref) fitting {
	if from == nil {
		return fitting{}
	}
	return fitting{old: from.Generation < r.first, behind: m.mover.Head().Regions[r.Name].LeavesBehind(*from)}
}

// fit makes of a manifest what tasks are restored from, or says why it does not fit the
// topology.
func (m *Master) fit(mf *checkpoint.Manifest, f fitting) (*task.Restore, error) {
	name := fmt.Sprintf("%d.%d", mf.Generation, mf.Batch)
	log := m.cfg.Logger.With("checkpoint", name)
	if f.old {
		left, err := m.cfg.Start.reshape(mf, m.runID)
		if err != nil {
			return nil, fmt.Errorf("restore checkpoint %s: %w", name, err)
		}
		if left > 0 && !f.quiet {
			log.Warn("the checkpoint is a copy: transactions of the original are left alone", "run", mf.RunID, "transactions", left)
		}
	}
	if f.behind {
		left := leaveBehind(mf)
		log.Warn("the checkpoint was undone before it was settled: its transactions are left behind", "transactions", left)
	}
	return restoreFrom(m.cfg.Plan, mf)
}

// leaveBehind takes the transactions of sinks out of a manifest, and returns how many
// there were. A stateful bolt gets its handles all the same: they may be its state.
func leaveBehind(mf *checkpoint.Manifest) (left int) {
	for _, t := range mf.Tasks {
		for i, h := range t.Handles {
			if _, ok := h.Transaction(); ok {
				t.Handles[i].Data = nil
				left++
			}
		}
	}
	return left
}

// restoreFrom checks that a manifest fits the topology and sorts its snapshots by
// component. State belongs to components by name; one that has gone, or has another
// role, is refused rather than dropped.
func restoreFrom(p *plan.Plan, mf *checkpoint.Manifest) (*task.Restore, error) {
	what := fmt.Sprintf("restore checkpoint %d.%d of topology %q", mf.Generation, mf.Batch, mf.Topology)
	if mf.KeyGroups != p.KeyGroups {
		return nil, fmt.Errorf("%s: its state has %d key groups and topology.key.groups is %d: the number is fixed for the life of the state", what, mf.KeyGroups, p.KeyGroups)
	}
	if mf.Table != checkpoint.TableFormat {
		return nil, fmt.Errorf("%s: its state files have format %q, this build reads %q", what, mf.Table, checkpoint.TableFormat)
	}
	res := &task.Restore{Batch: mf.Batch, Tasks: map[string][]checkpoint.TaskSnapshot{}}
	var gone []string
	for _, s := range mf.Tasks {
		c := p.Lookup(s.Component)
		holds := len(s.Handles)+len(s.Files)+len(s.Positions) > 0
		switch {
		case c == nil && holds:
			gone = append(gone, s.Component)
		case c != nil && holds && mf.Components[s.Component].Keyed != (c.Role == plan.Keyed):
			return nil, fmt.Errorf("%s: component %q was keyed: %t, now it is a %s", what, s.Component, mf.Components[s.Component].Keyed, c.Role)
		}
		res.Tasks[s.Component] = append(res.Tasks[s.Component], s)
	}
	if slices.Sort(gone); len(gone) > 0 {
		return nil, fmt.Errorf("%s: it holds state of components that the topology no longer has: %q: give them their new names (--map OLD=NEW), or leave it behind (--drop NAME)", what, slices.Compact(gone))
	}
	return res, nil
}
