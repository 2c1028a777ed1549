package txn

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/isobar-io/isobar/tuple"
)

// List is a state that holds a list for each key. Its elements are kept one by one: to
// append costs the same however long the list is. Elements are copied on the way in and
// out.
type List[T any] struct {
	rows  *rows
	codec Codec[T]
}

// NewList registers a list state in Open. With a TTL each element expires by itself.
func NewList[T any](s *State, name string, c Codec[T], opts ...StateOption) *List[T] {
	return &List[T]{newRows(s, name, "list", c.Name, c.Version, opts), c}
}

func listIndex(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

// count returns the index of the next element. It expires no sooner than the last
// element does.
func (l *List[T]) count() (uint64, error) {
	payload, _, ok, err := l.rows.get(nil)
	if err != nil || !ok {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, l.rows.errorf("read the length of", errShort)
	}
	return binary.BigEndian.Uint64(payload), nil
}

func (l *List[T]) setCount(n uint64) error {
	return l.rows.put(nil, func(dst []byte) ([]byte, error) { return binary.BigEndian.AppendUint64(dst, n), nil })
}

// Append adds elements to the end of the current key's list.
func (l *List[T]) Append(vals ...T) error {
	n, err := l.count()
	if err != nil || len(vals) == 0 {
		return err
	}
	return l.write(n, vals)
}

// write makes vals the elements from index n on.
func (l *List[T]) write(n uint64, vals []T) error {
	for _, v := range vals {
		if err := l.rows.put(listIndex(n), func(dst []byte) ([]byte, error) { return l.codec.Append(dst, v) }); err != nil {
			return err
		}
		n++
	}
	return l.setCount(n)
}

// Set replaces the elements of the current key's list.
func (l *List[T]) Set(vals ...T) error {
	if err := l.Clear(); err != nil || len(vals) == 0 {
		return err
	}
	return l.write(0, vals)
}

// Len returns how many elements the current key's list has. With a TTL it visits all
// of them.
func (l *List[T]) Len() (int, error) {
	n, err := l.count()
	if err != nil || l.rows.ttl == 0 {
		return int(n), err
	}
	live := 0
	err = l.each(func([]byte, uint8) error { live++; return nil })
	return live, err
}

// each calls fn for each element of the current key's list.
func (l *List[T]) each(fn func(payload []byte, version uint8) error) error {
	n, err := l.count()
	if err != nil || n == 0 {
		return err
	}
	end := string(listIndex(n))
	return stopped(l.rows.each(listIndex(0), func(sub string, payload []byte, version uint8) error {
		if sub >= end {
			return errStop
		}
		return fn(payload, version)
	}))
}

// All iterates over the elements of the current key's list. *err is set to nil, and to
// an error if one ends the iteration early. The loop may use the state, but elements
// that it adds to this list do not come.
func (l *List[T]) All(err *error) iter.Seq[T] {
	return func(yield func(T) bool) {
		*err = l.each(func(payload []byte, version uint8) error {
			v, err := l.decode(payload, version)
			if err == nil && !yield(v) {
				err = errStop
			}
			return err
		})
	}
}

func (l *List[T]) decode(payload []byte, version uint8) (T, error) {
	v, err := l.codec.Decode(payload, version)
	if err != nil {
		return v, fmt.Errorf("decode state %q with codec %s: %w", l.rows.name, l.codec.Name, err)
	}
	return v, nil
}

// Clear removes all elements of the current key's list. It visits all of them.
func (l *List[T]) Clear() error { return l.rows.clear() }

// Scan calls fn for each element of each key of a view, ordered by key group, key and
// index.
func (l *List[T]) Scan(view View, fn func(key []tuple.Value, v T) error) error {
	return l.rows.scan(view, func(key []tuple.Value, sub, payload []byte, version uint8) error {
		if len(sub) == 0 {
			return nil
		}
		v, err := l.decode(payload, version)
		if err != nil {
			return err
		}
		return fn(key, v)
	})
}
