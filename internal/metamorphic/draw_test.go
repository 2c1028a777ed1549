package metamorphic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// topology is a random graph of nodes, each after those it reads from.
type topology struct {
	seed   uint64
	nodes  []*node
	groups int
	// lenient topologies run in at-least-once mode.
	lenient bool
	// durable ones keep their checkpoints in a folder and their state in Pebble, in real
	// time; the others keep all in memory, in a bubble.
	durable bool
	// wide ones have many keys.
	wide bool
}

func (t *topology) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "topology of %d key groups%s%s\n", t.groups,
		map[bool]string{true: ", at least once"}[t.lenient], map[bool]string{true: ", durable"}[t.durable])
	for _, n := range t.nodes {
		fmt.Fprintf(&sb, "  %s\n", n)
	}
	return sb.String()
}

// records is how many records the sources have.
func (t *topology) records() (n int) {
	for _, node := range t.nodes {
		if _, ok := node.work.(source); ok {
			n += len(node.outs[0].recs)
		}
	}
	return n
}

// Bounds of what the model of one stream may hold.
const streamMost = 5000

// keys are the texts that records are keyed by, the first ones more often.
var keys = []string{"a", "b", "c", "", "ä€", "\x00", "\x00a", "it", "a rather long key, to be kept elsewhere", "a rather long key, to be kept somewhere", "17", "z"}

// drawing draws a topology.
type drawing struct {
	*topology
	r    *rand.Rand
	free []*stream        // can be read
	used map[*stream]bool // is read
}

func drawTopology(seed uint64, r *rand.Rand) *topology {
	t := &topology{seed: seed, groups: []int{4, 7, 16, 64}[r.IntN(4)], lenient: r.IntN(12) == 0, wide: r.IntN(3) == 0}
	d := &drawing{topology: t, r: r, used: map[*stream]bool{}}
	for range 1 + r.IntN(3) {
		d.source()
	}
	for range 1 + r.IntN(5) {
		for done := false; !done; {
			done = d.node()
		}
	}
	for _, s := range slices.Clone(d.free) {
		if !d.used[s] || d.chance(5) && s.direct == nil {
			d.sink(s)
		}
	}
	return t
}

func (d *drawing) chance(oneIn int) bool { return d.r.IntN(oneIn) == 0 }

// add adds a node, if its outputs are not too large.
func (d *drawing) add(n *node) bool {
	n.compute()
	for _, s := range n.outs {
		if len(s.recs) > streamMost {
			return false
		}
		s.from = n
	}
	d.nodes = append(d.nodes, n)
	for _, in := range n.ins {
		d.used[in.stream] = true
		if in.grouping == "direct" {
			in.stream.direct = n
			d.free = slices.DeleteFunc(d.free, func(s *stream) bool { return s == in.stream })
		}
	}
	d.free = append(d.free, n.outs...)
	if n.bad != nil {
		d.add(&node{id: n.id + "failed", work: rows{"two phases"}, of: n})
	}
	return true
}

func (d *drawing) name(prefix string) string { return fmt.Sprint(prefix, len(d.nodes)) }

// shape draws how records travel that fill at least so many fields.
func (d *drawing) shape(least int) shape {
	s := shape{width: whole, raw: d.chance(3), typed: d.chance(3)}
	if d.chance(3) {
		s.width = max(least, 1+d.r.IntN(2))
	}
	return s
}

func (d *drawing) source() {
	var parts [][]rec
	for range 1 + d.r.IntN(4) {
		var part []rec
		t := int64(0)
		for range d.r.IntN(300) {
			t += int64(d.r.IntN(20))
			k := keys[min(d.r.IntN(len(keys)), d.r.IntN(len(keys)))]
			if d.wide && !d.chance(3) {
				k = fmt.Sprint("key", d.r.IntN(1000))
			}
			part = append(part, rec{k, int64(d.r.IntN(5)), 1 + int64(d.r.IntN(100)), fmt.Sprint("s", d.r.IntN(9)), t})
		}
		parts = append(parts, part)
	}
	s := &stream{id: tuple.DefaultStream, shape: d.shape(1), grows: true}
	s.timed = s.shape.width == whole
	n := &node{id: d.name("source"), work: source{parts}, outs: []*stream{s}}
	s.roots = []*node{n}
	d.add(n)
}

