package txn

import (
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/tuple"
)

// Grouping says which tasks of a bolt receive a tuple.
type Grouping uint8

// The groupings.
const (
	Shuffle  Grouping = iota // the tasks in turn
	ByFields                 // the task that owns the key group of the fields' hash
	All                      // every task
	Global                   // the first task
)

// Outlet is the sending end of one channel: it gathers tuples in an open frame and
// hands over the frame when it is full.
type Outlet struct {
	// Send hands over a frame, waiting for room if it must, and returns an empty one
	// and how many tuples it should hold. Once the generation has ended it drops the
	// frame instead of waiting.
	Send func(f *tuple.Frame) (next *tuple.Frame, limit int)

	frame *tuple.Frame
	edge  *Edge // whose tuples the open frame holds
	limit int
	sent  uint64 // tuples since the last mark
}

// NewOutlet returns an Outlet that begins with an empty frame.
func NewOutlet(first *tuple.Frame, limit int, send func(*tuple.Frame) (*tuple.Frame, int)) *Outlet {
	return &Outlet{Send: send, frame: first, limit: limit}
}

// open returns a frame with room for a tuple of e: one frame holds the tuples of one
// edge only, and no more than its limit.
func (o *Outlet) open(e *Edge) *tuple.Frame {
	if o.edge == e && o.frame.Grow(o.limit) {
		return o.frame
	}
	if o.frame.Len() > 0 {
		o.flush()
	}
	o.edge = e
	o.frame.Begin(e.Stream, e.Grouping == ByFields)
	o.frame.Grow(max(o.limit, 1))
	return o.frame
}

func (o *Outlet) flush() {
	o.sent += uint64(o.frame.Len())
	o.frame, o.limit = o.Send(o.frame)
	o.edge = nil
}

func (o *Outlet) mark(m tuple.Mark) {
	m.Count = o.sent + uint64(o.frame.Len())
	o.frame.Mark = m
	o.flush()
	o.sent = 0
}

// Edge connects one output stream to one subscribed bolt.
type Edge struct {
	Stream   *tuple.Stream
	Grouping Grouping
	Fields   []int // positions of the grouping fields in Stream
	Groups   int   // number of key groups
	Outlets  []*Outlet
	Next     int // the task that shuffle grouping begins with

	route []*Outlet // by key group
}

// Collector is how components emit. It belongs to one task and may be used only
// during the calls it is passed to, on their goroutine.
//
// Emitted strings are shared; emitted bytes are copied before Emit returns. Emit
// waits when a receiver's queue is full.
type Collector struct {
	main    *outStream // of the default stream, if there is one
	streams []outStream
	outlets []*Outlet
	emitted uint64
}

type outStream struct {
	stream *tuple.Stream
	width  int
	edges  []Edge
	tap    func(stream string, vals []tuple.Value)
}

// NewCollector returns a collector for the output streams of a component.
func NewCollector(streams []*tuple.Stream, edges []Edge, outlets []*Outlet) *Collector {
	c := &Collector{outlets: outlets}
	for _, s := range streams {
		o := outStream{stream: s, width: len(s.Fields)}
		for _, e := range edges {
			if e.Stream != s {
				continue
			}
			if e.Grouping == ByFields {
				e.route = make([]*Outlet, e.Groups)
				for g := range e.route {
					e.route[g] = e.Outlets[tuple.TaskOfGroup(g, e.Groups, len(e.Outlets))]
				}
			}
			o.edges = append(o.edges, e)
		}
		c.streams = append(c.streams, o)
	}
	for i := range c.streams {
		if c.streams[i].stream.ID == tuple.DefaultStream {
			c.main = &c.streams[i]
		}
	}
	return c
}

// NewTestCollector returns a collector that gives every emitted tuple to sink, for
// tests of components. The values are valid during the call.
func NewTestCollector(streams []*tuple.Stream, sink func(stream string, vals []tuple.Value)) *Collector {
	c := NewCollector(streams, nil, nil)
	for i := range c.streams {
		c.streams[i].tap = sink
	}
	return c
}

