package txn

import (
	"errors"
	"fmt"
	"iter"

	"github.com/isobar-io/isobar/tuple"
)

// Map is a state that holds a map for each key. Its entries are kept one by one: to
// change one costs the same however large the map is. Keys and values are copied on
// the way in and out.
type Map[K, V any] struct {
	rows *rows
	key  Codec[K]
	val  Codec[V]
	buf  []byte
}

// NewMap registers a map state in Open. Entries are ordered by the bytes of their
// encoded keys; see [OrderedInt64Codec]. The version of the codec of the keys cannot
// change.
func NewMap[K, V any](s *State, name string, key Codec[K], val Codec[V], opts ...StateOption) *Map[K, V] {
	codec := fmt.Sprintf("[%s.%d]%s", key.Name, key.Version, val.Name)
	return &Map[K, V]{rows: newRows(s, name, "map", codec, val.Version, opts), key: key, val: val}
}

func (m *Map[K, V]) sub(k K) ([]byte, error) {
	var err error
	if m.buf, err = m.key.Append(m.buf[:0], k); err != nil {
		return nil, fmt.Errorf("encode a key of state %q with codec %s: %w", m.rows.name, m.key.Name, err)
	}
	return m.buf, nil
}

// Get returns what the current key's map has for k, and whether it has anything.
func (m *Map[K, V]) Get(k K) (V, bool, error) {
	var zero V
	sub, err := m.sub(k)
	if err != nil {
		return zero, false, err
	}
	payload, version, ok, err := m.rows.get(sub)
	if err != nil || !ok {
		return zero, false, err
	}
	v, err := m.decode(payload, version)
	return v, err == nil, err
}

func (m *Map[K, V]) decode(payload []byte, version uint8) (V, error) {
	v, err := m.val.Decode(payload, version)
	if err != nil {
		return v, fmt.Errorf("decode state %q with codec %s: %w", m.rows.name, m.val.Name, err)
	}
	return v, nil
}

func (m *Map[K, V]) decodeKey(sub []byte) (K, error) {
	k, err := m.key.Decode(sub, m.key.Version)
	if err != nil {
		return k, fmt.Errorf("decode a key of state %q with codec %s: %w", m.rows.name, m.key.Name, err)
	}
	return k, nil
}

// Put sets what the current key's map has for k. It reads nothing.
func (m *Map[K, V]) Put(k K, v V) error {
	sub, err := m.sub(k)
	if err != nil {
		return err
	}
	return m.rows.put(sub, func(dst []byte) ([]byte, error) { return m.val.Append(dst, v) })
}

// Delete removes k from the current key's map.
func (m *Map[K, V]) Delete(k K) error {
	sub, err := m.sub(k)
	if err != nil {
		return err
	}
	return m.rows.remove(sub)
}

// Len returns how many entries the current key's map has. It visits all of them.
func (m *Map[K, V]) Len() (int, error) {
	n := 0
	err := m.rows.each(nil, func(string, []byte, uint8) error { n++; return nil })
	return n, err
}

// All iterates over the entries of the current key's map in the order of their keys.
// *err is set to nil, and to an error if one ends the iteration early. The loop may use
// the state, also the map itself and another current key: an entry that is removed
// before its turn does not come, one that is added may come or not.
func (m *Map[K, V]) All(err *error) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		*err = stopped(m.rows.each(nil, func(sub string, payload []byte, version uint8) error {
			k, err := m.decodeKey([]byte(sub))
			if err != nil {
				return err
			}
			v, err := m.decode(payload, version)
			if err == nil && !yield(k, v) {
				err = errStop
			}
			return err
		}))
	}
}

// stopped returns err unless it says that a scan was ended on purpose.
func stopped(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// Clear removes all entries of the current key's map. It visits all of them.
func (m *Map[K, V]) Clear() error { return m.rows.clear() }

// Scan calls fn for each entry of each key of a view, ordered by key group, key and
// entry.
func (m *Map[K, V]) Scan(view View, fn func(key []tuple.Value, k K, v V) error) error {
	return m.rows.scan(view, func(key []tuple.Value, sub, payload []byte, version uint8) error {
		k, err := m.decodeKey(sub)
		if err != nil {
			return err
		}
		v, err := m.decode(payload, version)
		if err != nil {
			return err
		}
		return fn(key, k, v)
	})
}
