package inspect

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Entry is what a state holds for a key, or a part of it.
type Entry struct {
	Key     []byte // as encoded by tuple.AppendKey
	MapKey  []byte // of a map: the entry's own key, as its codec encodes it
	Index   uint64 // of a list: the element's
	At      int64  // of a timer: its moment, in milliseconds since 1970
	Timer   string // of a timer: its name
	Expires int64  // in milliseconds since 1970; 0 if it does not
	Payload []byte // as the codec encodes the value; of a timer none
	Version uint8  // of the codec; of an aggregate always 1

	length bool // of a list: it is the number of elements
}

// entry takes the row of a state apart; see docs/format/delta.md.
func (l *layout) entry(stateKey, value []byte) (e Entry, err error) {
	group, _, rest, ok := txn.SplitStateKey(stateKey)
	damaged := func(err error) (Entry, error) {
		return e, fmt.Errorf("%w: row %x of key group %d: %w", checkpoint.ErrDamaged, stateKey, group, err)
	}
	prefix := 1
	if l.ttl {
		prefix += 8
	}
	if !ok || len(value) < prefix {
		return damaged(fmt.Errorf("its value has %d bytes, must have %d at least", len(value), prefix))
	}
	if e.Version = value[0]; l.base == "aggregate" {
		e.Version = 1
	}
	if e.Payload = value[prefix:]; l.ttl {
		e.Expires = int64(binary.BigEndian.Uint64(value[1:]))
	}
	switch l.base {
	case "value", "aggregate":
		e.Key = rest
	case "map":
		e.Key, e.MapKey, err = tuple.SplitDelimited(rest)
	case "list":
		var index []byte
		e.Key, index, err = tuple.SplitDelimited(rest)
		switch {
		case err != nil:
		case len(index) == 8:
			e.Index = binary.BigEndian.Uint64(index)
		case len(index) == 0:
			e.length = true
		default:
			err = fmt.Errorf("the index of an element has %d bytes", len(index))
		}
	case "timer":
		if len(rest) < 8 {
			return damaged(fmt.Errorf("a timer's key of %d bytes is too short", len(rest)))
		}
		var name []byte
		e.At = int64(binary.BigEndian.Uint64(rest) ^ 1<<63)
		e.Key, name, err = tuple.SplitDelimited(rest[8:])
		e.Timer = string(name)
	}
	if err != nil {
		return damaged(err)
	}
	return e, nil
}

// Prefix says which keys are meant by how they begin. The zero Prefix means all.
type Prefix struct {
	Text   string        // the first value is a text and begins so
	Values []tuple.Value // the first values are these
}

// keyRange is the keys from from up to to, encoded as in rows of a kind of state. A to of
// nil means to the end.
type keyRange struct{ from, to []byte }

// following returns the first key after all that begin with prefix, nil if there is none.
// It may be written over prefix.
func following(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i]++; prefix[i] != 0 {
			return prefix[:i+1]
		}
	}
	return nil
}

// ranges returns where the rows of the keys are, in order. Keys that do not fit may be
// among them.
func (p Prefix) ranges(base string) ([]keyRange, error) {
	if base == "timer" || p.Text == "" && len(p.Values) == 0 {
		return []keyRange{{}}, nil
	}
	values := p.Values
	if len(values) == 0 {
		values = []tuple.Value{tuple.String(p.Text)}
	}
	key, err := tuple.AppendKey(nil, values...)
	if err != nil {
		return nil, err
	}
	// How the keys begin when more values follow, or when all keys are delimited.
	inner := tuple.AppendDelimited(nil, key)
	inner = inner[:len(inner)-1]
	last := keyRange{key, append(bytes.Clone(key), 0)}
	if len(p.Values) == 0 { // a text may go on
		inner = inner[:len(inner)-len("\x00\x01")]
		last.to = following(bytes.Clone(key))
	}
	ranges := []keyRange{{inner, following(bytes.Clone(inner))}}
	if (base == "value" || base == "aggregate") && !bytes.HasPrefix(key, inner) {
		ranges = append(ranges, last)
	}
	return ranges, nil
}

// fits reports whether a key is meant.
func (p Prefix) fits(key []byte) (bool, error) {
	if p.Text == "" && len(p.Values) == 0 {
		return true, nil
	}
	vals, err := tuple.DecodeKey(key)
	if err != nil {
		return false, fmt.Errorf("%w: %w", checkpoint.ErrDamaged, err)
	}
	if len(p.Values) == 0 {
		text, ok := "", false
		if len(vals) > 0 {
			text, ok = vals[0].Text()
		}
		return ok && len(text) >= len(p.Text) && text[:len(p.Text)] == p.Text, nil
	}
	if len(vals) < len(p.Values) {
		return false, nil
	}
	begin, err := tuple.AppendKey(nil, vals[:len(p.Values)]...)
	if err != nil {
		return false, err
	}
	want, err := tuple.AppendKey(nil, p.Values...)
	return bytes.Equal(begin, want), err
}
