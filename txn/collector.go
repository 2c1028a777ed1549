package txn

import (
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/tuple"
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

	combiner *combiner // once a tuple was to be combined
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
	o.frame.Begin(e.Stream, e.Grouping.Keyed())
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

// Collector is how components emit. It belongs to one task and may be used only
// during the calls it is passed to, on their goroutine.
//
// Emitted strings are shared; emitted bytes are copied before Emit returns. Emit
// waits when a receiver's queue is full.
type Collector struct {
	main    *outStream // of the default stream, if there is one
	streams []outStream
	outlets []*Outlet
	time    outTime
	targets []*Outlet // scratch
}

type outStream struct {
	stream *tuple.Stream
	width  int
	count  uint64 // tuples emitted
	slow   bool   // values are checked or tapped
	edges  []Edge
	tap    func(stream string, vals []tuple.Value)
}

// NewCollector returns a collector for the output streams of a component.
func NewCollector(streams []*tuple.Stream, edges []Edge, outlets []*Outlet) *Collector {
	c := &Collector{outlets: outlets, time: noTime()}
	for _, s := range streams {
		o := outStream{stream: s, width: len(s.Fields), slow: s.Kinds != nil}
		for _, e := range edges {
			if e.Stream != s {
				continue
			}
			e.prepare()
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
		c.streams[i].tap, c.streams[i].slow = sink, true
	}
	return c
}

// Emit1 emits a tuple of one value on the default stream.
func (c *Collector) Emit1(v tuple.Value) {
	s := c.main
	if s == nil || s.width != 1 || s.slow {
		c.emit(s, v)
		return
	}
	s.count++
	for i := range s.edges {
		e := &s.edges[i]
		// Written out, because two calls less are a tenth of a word count.
		var o *Outlet
		var h uint64
		switch e.Grouping {
		case ByFields:
			if text, ok := v.Text(); ok {
				h = tuple.HashBytes(text, 0)
			} else if h, ok = v.Hash(); !ok {
				panic(e.badKey(v))
			}
			o = e.route[tuple.KeyGroup(h, e.Groups)]
		case Shuffle:
			o = e.turn()
		default:
			c.append(e, v)
			continue
		}
		f := o.frame
		if o.edge != e || f.Full() {
			f = o.open(e)
		}
		f.Append1(v, h)
	}
}

// Emit2 emits a tuple of two values on the default stream.
func (c *Collector) Emit2(v, w tuple.Value) {
	s := c.main
	if s == nil || s.width != 2 || s.slow {
		c.emit(s, v, w)
		return
	}
	s.count++
	for i := range s.edges {
		e := &s.edges[i]
		var o *Outlet
		var h uint64
		switch {
		case e.single:
			key := v
			if e.Fields[0] == 1 {
				key = w
			}
			text, ok := key.Text()
			if ok {
				h = tuple.HashBytes(text, 0)
			} else if h, ok = key.Hash(); !ok {
				panic(e.badKey(key))
			}
			o = e.route[tuple.KeyGroup(h, e.Groups)]
			if e.Combine != nil && o.combined(e, v, w, text, h) {
				continue
			}
		case e.Grouping == Shuffle:
			o = e.turn()
		default:
			c.append(e, v, w)
			continue
		}
		f := o.frame
		if o.edge != e || f.Full() {
			f = o.open(e)
		}
		f.Append2(v, w, h)
	}
}

// Emit emits a tuple on the default stream.
func (c *Collector) Emit(vals ...tuple.Value) { c.emit(c.main, vals...) }

// EmitTo emits a tuple on a named stream.
func (c *Collector) EmitTo(stream string, vals ...tuple.Value) { c.emit(c.stream(stream), vals...) }

// EmitTasks emits as EmitTo does and returns the ids of the tasks that the tuple went
// to.
func (c *Collector) EmitTasks(stream string, vals ...tuple.Value) []int {
	s := c.stream(stream)
	c.check(s, vals)
	s.count++
	var ids []int
	for i := range s.edges {
		e := &s.edges[i]
		for _, o := range c.append(e, vals...) {
			ids = append(ids, e.Targets[slices.Index(e.Outlets, o)])
		}
	}
	return ids
}

// EmitDirect emits a tuple on a direct stream to one task, by its topology-wide id;
// see [Context.TaskIDs]. The stream's subscribers must include that task.
func (c *Collector) EmitDirect(stream string, task int, vals ...tuple.Value) {
	s := c.stream(stream)
	if !s.stream.Direct {
		panic(fmt.Sprintf("emit direct on stream %q, which is not declared direct", stream))
	}
	c.check(s, vals)
	s.count++
	for i := range s.edges {
		e := &s.edges[i]
		if t := slices.Index(e.Targets, task); t >= 0 {
			e.Outlets[t].append(e, vals, 0)
			return
		}
	}
	if s.tap == nil {
		panic(fmt.Sprintf("emit direct on stream %q to task %d, which does not read it", stream, task))
	}
	s.tap(s.stream.ID, slices.Clone(vals))
}

func (c *Collector) stream(id string) *outStream {
	for i := range c.streams {
		if s := &c.streams[i]; s.stream.ID == id {
			return s
		}
	}
	panic(fmt.Sprintf("emit on stream %q, which the component does not declare", id))
}

func (c *Collector) emit(s *outStream, vals ...tuple.Value) {
	c.check(s, vals)
	s.count++
	for i := range s.edges {
		c.append(&s.edges[i], vals...)
	}
	if s.tap != nil {
		s.tap(s.stream.ID, slices.Clone(vals))
	}
}

// append appends a tuple to the channels that an edge chooses, which it returns.
func (c *Collector) append(e *Edge, vals ...tuple.Value) []*Outlet {
	targets, h := e.choose(c.targets[:0], vals)
	for _, o := range targets {
		o.append(e, vals, h)
	}
	c.targets = targets
	return targets
}

// check panics if vals do not fit a stream.
func (c *Collector) check(s *outStream, vals []tuple.Value) {
	if s == nil || s.width != len(vals) {
		panic(c.badEmit(s, len(vals)))
	}
	for i, k := range s.stream.Kinds {
		if have := vals[i].Kind(); have != k && k != tuple.KindAny {
			panic(fmt.Sprintf("emit on stream %q: field %q is declared as %s, and %s is of kind %s",
				s.stream.ID, s.stream.Fields[i], k, vals[i], have))
		}
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

func (o *Outlet) append(e *Edge, vals []tuple.Value, h uint64) {
	if e.Combine != nil && o.combine(e, vals, h) {
		return
	}
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

// Emitted returns how many tuples have been emitted on all streams.
func (c *Collector) Emitted() uint64 {
	n := uint64(0)
	for i := range c.streams {
		n += c.streams[i].count
	}
	return n
}

// EmittedOn returns how many tuples have been emitted on one stream, by its place in
// the streams that the collector was made with, for the engine's metrics.
func (c *Collector) EmittedOn(stream int) uint64 { return c.streams[stream].count }

// Flush hands over all open frames that hold tuples. The engine calls it when a
// task goes idle and every few milliseconds.
func (c *Collector) Flush() {
	if c.time.due {
		c.tellTime()
	}
	for _, o := range c.outlets {
		if o.frame.Len() > 0 {
			o.flush()
		}
	}
}

// Mark closes the batch on every output channel: it hands over the open frames with
// the mark and the number of tuples behind it. The engine calls it.
func (c *Collector) Mark(m tuple.Mark) {
	if c.time.due {
		c.tellTime()
	}
	for _, o := range c.outlets {
		o.mark(m)
	}
}
