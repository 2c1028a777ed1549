package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
)

// readHead reads the head of a topology; nil if nothing was ever committed. A store
// with checkpoints and no head is an error, never a fresh start (invariant I10).
func readHead(ctx context.Context, cfg Config) (*checkpoint.Head, checkpoint.Version, error) {
	s, p := cfg.Store, cfg.Plan
	data, version, err := s.ReadHead(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, "", refuseHeadless(ctx, s, p)
	}
	if err != nil {
		return nil, "", Unreachable(fmt.Errorf("read the head of topology %q: %w", p.Topology, err))
	}
	h, err := checkpoint.DecodeHead(checkpoint.HeadName(s), data)
	if err != nil {
		return nil, "", fmt.Errorf("the head of topology %q%s cannot be used: %w: put back a copy of it; without it nothing tells what is committed", p.Topology, in(s), err)
	}
	if h.Topology != p.Topology {
		return nil, "", fmt.Errorf("the store belongs to topology %q, not to %q", h.Topology, p.Topology)
	}
	switch moved, err := refuseOld(ctx, s, h, version); {
	case err != nil:
		return nil, "", err
	case moved:
		return readHead(ctx, cfg)
	}
	if err := adoptNames(ctx, cfg, h); err != nil {
		return nil, "", err
	}
	return h, version, nil
}

// refuseHeadless tells a store where nothing was ever committed from one whose head
// is missing. Objects of a run that died before its first generation was raised do
// not exist: whatever is there was written under a head.
func refuseHeadless(ctx context.Context, s checkpoint.Store, p *plan.Plan) error {
	for o, err := range s.List(ctx, "") {
		if err != nil {
			return Unreachable(fmt.Errorf("list the checkpoints of topology %q: %w", p.Topology, err))
		}
		return fmt.Errorf("topology %q has checkpoint objects%s (%s) but no head that says which are committed: put the head back, or move all of them away to start from nothing", p.Topology, in(s), o.Name)
	}
	return nil
}

// refuseOld tells the newest head from a copy of an older one that somebody has put back
// in its place. moved is true if it is neither, because the head has moved meanwhile.
func refuseOld(ctx context.Context, s checkpoint.Store, h *checkpoint.Head, version checkpoint.Version) (moved bool, err error) {
	var objects []checkpoint.ObjectInfo
	for o, err := range s.List(ctx, "") {
		if err != nil {
			return false, Unreachable(fmt.Errorf("list the checkpoints of topology %q: %w", h.Topology, err))
		}
		objects = append(objects, o)
	}
	old := checkpoint.CheckNewest(h, objects)
	if old == nil {
		return false, nil
	}
	switch _, now, err := s.ReadHead(ctx); {
	case err != nil:
		return false, Unreachable(fmt.Errorf("read the head of topology %q: %w", h.Topology, err))
	case now != version:
		return true, nil
	}
	return false, fmt.Errorf("the head of topology %q%s is an old one: %w: put back the newest; from this one, what was committed and published after it would be done again", h.Topology, in(s), old)
}

// in says where a store is, if it tells.
func in(s checkpoint.Store) string {
	if place, ok := s.(fmt.Stringer); ok {
		return " in " + place.String()
	}
	return ""
}

// adoptNames gives the regions of the plan the names that their checkpoints have. A
// region is named after its first component when it is first run; later edits of the
// graph may put another one first, or give it another name.
func adoptNames(ctx context.Context, cfg Config, h *checkpoint.Head) error {
	p := cfg.Plan
	regionOf := func(component string) int {
		return slices.IndexFunc(p.Regions, func(r plan.Region) bool {
			return slices.ContainsFunc(r.Tasks, func(id int) bool { return p.Component(id).ID == component })
		})
	}
	adopted := map[int]string{}
	for _, name := range slices.Sorted(maps.Keys(h.Regions)) {
		i := regionOf(cfg.Start.renamed(name))
		if current := h.Regions[name].Current(); i < 0 && current != nil {
			mf, err := checkpoint.ReadManifest(ctx, cfg.Store, *current)
			if err != nil {
				err = fmt.Errorf("find region %q of topology %q: %w", name, p.Topology, err)
				if !checkpoint.Hopeless(err) {
					err = Unreachable(err)
				}
				return err
			}
			for component := range mf.Components {
				i = max(i, regionOf(cfg.Start.renamed(component)))
			}
		}
		switch {
		case i < 0 && len(h.Regions[name].Retained) == 0:
			continue // it has nothing
		case i < 0:
			return fmt.Errorf("the checkpoints of topology %q hold region %q, of whose components it has none any more; it has the regions %s", p.Topology, name, regionNames(p))
		case adopted[i] != "":
			return fmt.Errorf("the checkpoints of topology %q hold regions %q and %q, which are one region now: what they have committed cannot be put together", p.Topology, adopted[i], name)
		}
		adopted[i] = name
	}
	for i, name := range adopted {
		p.Regions[i].Name = name
	}
	return nil
}

