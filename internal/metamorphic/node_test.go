package metamorphic

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// class says what of a stream does not depend on how it is run.
type class int

const (
	exact  class = iota // which records come, and how often
	newest              // the last record of each key
	deltas              // what the numbers of each key add up to
)

// stream is an output of a node.
type stream struct {
	from   *node
	id     string
	shape  shape
	class  class
	key    keyBy // of newest and deltas
	aimed  bool  // it is direct
	direct *node // and who reads it
	timed  bool  // no record is older than the watermark
	held   bool  // a window may have held records back
	roots  []*node
	grows  bool  // what comes twice into the topology can only add to it
	recs   []rec // the model: what travels, one record per key if it is not exact
}

func (s *stream) String() string { return s.from.id + "." + s.id }

// input is a subscription of a node.
type input struct {
	*stream
	grouping string
	fields   []string
	combine  txn.Combine // 0: every record is sent
	// shared inputs reach more tasks than one, or one that others must agree on: a task
	// takes only the records that are its own.
	shared bool
}

// node is a component of a topology.
type node struct {
	id    string
	work  work
	ins   []input
	outs  []*stream
	fixed int   // the number of tasks, if it cannot change
	bad   *rec  // what its code always fails on
	of    *node // whose failed stream it reads, if it does
}

// work is what a node does.
type work interface {
	String() string
	// model returns what the records of the inputs come to on each output.
	model(ins [][]rec) (outs [][]rec)
	// instance makes a spout or a bolt.
	instance(p part) any
}

// poisonAttempts is how often a node may fail on the tuple it always fails on.
const poisonAttempts = 2

func (n *node) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "%s: %s", n.id, n.work)
	for _, in := range n.ins {
		fmt.Fprintf(&sb, " <- %s by %s%v%s", in, in.grouping, in.fields, map[bool]string{true: " combined"}[in.combine > 0])
	}
	for _, s := range n.outs {
		fmt.Fprintf(&sb, " -> %s(%s)", s.id, s.shape)
	}
	if n.fixed > 0 {
		fmt.Fprintf(&sb, " tasks %d", n.fixed)
	}
	if n.bad != nil {
		fmt.Fprintf(&sb, " fails on %s", n.bad)
	}
	return sb.String()
}

// compute runs the model.
func (n *node) compute() {
	var ins [][]rec
	for i := range n.ins {
		good, _ := n.input(i)
		ins = append(ins, good)
	}
	for i, rs := range n.work.model(ins) {
		for _, r := range rs {
			n.outs[i].recs = append(n.outs[i].recs, n.outs[i].shape.trim(r))
		}
	}
}

// input returns the records of an input, and apart those that the node fails on.
func (n *node) input(i int) (good, bad []rec) {
	for _, r := range n.ins[i].recs {
		if n.bad != nil && r == *n.bad {
			bad = append(bad, r)
		} else {
			good = append(good, r)
		}
	}
	return good, bad
}

// part is what every instance of a component is made of.
type part struct {
	*node
	l    *life
	w    *world
	drag drag
	ctx  *txn.Context
	n    *counter
}

// counter counts the tuples of all tasks of a component.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

func (p *part) DeclareOutputFields(d *txn.OutputDeclarer) {
	for _, s := range p.outs {
		s.shape.declare(d, s.id, s.aimed)
	}
}

func (p *part) call(what string) error { return p.l.call(p.id + " " + what) }

// take reads a tuple. mine is false if it is for another task.
func (p *part) take(t *tuple.Tuple) (r rec, mine bool, err error) {
	in := p.subscription(t)
	if in == nil {
		return rec{}, false, fmt.Errorf("a tuple of stream %s of %s, which is not read", t.Stream().ID, t.Stream().Component)
	}
	r = read(t.Values())
	if in.shared && int(r.hash()%uint64(p.ctx.TaskCount)) != p.ctx.TaskIndex {
		return r, false, nil
	}
	return r, true, p.check(r)
}

// check counts a record and says whether to fail on it.
func (p *part) check(r rec) error {
	p.drag.take(p.ctx.Context(), p.n.next())
	if p.bad != nil && r == *p.bad {
		return errors.New("this one always fails")
	}
	return p.call("execute")
}

// subscription returns the input that t comes from.
func (p *part) subscription(t *tuple.Tuple) *input {
	s := t.Stream()
	for i := range p.ins {
		if in := &p.ins[i]; in.from.id == s.Component && in.stream.id == s.ID {
			return in
		}
	}
	return nil
}

// emit emits a record on an output, also if it is direct.
func (p *part) emit(out *txn.Collector, i int, r rec) {
	s := p.outs[i]
	if !s.aimed {
		s.shape.emit(out, s.id, r)
		return
	}
	tasks := p.ctx.TaskIDs(s.direct.id)
	out.EmitDirect(s.id, tasks[s.shape.trim(r).hash()%uint64(len(tasks))], s.shape.values(r)...)
}

// chooser is a grouping of our own: it sends a record to the task that it belongs to,
// and now and then to another one as well.
type chooser struct{ targets int }

func (c *chooser) Prepare(g txn.GroupingContext) { c.targets = len(g.Targets) }

func (c *chooser) Choose(dst []int, vals []tuple.Value) []int {
	h := read(vals).hash()
	mine := int(h % uint64(c.targets))
	dst = append(dst, mine)
	if h%7 == 0 && c.targets > 1 {
		dst = append(dst, (mine+1)%c.targets)
	}
	return dst
}

// subscribe declares an input.
func (in input) subscribe(d *engine.BoltDeclarer) {
	g := map[string]engine.Grouping{
		"shuffle": engine.Shuffle(), "local": engine.LocalOrShuffle(), "none": engine.None(),
		"all": engine.All(), "global": engine.Global(), "direct": engine.Direct(),
		"fields": engine.Fields(in.fields...), "partial": engine.PartialKey(in.fields...),
		"custom": engine.Custom(func() txn.CustomGrouping { return &chooser{} }),
	}[in.grouping]
	if in.combine > 0 {
		g = g.Combine("n", in.combine)
	}
	d.Grouping(in.from.id, in.stream.id, g)
}
