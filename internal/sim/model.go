package sim

import (
	"cmp"
	"maps"
	"slices"
)

// expectation is what a region must have made of a part of its input: the answer of
// the sequential model.
type expectation struct {
	counts  map[*component][keys]int32  // of counters and digests; of latest sinks the newest values
	sums    map[*component]item         // of tallies and ordered sinks: tuples and the sum of their n
	effects map[*component]map[item]int // of sinks with transactions: how often each tuple

	out, failed map[*component][]item // what components emit: the stream, the failed stream
}

// sent returns what goes over an edge.
func (x expectation) sent(e *edge) []item {
	if e.failed {
		return x.failed[e.from]
	}
	return x.out[e.from]
}

// arrived returns what a component's code processes, and notes what is diverted from
// it.
func (x expectation) arrived(c *component) []item {
	var in []item
	for _, e := range c.inputs {
		if len(c.poison) == 0 {
			in = append(in, x.sent(e)...)
			continue
		}
		for _, it := range x.sent(e) {
			if d := c.poison[e.poisonKey(it)]; d != nil && d.always {
				x.failed[c] = append(x.failed[c], diverted(it))
			} else {
				in = append(in, it)
			}
		}
	}
	return in
}

// expect runs the sequential model over the first prefix(p) items of each partition.
// Where reordered is false what it says holds at every barrier, else only at the end.
func (r *region) expect(prefix func(*partition) int) expectation {
	out := map[*component][]item{}
	x := expectation{
		map[*component][keys]int32{}, map[*component]item{}, map[*component]map[item]int{},
		out, map[*component][]item{},
	}
	for _, c := range r.components {
		in := x.arrived(c)
		switch c.kind {
		case source:
			for _, p := range c.partitions {
				out[c] = append(out[c], p.items[:prefix(p)]...)
			}
		case relay:
			for i := range in {
				in[i] = coarser(in[i])
			}
			out[c] = in
		case tally, ordered:
			var sum item
			for _, it := range in {
				sum.key++
				sum.n += it.n
			}
			x.sums[c] = sum
			out[c] = in
		case buffer:
			out[c] = in
		case counter:
			var counts [keys]int32
			for i, it := range in {
				counts[it.key]++
				in[i].n = counts[it.key]
			}
			x.counts[c] = counts
			out[c] = in
		case digest:
			var counts [keys]int32
			for _, it := range in {
				counts[it.key]++
			}
			x.counts[c] = counts
			for key, n := range counts {
				if n > 0 {
					out[c] = append(out[c], item{int32(key), n})
				}
			}
		case latest:
			var values [keys]int32
			for _, it := range in {
				values[it.key] = it.n
			}
			x.counts[c] = values
		case twoPhase, staged:
			effects := map[item]int{}
			for _, it := range in {
				effects[it]++
			}
			x.effects[c] = effects
		}
	}
	return x
}

// allItems returns the keys of both maps in order.
func allItems(a, b map[item]int) []item {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), func(x, y item) int {
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.n, y.n))
	})
}
