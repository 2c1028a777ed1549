package pebblestate

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// Chain reads the keyed state that a chain of files holds, as a store that was restored
// from them would return it, without making one.
type Chain struct {
	files   []checkpoint.FileRef
	objects checkpoint.RangeReader
}

// NewChain returns the chain of files, each of which counts for its key groups only; see
// [checkpoint.ClipChain].
func NewChain(files []checkpoint.FileRef, objects checkpoint.RangeReader) *Chain {
	return &Chain{files, objects}
}

// Get returns the value of a state key, nil if it has none. It opens the files that count
// for the key's group, the newest first, until no older one can matter.
func (c *Chain) Get(ctx context.Context, key []byte) ([]byte, error) {
	group, err := groupOf(key)
	if err != nil {
		return nil, err
	}
	var found fold
	for _, f := range slices.Backward(c.files) {
		if group < f.GroupFrom || group >= f.GroupTo {
			continue
		}
		cur := c.cursor(f)
		err := cur.seek(ctx, key)
		if err == nil && cur.live && bytes.Equal(cur.row.Key, key) {
			err = found.older(cur.row)
		}
		if err = errors.Join(err, cur.close()); err != nil {
			return nil, err
		}
		if found.complete {
			break
		}
	}
	return found.value, nil
}

// fold is what a key has, seen from its newest row to its oldest.
type fold struct {
	value    []byte // nil: nothing so far
	complete bool   // what is older does not matter
}

// older takes the next older row.
func (f *fold) older(r txn.Record) error {
	f.complete = !r.Merge
	switch {
	case r.Delete:
	case f.value == nil:
		f.value = append([]byte{}, r.Value...)
	default:
		value, err := txn.MergeValues(bytes.Clone(r.Value), f.value)
		if err != nil {
			return fmt.Errorf("%w: key %x: %w", checkpoint.ErrDamaged, r.Key, err)
		}
		f.value = value
	}
	return nil
}

// Rows goes through what the chain holds in the order of the state keys: begin with
// SeekGE. Close it when done.
func (c *Chain) Rows(ctx context.Context) *Rows {
	r := &Rows{ctx: ctx}
	for i, f := range c.files {
		cur := c.cursor(f)
		cur.age = len(c.files) - i
		r.waiting = append(r.waiting, cur)
	}
	slices.SortStableFunc(r.waiting, func(a, b *cursor) int { return bytes.Compare(a.lower, b.lower) })
	return r
}

// Rows goes through the rows of a chain. A file is open only while the rows that it may
// have come up.
type Rows struct {
	ctx     context.Context
	waiting []*cursor // not open yet, by where they begin
	open    cursors
	there   bool // there is a current row
	key     []byte
	value   []byte
	err     error
}

// SeekGE goes forward to the first row at or after key: it stays if that is the current
// one. It returns false if there is none, or an error.
func (r *Rows) SeekGE(key []byte) bool {
	if r.there && bytes.Compare(r.key, key) >= 0 {
		return true
	}
	for r.err == nil && len(r.open) > 0 && bytes.Compare(r.open[0].row.Key, key) < 0 {
		r.move(r.open[0].seek(r.ctx, key))
	}
	return r.settle(key)
}

// Next goes to the next row. It returns false if there is none, or an error.
func (r *Rows) Next() bool { return r.settle(nil) }

// Key returns the state key of the current row, valid until the next one.
func (r *Rows) Key() []byte { return r.key }

// Value returns the value of the current row, valid until the next one.
func (r *Rows) Value() []byte { return r.value }

// Err returns what ended the rows early.
func (r *Rows) Err() error { return r.err }

// Close closes the files.
func (r *Rows) Close() error {
	var errs []error
	for _, cur := range r.open {
		errs = append(errs, cur.close())
	}
	r.open, r.waiting, r.there = nil, nil, false
	return errors.Join(errs...)
}

// settle finds the next key that has a value. What opens from here on begins at from.
func (r *Rows) settle(from []byte) bool {
	r.there = false
	for r.err == nil {
		if err := r.admit(from); err != nil {
			r.err = err
			return false
		}
		if len(r.open) == 0 {
			return false
		}
		var found fold
		r.key = append(r.key[:0], r.open[0].row.Key...)
		for r.err == nil && len(r.open) > 0 && bytes.Equal(r.open[0].row.Key, r.key) {
			if !found.complete {
				r.err = found.older(r.open[0].row)
			}
			if r.err == nil {
				r.move(r.open[0].next())
			}
		}
		if r.err == nil && found.value != nil {
			r.value, r.there = found.value, true
			return true
		}
	}
	return false
}

