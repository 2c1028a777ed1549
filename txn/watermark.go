package txn

import (
	"math"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// outTime is the event time that a component tells downstream. It travels with the
// next flush, so that watermarks cost next to nothing however many there are.
type outTime struct {
	at, told       int64 // in milliseconds since 1970; math.MinInt64 = none
	idle, toldIdle bool
	due            bool // there is something to tell
}

// EmitWatermark says that no tuple of an earlier event time than t will be emitted any
// more, and that the task is no longer idle. Event time never goes back: an earlier t
// changes nothing. A bolt passes on by itself the smallest of the watermarks of its
// inputs, as soon as all that are not idle have one; timers by event time fire when
// that reaches them.
//
// It may be called for every tuple: the watermark is handed on with the next flush, no
// more than some milliseconds later. It is not a change of the input: a topology in
// which nothing but watermarks is emitted takes a checkpoint only when a timer fires.
func (c *Collector) EmitWatermark(t time.Time) {
	o := &c.time
	o.at = max(o.at, t.UnixMilli())
	o.idle = false
	o.due = o.at > o.told || o.toldIdle
}

// EmitIdle says that this task has no event time to tell for now: downstream goes on
// with the watermarks of its other inputs, until the next EmitWatermark. Tuples emitted
// after that may be late. A spout that has finished is idle.
func (c *Collector) EmitIdle() {
	c.time.idle = true
	c.time.due = true
}

// watermarkMark returns the mark that carries a watermark, in milliseconds since 1970.
func watermarkMark(unixMilli int64) tuple.Mark {
	return tuple.Mark{Kind: tuple.MarkWatermark, Count: uint64(unixMilli)}
}

// WatermarkOf returns the watermark that a mark of that kind carries, in milliseconds
// since 1970.
func WatermarkOf(m tuple.Mark) int64 { return int64(m.Count) }

// tellTime puts what there is to tell on every output channel, behind the tuples of
// the open frames.
func (c *Collector) tellTime() {
	o := &c.time
	o.due = false
	if o.at > o.told || o.toldIdle && !o.idle {
		o.told, o.toldIdle = o.at, false
		c.pass(watermarkMark(o.at))
	}
	if o.idle && !o.toldIdle {
		o.toldIdle = true
		c.pass(tuple.Mark{Kind: tuple.MarkIdle})
	}
}

// pass hands over the open frames with a mark that closes no batch.
func (c *Collector) pass(m tuple.Mark) {
	for _, o := range c.outlets {
		o.frame.Mark = m
		o.flush()
	}
}

func noTime() outTime { return outTime{at: math.MinInt64, told: math.MinInt64} }
