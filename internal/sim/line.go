package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// line is what leads to a checkpoint: the transactions that it and those before it have
// named, by sink, in their order.
type line map[string][]txn.TransactionID

func (c *checker) lineOf(r *region) line {
	l := line{}
	for _, comp := range r.components {
		if comp.kind.sink() {
			l[comp.name] = slices.Clip(c.bySink[comp.name])
		}
	}
	return l
}

// begins notes what a new generation begins with.
func (c *checker) begins(r *region, was, is checkpoint.RegionHead) {
	if is.Generation == was.Generation {
		return
	}
	if c.w.fleet != nil && is.Started != was.Started {
		c.w.fleet.orders.began(r, was, is)
	}
	c.high[r.name][is.Generation] = 0
	if current := is.Current(); current != nil {
		c.high[r.name][is.Generation] = current.Batch
	}
}

// wentBack handles a swap after which a region goes on from another checkpoint than its
// newest: that an operator has asked for it, once for each time it happens.
func (c *checker) wentBack(r *region, was, is checkpoint.RegionHead) bool {
	before, now := was.Current(), is.Current()
	if c.w.fleet == nil || is.Generation == was.Generation || before == nil || now == nil {
		return false
	}
	back, known := c.lines[now.Manifest]
	if !known { // a commit in the same swap
		return false
	}
	for _, ref := range is.Superseded { // committed and undone in one swap
		if _, known := c.lines[ref.Manifest]; !known {
			c.committed(r, ref)
		}
	}
	c.back[r.name] = c.back[r.name] || len(is.Superseded) > 0
	if *before == *now {
		maps.Copy(c.bySink, back)
		c.batch[r.name] = now.Batch
		return false
	}
	c.w.count("went back")
	c.w.fleet.orders.wentBack(r, was, is)
	behind := is.LeavesBehind(*now)
	for _, comp := range r.components {
		for _, id := range back[comp.name] {
			switch _, ok := c.w.target.published[id]; {
			case ok:
			case behind:
				c.w.count("left behind")
				c.gone[id] = true
			case !c.gone[id] && c.staged[id] == nil && c.w.target.prepared[id] == nil:
				c.w.violate("%s goes back to %s, but transaction %s of %s was discarded", r.name, now, id, comp.name)
			}
		}
	}
	maps.Copy(c.bySink, back)
	c.batch[r.name] = now.Batch
	c.settled(r, is.Settled)
	return true
}

// listed checks that what the current generation publishes is on the line of the current
// checkpoint: what an operator has undone stays undone.
func (c *checker) listed(id txn.TransactionID, g generation) {
	comp := c.component(id.Component)
	if comp == nil || c.w.store.head.Regions[comp.region.name].Generation != g {
		return
	}
	if !slices.Contains(c.bySink[comp.name], id) {
		c.w.violate("generation %d publishes transaction %s, which was undone", g, id)
	}
}

func (c *checker) component(name string) *component {
	for _, comp := range c.w.shape.components {
		if comp.name == name {
			return comp
		}
	}
	return nil
}

// keeps returns the checkpoints that a head keeps for a region.
func (w *world) keeps(r *region, is checkpoint.RegionHead) []checkpoint.Ref {
	refs := slices.Concat(is.Retained, is.Superseded)
	if w.store.head == nil {
		return refs
	}
	for _, p := range w.store.head.Pins {
		if p.Region == r.name {
			refs = append(refs, p.Ref)
		}
	}
	return refs
}

// leads reports whether nobody has taken the place of a topology master, as far as the
// store knows.
func (w *world) leads(m *master) bool {
	if w.fleet == nil {
		return m == w.operator.current
	}
	return w.store.head != nil && strings.HasPrefix(w.store.head.Writer, m.name+"-")
}