func regionNames(p *plan.Plan) string {
	var names []string
	for _, r := range p.Regions {
		names = append(names, r.Name)
	}
	return fmt.Sprintf("%q", names)
}

// moveHead feeds an event to the Mover and carries out what it says.
func (m *Master) moveHead(ev checkpoint.MoverEvent) {
	switch ev.(type) {
	case checkpoint.SwapUnknown, checkpoint.RereadFailed:
		m.pause = true
	case checkpoint.SwapSucceeded, checkpoint.HeadReread:
		m.pause = false
	default:
	}
	head := m.swapping // before a next swap takes its place
	moved, committed := false, false
	var dropped []checkpoint.Ref
	for _, a := range m.mover.Step(ev) {
		switch a := a.(type) {
		case checkpoint.Raised:
			moved = true
		case checkpoint.Advanced:
			moved, committed = true, true
			dropped = append(dropped, a.Dropped...)
		case checkpoint.Edited:
			moved = moved || a.Err == nil
			dropped = append(dropped, a.Dropped...)
		default:
		}
		m.doHead(a)
	}
	if moved {
		m.sweep.moved(head, dropped)
	}
	if committed { // until then nothing shows that this process can read what is there
		m.sweep.start()
	}
}

func (m *Master) doHead(a checkpoint.MoverAction) {
	switch a := a.(type) {
	case checkpoint.Swap:
		m.swapping = a.Head
		m.callHead(func() checkpoint.MoverEvent { return m.swap(a) })
	case checkpoint.Reread:
		m.callHead(m.reread)
	case checkpoint.Raised:
		r := m.region(a.Region)
		r.from = a.From
		if m.result.From == nil && m.result.Committed == 0 {
			m.result.From = a.From
		}
		switch {
		case a.Err != nil && r.rolling == nil: // the start was to be from there, and from nowhere else
			m.do(r, checkpoint.FailRegion{Err: fmt.Errorf("start from %s: %w", m.cfg.Start.From, a.Err)})
			return
		case a.Err != nil:
			m.cfg.Logger.Error("the region goes on from its current checkpoint", "region", r.Name, "err", a.Err)
		}
		r.raised(a.Err)
		m.step(r, checkpoint.GenerationRaised{Generation: a.Generation, From: a.From, Oldest: a.Oldest})
		m.result.Last = m.regions[0].record.last()
	case checkpoint.Advanced:
		r := m.region(a.Region)
		m.result.Committed++
		m.step(r, checkpoint.HeadMoved{Generation: a.Generation, Batch: a.Batch, Oldest: a.Oldest})
		m.result.Last = m.regions[0].record.last()
		m.committedFor(r, a.Batch, a.Generation)
	case checkpoint.Edited:
		m.edited(a)
	case checkpoint.SwapFailed:
		m.cfg.Logger.Warn("cannot move the head yet, will try again", "err", a.Err)
		m.step(m.region(a.Region), checkpoint.HeadFailed{Generation: a.Generation, Err: a.Err})
	case checkpoint.Lost:
		for _, r := range m.regions {
			m.step(r, checkpoint.Fenced{Err: a.Err})
		}
	}
}

// callHead makes one store call for the head; there is never a second one.
func (m *Master) callHead(call func() checkpoint.MoverEvent) {
	pause := m.pause
	m.io.Go(func() {
		if pause {
			wait(m.ctx, m.cfg.Timing.StoreRetry)
		}
		m.inbox.Put(message{head: call()})
	})
}

func (m *Master) swap(a checkpoint.Swap) checkpoint.MoverEvent {
	data, err := checkpoint.EncodeHead(a.Head)
	if err != nil {
		return checkpoint.SwapUnknown{Err: err}
	}
	v, err := m.cfg.Store.SwapHead(m.ctx, a.Old, data)
	switch {
	case err == nil:
		return checkpoint.SwapSucceeded{Version: v}
	case errors.Is(err, checkpoint.ErrHeadMoved):
		return checkpoint.SwapRefused{}
	}
	return checkpoint.SwapUnknown{Err: err}
}

func (m *Master) reread() checkpoint.MoverEvent {
	data, v, err := m.cfg.Store.ReadHead(m.ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return checkpoint.HeadReread{}
	}
	if err != nil {
		return checkpoint.RereadFailed{Err: err}
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		// Whoever wrote that, it was not this process: its head is gone.
		return checkpoint.HeadReread{Head: &checkpoint.Head{Writer: err.Error()}, Version: v}
	}
	return checkpoint.HeadReread{Head: h, Version: v}
}

func (m *Master) region(name string) *region {
	for _, r := range m.regions {
		if r.Name == name {
			return r
		}
	}
	panic("broken invariant: no region " + name)
}
