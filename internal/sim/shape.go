package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/txn"
)

// item is one tuple.
type item struct{ key, n int32 }

// kind says what a component does with its tuples.
type kind int

const (
	source   kind = iota // spout: emits the items of its partitions
	relay                // stateless: passes every tuple on, its key made coarser
	tally                // stateful, its whole state in the handle: counts and sums, passes on
	buffer               // stateful: holds tuples back until it has three, or all input has ended
	counter              // keyed: counts, and passes on every new count
	digest               // keyed: counts, and emits the changed counts when a batch ends
	twoPhase             // sink: prepares in Commit, publishes in AckCommit
	staged               // sink: stages in its handle, publishes with a marker in AckCommit
	latest               // keyed sink: publishes its state, the newest value of each key
	ordered              // sink: writes sums to the outside in Commit, batch after batch
)

var kindNames = [...]string{"source", "relay", "tally", "buffer", "counter", "digest", "twoPhase", "staged", "latest", "ordered"}

func (k kind) String() string { return kindNames[k] }

func (k kind) keyed() bool { return k == counter || k == digest || k == latest }

// sink reports whether the kind publishes transactions.
func (k kind) sink() bool { return k == twoPhase || k == staged }

// component is one node of the topology.
type component struct {
	id         int
	name       string
	region     *region
	kind       kind
	tasks      int
	first      taskID
	inputs     []*edge
	outputs    []*edge
	partitions []*partition // of a source
	channels   int          // input channels of each task
	// reordered is set below a buffer: what has passed is known only once all input
	// has ended.
	reordered bool
	// Of components with a failed stream.
	frames bool                   // takes whole frames, so that a failure is one of a frame
	poison map[poison.Key]*defect // the tuples on which its code fails
}

// edge joins all tasks of two components, each pair by a channel of its own.
type edge struct {
	from, to *component
	byKey    bool // fields grouping; otherwise shuffle
	failed   bool // of the failed stream of from
	base     int  // the receiver's first input channel of this edge
}

// partition is a part of the input. What is beyond open is not there yet.
type partition struct {
	name  txn.PartitionID
	items []item
	open  int
	// trimmed is up to where the source has deleted the items, never to be read again.
	trimmed int
}

// region is a connected part of the topology.
type region struct {
	index      int
	name       string
	components []*component // in topological order
	tasks      []checkpoint.Task
	// ordered is set with an ordered committer in it: nothing is given up.
	ordered bool
}

// shape is a topology and its input.
type shape struct {
	exactlyOnce bool
	regions     []*region
	components  []*component
	slots       []*slot // by task id
}

const (
	keys        = 6
	tasksMax    = 3
	channelsMax = 36 // of a region, to bound the events of a run
)

func drawShape(rng *rand.Rand) *shape {
	s := &shape{exactlyOnce: rng.IntN(6) != 0}
	regions := 1
	if rng.IntN(5) == 0 {
		regions = 2
	}
	for i := range regions {
		r := &region{index: i, name: fmt.Sprintf("region%d", i)}
		s.regions = append(s.regions, r)
		s.drawRegion(rng, r)
	}
	s.number()
	return s
}

// drawRegion draws spouts, up to two layers above them that may merge and fork, and
// sinks for all that is left open.
func (s *shape) drawRegion(rng *rand.Rand, r *region) {
	var open []*component // those whose output nobody reads yet
	for range 1 + rng.IntN(3) {
		c := s.add(rng, r, source)
		for range 1 + rng.IntN(3) {
			c.partitions = append(c.partitions, s.drawPartition(rng, c))
		}
		open = append(open, c)
	}
	for range rng.IntN(3) {
		var next []*component
		for range 1 + rng.IntN(2) {
			c := s.add(rng, r, []kind{relay, relay, tally, buffer, counter, counter}[rng.IntN(6)])
			for _, from := range open {
				if rng.IntN(3) > 0 {
					s.connect(from, c)
				}
			}
			if len(c.inputs) == 0 {
				s.connect(open[rng.IntN(len(open))], c)
			}
			next = append(next, c)
		}
		for _, c := range open {
			if len(c.outputs) == 0 || rng.IntN(8) == 0 {
				next = append(next, c)
			}
		}
		open = next
	}
	if rng.IntN(2) == 0 {
		d := s.add(rng, r, digest)
		for i, c := range open {
			if i == 0 || rng.IntN(2) == 0 {
				s.connect(c, d)
			}
		}
		s.connect(d, s.add(rng, r, latest))
	}
	sinks := s.drawSinks(rng, r, open)
	if rng.IntN(5) == 0 {
		r.ordered = true
		s.connect(open[rng.IntN(len(open))], s.add(rng, r, ordered))
	}
	r.join(s)
	s.drawFailedStreams(rng, r, sinks)
}

