package sim

import "math/rand/v2"

// resizable reports whether other numbers of tasks than before may run a component:
// what its tasks keep belongs to partitions or transactions, or they keep nothing.
func (c *component) resizable() bool {
	return c.kind == source || c.kind == relay || c.kind.sink()
}

// resized returns the same topology with other numbers of tasks.
func (s *shape) resized(rng *rand.Rand) *shape {
	next := &shape{exactlyOnce: s.exactlyOnce}
	twin, edges := map[*component]*component{}, map[*edge]*edge{}
	for _, r := range s.regions {
		nr := &region{index: r.index, name: r.name, ordered: r.ordered}
		next.regions = append(next.regions, nr)
		for _, c := range r.components {
			nc := *c
			nc.region, nc.inputs, nc.outputs = nr, nil, nil
			if c.resizable() {
				nc.tasks = 1 + rng.IntN(tasksMax)
			}
			twin[c] = &nc
			nr.components = append(nr.components, &nc)
			next.components = append(next.components, &nc)
		}
		for _, c := range r.components {
			for _, e := range c.outputs {
				edges[e] = &edge{from: twin[e.from], to: twin[e.to], byKey: e.byKey, failed: e.failed}
				twin[c].outputs = append(twin[c].outputs, edges[e])
			}
			for _, e := range c.inputs {
				twin[c].inputs = append(twin[c].inputs, edges[e])
			}
		}
		nr.limit((*component).resizable)
	}
	next.number()
	return next
}
