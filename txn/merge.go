package txn

import (
	"encoding/binary"
	"fmt"
)

// Kinds of aggregates that are combined by whoever reads the files: the first byte of
// their stored values. Combining them is exact and does not depend on the order.
const (
	kindSum byte = 1 + iota
	kindMin
	kindMax
	kindSumFloat // not exact, so never merged; it only names the codec
)

// mergedBytes is the size of a stored value that can be merged: its kind and 8 bytes.
const mergedBytes = 9

// Mergeable reports whether MergeValues can combine stored values that begin with kind.
func Mergeable(kind byte) bool { return kind == kindSum || kind == kindMin || kind == kindMax }

// MergeValues combines two stored values of the same built-in aggregate, the older one
// first, as the component that wrote them would have done. The result may be written
// over a. It needs nothing of the topology's code.
func MergeValues(a, b []byte) ([]byte, error) {
	if len(a) != mergedBytes || len(b) != mergedBytes || a[0] != b[0] || !Mergeable(a[0]) {
		return nil, fmt.Errorf("merge stored values %x and %x: both must be of the same kind of aggregate, 1 to 3, and have %d bytes", clipped(a), clipped(b), mergedBytes)
	}
	x, y := int64(binary.BigEndian.Uint64(a[1:])), int64(binary.BigEndian.Uint64(b[1:]))
	switch a[0] {
	case kindSum:
		x += y
	case kindMin:
		x = min(x, y)
	case kindMax:
		x = max(x, y)
	}
	binary.BigEndian.PutUint64(a[1:], uint64(x))
	return a, nil
}

// clipped returns enough of a value to recognise it.
func clipped(b []byte) []byte { return b[:min(len(b), 2*mergedBytes)] }

// merges reports whether a is a built-in one whose stored values MergeValues combines.
func (a Aggregator[T]) merges() bool {
	names := map[byte]string{kindSum: "sum", kindMin: "min", kindMax: "max"}
	return Mergeable(a.Kind) && a.Codec.Name == names[a.Kind]
}

// loadToAdd returns the entry of the current key for something to be added. One that is
// not in memory need not be read if what is added can be merged with it later: then the
// entry is partial.
func (t *table[T]) loadToAdd() (*entry[T], error) {
	e := t.find()
	switch {
	case e != nil:
		return e, nil
	case t.merge == nil || t.s.cfg.Backend.Empty():
		return t.fetch()
	}
	if err := t.s.hasKey(); err != nil {
		return nil, err
	}
	return t.insert(entry[T]{flags: flagPartial}), nil
}

// complete gives a partial entry its whole value: what the backend has, what cuts add
// that the backend does not have yet, and what was added since.
func (t *table[T]) complete(e *entry[T]) error {
	if e.written == t.s.marked {
		t.copyEntry(e) // as what was added, which is no longer known afterwards
	}
	key := t.appendKey(nil, e)
	value, asOf, err := t.s.cfg.Backend.Get(key)
	if err != nil {
		return t.errorf("read", key, err)
	}
	parts := [][]byte{value}
	for _, m := range t.s.inFlight {
		if m.batch > asOf {
			parts = append(parts, m.value(key))
		}
	}
	var whole T
	there := false
	add := func(v T) {
		if there {
			v = t.merge(whole, v)
		}
		whole, there = v, true
	}
	for _, raw := range parts {
		if raw == nil {
			continue
		}
		v, err := t.decode(raw)
		if err != nil {
			return t.errorf("read", key, err)
		}
		add(v)
	}
	if e.flags&flagPresent != 0 {
		add(e.val)
	}
	e.val = whole
	e.flags &^= flagPartial
	if there {
		e.flags |= flagPresent
	}
	return nil
}