// drawSinks lets one or two sinks read what nobody else does.
func (s *shape) drawSinks(rng *rand.Rand, r *region, open []*component) []*component {
	sinks := []*component{s.add(rng, r, drawSink(rng))}
	if len(open) > 1 && rng.IntN(4) == 0 {
		sinks = append(sinks, s.add(rng, r, drawSink(rng)))
	}
	for i, c := range open {
		s.connect(c, sinks[i%len(sinks)])
	}
	return sinks
}

func drawSink(rng *rand.Rand) kind { return []kind{twoPhase, staged}[rng.IntN(2)] }

// join makes the region one connected part: what is not joined to its first spout
// is given an edge to one of its sinks.
func (r *region) join(s *shape) {
	for {
		reached := map[*component]bool{}
		var visit func(c *component)
		visit = func(c *component) {
			if reached[c] {
				return
			}
			reached[c] = true
			for _, e := range c.outputs {
				visit(e.to)
			}
			for _, e := range c.inputs {
				visit(e.from)
			}
		}
		visit(r.components[0])
		var stray, sink *component
		for _, c := range r.components {
			if !reached[c] && c.kind == source {
				stray = c
			}
			if reached[c] && c.kind.sink() {
				sink = c
			}
		}
		if stray == nil {
			return
		}
		if sink == nil { // the first spout feeds a digest only
			for _, c := range r.components {
				if c.kind.sink() {
					sink = c
				}
			}
			stray = r.components[0]
		}
		s.connect(stray, sink)
	}
}

func (s *shape) add(rng *rand.Rand, r *region, k kind) *component {
	c := &component{id: len(s.components), region: r, kind: k, tasks: 1 + rng.IntN(tasksMax)}
	c.name = fmt.Sprintf("%s%d", k, c.id)
	s.components = append(s.components, c)
	r.components = append(r.components, c)
	return c
}

func (s *shape) connect(from, to *component) *edge {
	e := &edge{from: from, to: to, byKey: to.kind.keyed()}
	from.outputs = append(from.outputs, e)
	to.inputs = append(to.inputs, e)
	return e
}

func (s *shape) drawPartition(rng *rand.Rand, c *component) *partition {
	p := &partition{name: txn.PartitionID(fmt.Sprintf("%s-%d", c.name, len(c.partitions)))}
	for range rng.IntN(30) {
		p.grow(rng)
	}
	p.open = len(p.items)
	return p
}

func (p *partition) grow(rng *rand.Rand) {
	p.items = append(p.items, item{key: rng.Int32N(keys), n: 1 + rng.Int32N(1000)})
}

// number gives tasks and channels their numbers, after taking tasks away where
// there would be too many channels.
func (s *shape) number() {
	for _, r := range s.regions {
		r.limit(func(*component) bool { return true })
		for _, c := range r.components {
			c.first, c.channels = taskID(len(s.slots)), 0
			for _, e := range c.inputs {
				e.base = c.channels
				c.channels += e.from.tasks
				c.reordered = c.reordered || e.from.reordered || e.from.kind == buffer
			}
			for i := range c.tasks {
				t := &slot{comp: c, index: i, id: c.first + taskID(i), reports: c.kind != relay || len(c.outputs) == 0}
				s.slots = append(s.slots, t)
				r.tasks = append(r.tasks, checkpoint.Task{ID: t.id, Spout: c.kind == source, Reports: t.reports})
			}
		}
	}
}

// limit takes tasks away from the largest of the components that may lose some, until
// there are not too many channels.
func (r *region) limit(may func(*component) bool) {
	for r.channels() > channelsMax {
		var big *component
		for _, c := range r.components {
			if c.tasks > 1 && may(c) && (big == nil || c.tasks > big.tasks) {
				big = c
			}
		}
		if big == nil {
			return
		}
		big.tasks--
	}
}

func (r *region) channels() int {
	n := 0
	for _, c := range r.components {
		for _, e := range c.inputs {
			n += e.from.tasks * c.tasks
		}
	}
	return n
}

func (s *shape) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "exactly once %v:", s.exactlyOnce)
	for _, c := range s.components {
		fmt.Fprintf(&sb, " %s×%d@%s", c.name, c.tasks, c.region.name)
		if c.kind == source {
			items := 0
			for _, p := range c.partitions {
				items += len(p.items)
			}
			fmt.Fprintf(&sb, "(%d items in %d partitions)", items, len(c.partitions))
		}
		for i, e := range c.inputs {
			sb.WriteString([]string{"←", ","}[min(i, 1)] + e.from.name)
			if e.failed {
				sb.WriteString("/failed")
			}
		}
	}
	return sb.String()
}

// coarser is what a relay makes of a tuple.
func coarser(it item) item { return item{key: it.key / 2, n: it.n} }