// node draws a bolt that emits; false if what was drawn is not possible.
func (d *drawing) node() bool {
	n := &node{}
	kind := []string{"recode", "recode", "fork", "tally", "tally", "join", "distinct", "window", "buffer", "total"}[d.r.IntN(10)]
	n.id = d.name(kind)
	plain := kind == "recode" || kind == "fork" || kind == "total"
	additive := kind == "tally" || kind == "buffer" || kind == "total"
	most := 1 + d.r.IntN(2)
	if kind == "join" {
		most = 2
	}
	ins := d.pick(most, func(s *stream) bool {
		return (s.class == exact || s.class == deltas && additive) && (plain || !s.aimed) && (kind != "window" || s.timed)
	})
	if len(ins) == 0 || kind == "join" && len(ins) < 2 || kind == "window" && !inTime(ins) {
		return false
	}
	key := d.key(ins)
	out := &stream{id: tuple.DefaultStream, key: key, shape: d.shape(least(key))}
	switch kind {
	case "recode":
		n.work = recode{recodeKinds[d.r.IntN(len(recodeKinds))], d.chance(3)}
		out.shape = d.shape(1)
		d.aim(out)
	case "fork":
		n.work = fork{}
		out.id = "left"
	case "tally":
		w := tally{d.folding(key, ins), newest}
		if w.kind.sums && d.chance(2) {
			w.by = deltas
		}
		n.work, out.class = w, w.by
	case "join":
		n.work, out.shape.width = join{key, d.chance(2)}, whole
	case "distinct":
		n.work = distinct{key}
	case "window":
		n.work, out.shape.width = window{key, int64(20 + d.r.IntN(400))}, whole
	case "buffer":
		n.work, out.class = buffer{key, time.Duration(1+d.r.IntN(20)) * time.Millisecond}, deltas
	case "total":
		n.work, out.class = total{key}, deltas
	}
	n.outs = append(n.outs, out)
	if kind == "fork" {
		right := *out
		right.id, right.shape = "right", d.shape(1)
		d.aim(&right)
		n.outs = append(n.outs, &right)
	}
	d.connect(n, ins, key, plain)
	d.promise(n, kind)
	d.poison(n)
	return d.add(n)
}

// least is the smallest width that holds a key and a number.
func least(key keyBy) int {
	if slices.Contains(key, "g") {
		return whole
	}
	return 2
}

// aim makes a stream direct now and then.
func (d *drawing) aim(s *stream) {
	if s.aimed = d.chance(5); s.aimed {
		s.shape.typed = false
	}
}

// pick draws up to most streams of one class, rather those that nobody reads yet.
func (d *drawing) pick(most int, fit func(*stream) bool) (picked []*stream) {
	for range 4 * most {
		s := d.free[d.r.IntN(len(d.free))]
		switch {
		case !fit(s), slices.Contains(picked, s), d.used[s] && d.chance(2):
		case len(picked) > 0 && (picked[0].class != s.class || s.class != exact && !slices.Equal(picked[0].key, s.key)):
		default:
			if picked = append(picked, s); len(picked) == most {
				return picked
			}
		}
	}
	return picked
}

// key draws fields that all of the streams have; of a stream that has only sums, some
// of its own key.
func (d *drawing) key(ins []*stream) keyBy {
	choice := []keyBy{{"k"}, {"g"}, {"k", "g"}}
	choice = slices.DeleteFunc(choice, func(k keyBy) bool {
		return slices.ContainsFunc(ins, func(s *stream) bool {
			return s.shape.width < whole && slices.Contains(k, "g") ||
				s.class == deltas && slices.ContainsFunc(k, func(f string) bool { return !slices.Contains(s.key, f) })
		})
	})
	return choice[d.r.IntN(len(choice))]
}

// folding draws how to fold streams.
func (d *drawing) folding(key keyBy, ins []*stream) folding {
	f := folding{key: key, kind: foldKinds[d.r.IntN(len(foldKinds))], keyer: d.chance(6)}
	for ins[0].class == deltas && !f.kind.sums {
		f.kind = foldKinds[d.r.IntN(len(foldKinds))]
	}
	if ins[0].class == newest {
		f.kind = lastFold
	}
	f.ttl = f.kind.ttl && d.chance(4)
	f.frames = !f.keyer && !f.ttl && d.chance(3)
	return f
}