// admit opens the files that may hold the next key.
func (r *Rows) admit(from []byte) error {
	for len(r.waiting) > 0 {
		cur := r.waiting[0]
		if len(r.open) > 0 && bytes.Compare(cur.lower, r.open[0].row.Key) > 0 {
			return nil
		}
		r.waiting = r.waiting[1:]
		if from != nil && cur.upper != nil && bytes.Compare(from, cur.upper) >= 0 {
			continue
		}
		target := cur.lower
		if bytes.Compare(from, target) > 0 {
			target = from
		}
		if err := cur.seek(r.ctx, target); err != nil || !cur.live {
			if err = errors.Join(err, cur.close()); err != nil {
				return err
			}
			continue
		}
		heap.Push(&r.open, cur)
	}
	return nil
}

// move puts the first cursor, which has moved, where it belongs.
func (r *Rows) move(err error) {
	switch cur := r.open[0]; {
	case err != nil:
		r.err = err
	case cur.live:
		heap.Fix(&r.open, 0)
	default:
		heap.Pop(&r.open)
		r.err = cur.close()
	}
}

// cursor goes through the rows of one file that count.
type cursor struct {
	chain        *Chain
	file         checkpoint.FileRef
	age          int    // of files that hold the same key a newer one has a lower age
	lower, upper []byte // of the groups that count; upper is nil if there are none after them
	table        *Table // nil: not open
	rows         sstable.Iterator

	live bool       // it is at a row
	row  txn.Record // valid until it moves
}

func (c *Chain) cursor(f checkpoint.FileRef) *cursor {
	cur := &cursor{chain: c, file: f}
	cur.lower, cur.upper = span{f.GroupFrom, f.GroupTo}.bounds()
	return cur
}

func (c *cursor) seek(ctx context.Context, key []byte) error {
	if c.table == nil {
		if err := c.openTable(ctx); err != nil {
			return c.errorf(err)
		}
	}
	kv := c.rows.SeekGE(key, 0)
	if kv == nil {
		return c.end()
	}
	value, _, err := kv.Value(nil)
	return c.at(kv.K.Kind(), kv.K.UserKey, value, err)
}

func (c *cursor) next() error {
	kv := c.rows.Next()
	if kv == nil {
		return c.end()
	}
	value, _, err := kv.Value(nil)
	return c.at(kv.K.Kind(), kv.K.UserKey, value, err)
}

// end says that there are no more rows.
func (c *cursor) end() error {
	c.live, c.row = false, txn.Record{}
	return c.errorf(c.rows.Error())
}

// at takes the row to which the cursor has moved.
func (c *cursor) at(kind pebble.InternalKeyKind, key, value []byte, err error) error {
	if err == nil {
		c.row, err = recordOf(kind, key, value)
	}
	c.live = err == nil
	return c.errorf(err)
}

func (c *cursor) openTable(ctx context.Context) (err error) {
	if c.table, err = OpenTable(ctx, c.chain.objects, c.file); err != nil {
		return err
	}
	c.rows, err = c.table.iterate(ctx, c.lower, c.upper)
	return err
}

func (c *cursor) close() error {
	var errs []error
	if c.rows != nil {
		errs = append(errs, c.rows.Close())
	}
	if c.table != nil {
		errs = append(errs, c.table.Close())
	}
	c.rows, c.table = nil, nil
	return errors.Join(errs...)
}

func (c *cursor) errorf(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read object %s as a table of state: %w", c.file.Name, damage(err))
}

// cursors is a heap: by key, and of one key the newest first.
type cursors []*cursor

func (h cursors) Len() int { return len(h) }
func (h cursors) Less(i, j int) bool {
	if order := bytes.Compare(h[i].row.Key, h[j].row.Key); order != 0 {
		return order < 0
	}
	return h[i].age < h[j].age
}
func (h cursors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *cursors) Push(x any) { *h = append(*h, x.(*cursor)) }

// Pop implements heap.Interface.
func (h *cursors) Pop() any {
	last := len(*h) - 1
	cur := (*h)[last]
	*h = (*h)[:last]
	return cur
}
