package txn

import "github.com/isobar-io/isobar/tuple"

// KeyedBatchExecutor is implemented by keyed bolts that take a whole frame of tuples
// at once, instead of Execute for each: look-ups of different keys then overlap,
// which nearly halves the cost of a tuple.
type KeyedBatchExecutor interface {
	ExecuteKeyed(b *KeyedBatch, out *Collector) error
}

// KeyedBatch is a frame of tuples for a keyed bolt. It is valid until ExecuteKeyed
// returns.
type KeyedBatch struct {
	state   *State
	frame   *tuple.Frame
	fields  []int // positions of the key
	hashes  []uint64
	scratch []tuple.Value
}

// Reset makes b a view of f, whose key is in fields. carried says that the hash in
// each tuple is that of its key. The engine calls it.
func (b *KeyedBatch) Reset(s *State, f *tuple.Frame, fields []int, carried bool) {
	b.state, b.frame, b.fields, b.hashes = s, f, fields, nil
	if carried {
		b.hashes = f.Hashes()
	}
}

// Len returns the number of tuples.
func (b *KeyedBatch) Len() int { return b.frame.Len() }

// Row returns the values of tuple i, valid as long as b is.
func (b *KeyedBatch) Row(i int) []tuple.Value { return b.frame.Row(i) }

// Select makes the key of tuple i the current one of the state.
func (b *KeyedBatch) Select(i int) error {
	row := b.frame.Row(i)
	if len(b.fields) == 1 && b.hashes != nil {
		return b.state.SelectCarried(row[b.fields[0]], b.hashes[i])
	}
	b.scratch = b.scratch[:0]
	for _, f := range b.fields {
		b.scratch = append(b.scratch, row[f])
	}
	return b.state.SetKey(b.scratch...)
}

// texts reports whether keys can be looked up without Select: single texts with
// their hash.
func (b *KeyedBatch) texts() bool { return len(b.fields) == 1 && b.hashes != nil }

// AddAll adds val to the value of each tuple's key.
func (a *Aggregate[T]) AddAll(b *KeyedBatch, val T) error { return a.addEach(b, val, nil) }

// AddEach adds to the value of each tuple's key what val makes of the tuple.
func (a *Aggregate[T]) AddEach(b *KeyedBatch, val func(row []tuple.Value) T) error {
	var none T
	return a.addEach(b, none, val)
}

func (a *Aggregate[T]) addEach(b *KeyedBatch, v T, val func(row []tuple.Value) T) error {
	fast := a.t.plain && b.texts()
	for i := 0; i < b.Len(); i++ {
		if fast {
			if i = a.addWritten(b, i, v, val); i == b.Len() {
				return nil
			}
		}
		if val != nil {
			v = val(b.Row(i))
		}
		if err := b.Select(i); err != nil {
			return err
		}
		if err := a.Add(v); err != nil {
			return err
		}
	}
	return nil
}

// addWritten adds to the keys of tuples from i on, and returns the first one whose key
// is not a text that is found at once and was written in this batch already. It does
// what Add does, without a call for a tuple: that takes a third off the cost of one.
func (a *Aggregate[T]) addWritten(b *KeyedBatch, i int, v T, val func(row []tuple.Value) T) int {
	t, open, field := a.t, a.t.s.open, b.fields[0]
	for ; i < len(b.hashes); i++ {
		row, hash := b.frame.Row(i), b.hashes[i]
		slot := t.index.segment(hash).slots[hash&segmentMask]
		if slot>>32 != hash&(1<<32-1) || slot == 0 {
			return i
		}
		e := t.entry(int(uint32(slot)) - 1)
		text, ok := row[field].Text()
		if !ok || e.hash != hash || e.written != open || e.tag != tuple.TagText || t.payload(e) != text {
			return i
		}
		if val != nil {
			v = val(row)
		}
		e.val = a.combine(e.val, v)
	}
	return i
}