// connect draws the groupings of a node.
func (d *drawing) connect(n *node, ins []*stream, key keyBy, plain bool) {
	global := false
	switch w := n.work.(type) {
	case tally:
		global = w.keyer && d.chance(2)
	case board:
		global = w.keyer && d.chance(2)
	}
	for _, s := range ins {
		in := input{stream: s}
		switch {
		case s.aimed:
			in.grouping, in.shared = "direct", true
		case global:
			in.grouping, n.fixed = "global", 1
		case !plain:
			in.grouping, in.fields = "fields", key
		default:
			in.grouping = []string{"shuffle", "local", "none", "all", "global", "fields", "partial", "custom"}[d.r.IntN(8)]
			in.shared = in.grouping == "all" || in.grouping == "custom"
			if in.grouping == "fields" || in.grouping == "partial" {
				in.fields = []string{"k"}
			}
		}
		if s.shape.width == 2 && in.grouping == "fields" && d.chance(2) {
			in.combine = combines(n.work)
		}
		n.ins = append(n.ins, in)
	}
}

// combines says how records of a key may be combined before they are sent to a node; 0 if
// not at all.
func combines(w work) txn.Combine {
	var kind foldKind
	switch w := w.(type) {
	case total, buffer:
		return txn.CombineSum
	case tally:
		kind = w.kind
	case board:
		kind = w.kind
	}
	switch {
	case kind.sums:
		return txn.CombineSum
	case kind.name == "min":
		return txn.CombineMin
	case kind.name == "max":
		return txn.CombineMax
	}
	return 0
}

// promise works out what can be said of the outputs of a node.
func (d *drawing) promise(n *node, kind string) {
	var ins []*stream
	grows := true
	for _, in := range n.ins {
		ins = append(ins, in.stream)
		grows = grows && in.grows
	}
	keeps := slices.Contains([]string{"recode", "fork", "join", "window"}, kind)
	for _, s := range n.outs {
		s.timed = keeps && s.shape.width == whole && inTime(ins)
		s.held = kind == "window" || slices.ContainsFunc(ins, func(s *stream) bool { return s.held })
		s.roots = rootsOf(ins)
		s.grows = grows && kind != "window" && kind != "distinct" && s.class != newest
	}
}

// inTime says whether no record of several streams is older than the watermark where
// they meet. A source that has ended does not hold event time up any more, but what a
// window still holds of it comes later: then no other source may have gone on.
func inTime(ins []*stream) bool {
	return !slices.ContainsFunc(ins, func(s *stream) bool { return !s.timed || s.held && len(rootsOf(ins)) > 1 })
}

// rootsOf returns the sources that streams come from.
func rootsOf(ins []*stream) (roots []*node) {
	for _, s := range ins {
		for _, n := range s.roots {
			if !slices.Contains(roots, n) {
				roots = append(roots, n)
			}
		}
	}
	return roots
}

// poison has a node fail on one of its tuples now and then.
func (d *drawing) poison(n *node) {
	all := []rec{}
	for _, in := range n.ins {
		if in.shared || in.class != exact || in.combine > 0 {
			return
		}
		all = append(all, in.recs...)
	}
	if d.lenient || len(all) == 0 || !d.chance(10) {
		return
	}
	bad := all[d.r.IntN(len(all))]
	n.bad = &bad
}

// sink draws a sink for a stream, and perhaps another one like it.
func (d *drawing) sink(s *stream) {
	n := &node{id: d.name("sink")}
	ins := []*stream{s}
	if s.class == exact && d.chance(3) {
		more := d.pick(1, func(o *stream) bool { return o.class == exact && o != s && o.aimed == s.aimed })
		ins = append(ins, more...)
	}
	key := d.key(ins)
	if s.class == newest {
		key = s.key
	}
	if s.aimed || s.class == exact && d.chance(2) {
		w := rows{rowsKinds[d.r.IntN(len(rowsKinds))]}
		if w.kind == "ordered" {
			n.fixed = 1 + d.r.IntN(3)
		}
		n.work = w
		d.connect(n, ins, key, true)
	} else {
		n.work = board{d.folding(key, ins)}
		d.connect(n, ins, key, false)
	}
	d.poison(n)
	d.add(n)
}