// Emit1 emits a tuple of one value on the default stream.
func (c *Collector) Emit1(v tuple.Value) {
	s := c.main
	if s == nil || s.width != 1 {
		panic(c.badEmit(s, 1))
	}
	c.emitted++
	for i := range s.edges {
		e := &s.edges[i]
		switch e.Grouping {
		case ByFields:
			h, ok := v.Hash()
			if !ok {
				panic(e.badKey(v))
			}
			e.route[tuple.KeyGroup(h, e.Groups)].append1(e, v, h)
		case Shuffle:
			e.turn().append1(e, v, 0)
		case Global:
			e.Outlets[0].append1(e, v, 0)
		case All:
			for _, o := range e.Outlets {
				o.append1(e, v, 0)
			}
		}
	}
	if s.tap != nil {
		s.tap(s.stream.ID, []tuple.Value{v})
	}
}

// Emit2 emits a tuple of two values on the default stream.
func (c *Collector) Emit2(v, w tuple.Value) { c.emit(c.main, v, w) }

// Emit emits a tuple on the default stream.
func (c *Collector) Emit(vals ...tuple.Value) { c.emit(c.main, vals...) }

// EmitTo emits a tuple on a named stream.
func (c *Collector) EmitTo(stream string, vals ...tuple.Value) {
	for i := range c.streams {
		if s := &c.streams[i]; s.stream.ID == stream {
			c.emit(s, vals...)
			return
		}
	}
	panic(fmt.Sprintf("emit on stream %q, which the component does not declare", stream))
}

func (c *Collector) emit(s *outStream, vals ...tuple.Value) {
	if s == nil || s.width != len(vals) {
		panic(c.badEmit(s, len(vals)))
	}
	c.emitted++
	for i := range s.edges {
		e := &s.edges[i]
		switch e.Grouping {
		case ByFields:
			h := e.hash(vals)
			e.route[tuple.KeyGroup(h, e.Groups)].append(e, vals, h)
		case Shuffle:
			e.turn().append(e, vals, 0)
		case Global:
			e.Outlets[0].append(e, vals, 0)
		case All:
			for _, o := range e.Outlets {
				o.append(e, vals, 0)
			}
		}
	}
	if s.tap != nil {
		s.tap(s.stream.ID, append([]tuple.Value(nil), vals...))
	}
}

func (c *Collector) badEmit(s *outStream, n int) string {
	if s == nil {
		return "emit on the default stream, which the component does not declare: " +
			"declare its fields in DeclareOutputFields"
	}
	return fmt.Sprintf("emit %d values on stream %q, which declares %d fields %q",
		n, s.stream.ID, s.width, []string(s.stream.Fields))
}

func (e *Edge) badKey(v tuple.Value) string {
	return fmt.Sprintf("emit on stream %q: value %s is grouped by, but an object cannot be a key", e.Stream.ID, v)
}

func isObject(v tuple.Value) bool { return v.Kind() == tuple.KindAny }

func (e *Edge) turn() *Outlet {
	o := e.Outlets[e.Next]
	if e.Next++; e.Next == len(e.Outlets) {
		e.Next = 0
	}
	return o
}

func (e *Edge) hash(vals []tuple.Value) uint64 {
	if len(e.Fields) == 1 {
		h, ok := vals[e.Fields[0]].Hash()
		if !ok {
			panic(e.badKey(vals[e.Fields[0]]))
		}
		return h
	}
	var buf [8]tuple.Value
	key := buf[:0]
	for _, f := range e.Fields {
		key = append(key, vals[f])
	}
	h, ok := tuple.HashKey(key)
	if !ok {
		panic(e.badKey(key[slices.IndexFunc(key, isObject)]))
	}
	return h
}

func (o *Outlet) append1(e *Edge, v tuple.Value, h uint64) {
	f := o.frame
	if o.edge != e || f.Full() {
		f = o.open(e)
	}
	f.Append1(v, h)
}

func (o *Outlet) append(e *Edge, vals []tuple.Value, h uint64) {
	f := o.frame
	if o.edge != e || f.Full() {
		f = o.open(e)
	}
	if len(vals) == 2 {
		f.Append2(vals[0], vals[1], h)
	} else {
		f.Append(vals, h)
	}
}

// Emitted returns how many tuples have been emitted, for the engine's metrics.
func (c *Collector) Emitted() uint64 { return c.emitted }

// Flush hands over all open frames that hold tuples. The engine calls it when a
// task goes idle and every few milliseconds.
func (c *Collector) Flush() {
	for _, o := range c.outlets {
		if o.frame.Len() > 0 {
			o.flush()
		}
	}
}

// Mark closes the batch on every output channel: it hands over the open frames with
// the mark and the number of tuples behind it. The engine calls it.
func (c *Collector) Mark(m tuple.Mark) {
	for _, o := range c.outlets {
		o.mark(m)
	}
}
