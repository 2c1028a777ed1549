package txn

import (
	"fmt"

	"github.com/isobar-io/isobar/tuple"
)

// combiner remembers where the tuples of an outlet's open frame are, so that a tuple of
// the same key is combined with the one that waits there instead of following it. It
// forgets a key when another one takes its place, which costs a tuple more and nothing
// else.
type combiner struct {
	slots    [combinerSlots]uint32 // of a key's hash: the frame's epoch << rowBits | row
	epoch    uint32                // of the open frame
	combined int                   // tuples that the open frame holds in others
}

const (
	combinerSlots = 1 << 11
	rowBits       = 12
	// combinedMax is how many tuples go into others before the frame is sent although it
	// is not full: few keys would never fill one.
	combinedMax = 16 << 10
)

// next begins a frame.
func (c *combiner) next() {
	c.combined = 0
	if c.epoch++; c.epoch == 1<<(32-rowBits) {
		c.epoch = 1
		clear(c.slots[:])
	}
}

// combine puts a tuple into one of the same key that waits in the open frame. It returns
// false if there is none; the tuple is then to be appended, and will be found.
func (o *Outlet) combine(e *Edge, vals []tuple.Value, h uint64) bool {
	field := e.Combine.Field
	if vals[field].Kind() != tuple.KindInt64 {
		panic(fmt.Sprintf("emit on stream %q: field %q is to be combined, and %s is no int64", e.Stream.ID, e.Stream.Fields[field], vals[field]))
	}
	c := o.combiner
	if c == nil {
		c = new(combiner)
		o.combiner = c
	}
	if c.combined >= combinedMax {
		o.flush()
	}
	if o.edge != e || o.frame.Full() && !o.frame.Grow(o.limit) {
		o.open(e)
		c.next()
	}
	slot := &c.slots[h%combinerSlots]
	if *slot>>rowBits == c.epoch {
		row := o.frame.Row(int(*slot & (1<<rowBits - 1)))
		if e.sameKey(row, vals) {
			row[field] = e.Combine.How.of(row[field], vals[field])
			c.combined++
			return true
		}
	}
	if row := o.frame.Len(); row < 1<<rowBits {
		*slot = c.epoch<<rowBits | uint32(row)
	}
	return false
}

// combined is combine for a tuple of two values, the key among them being text if that
// is one. It sees to most tuples that are summed at half the cost.
func (o *Outlet) combined(e *Edge, v, w tuple.Value, text string, h uint64) bool {
	if c := o.combiner; e.sums && c != nil && o.edge == e && c.combined < combinedMax && w.Kind() == tuple.KindInt64 {
		if slot := c.slots[h%combinerSlots]; slot>>rowBits == c.epoch {
			row := o.frame.Row(int(slot & (1<<rowBits - 1)))
			if waiting, ok := row[0].Text(); ok && text != "" && waiting == text {
				row[1] = tuple.Int64(row[1].Int64() + w.Int64())
				c.combined++
				return true
			}
		}
	}
	vals := [2]tuple.Value{v, w}
	return o.combine(e, vals[:], h)
}

func (how Combine) of(a, b tuple.Value) tuple.Value {
	switch x, y := a.Int64(), b.Int64(); how {
	case CombineSum:
		return tuple.Int64(x + y)
	case CombineMin:
		return tuple.Int64(min(x, y))
	case CombineMax:
		return tuple.Int64(max(x, y))
	}
	panic(fmt.Sprintf("unknown way %d to combine", how))
}

// sameKey reports whether two tuples have the same grouping fields. It may say no of
// numbers that are the same key in another form.
func (e *Edge) sameKey(a, b []tuple.Value) bool {
	for _, f := range e.Fields {
		x, isText := a[f].Text()
		if y, ok := b[f].Text(); ok != isText || x != y {
			return false
		}
		if !isText && (a[f].Kind() != b[f].Kind() || a[f].Word() != b[f].Word()) {
			return false
		}
	}
	return true
}
