package txn

import (
	"strings"

	"github.com/isobar-io/isobar/tuple"
)

// Value is a state that holds one value for each key. Values are copied on Set and
// on Get, so that nothing a caller keeps can change the state.
type Value[T any] struct {
	t *table[T]
	x *expiring[T] // instead of t, with a TTL
}

// NewValue registers a value state in Open.
func NewValue[T any](s *State, name string, c Codec[T], opts ...StateOption) *Value[T] {
	kind, ttl := s.optionsOf(name, "value", opts)
	if ttl > 0 {
		return &Value[T]{x: newExpiring(s, name, kind, c.Version, c, ttl)}
	}
	return &Value[T]{t: newTable(s, name, kind, c.Version, c)}
}

func newTable[T any](s *State, name, kind string, first byte, c Codec[T]) *table[T] {
	t := &table[T]{
		s: s, name: name, first: first, codec: c, index: newIndex(),
		aggregate: strings.HasPrefix(kind, "aggregate"),
		plain:     c.Clone == nil && c.Size == nil,
	}
	t.id = s.register(StateMeta{Name: name, Kind: kind, Codec: c.Name, Version: c.Version}, t)
	return t
}

// Get returns the current key's value, and whether it has one.
func (v *Value[T]) Get() (T, bool, error) {
	if v.x != nil {
		return v.x.get()
	}
	e, err := v.t.load()
	if err != nil || e.flags&flagPresent == 0 {
		var zero T
		return zero, false, err
	}
	return v.t.clone(e.val), true, nil
}

// Set gives the current key a value.
func (v *Value[T]) Set(val T) error {
	if v.x != nil {
		return v.x.set(val)
	}
	e, err := v.t.load()
	if err != nil {
		return err
	}
	v.t.replace(e, v.t.clone(val))
	return nil
}

// Delete takes the current key's value away.
func (v *Value[T]) Delete() error {
	if v.x != nil {
		return v.x.t.delete()
	}
	return v.t.delete()
}

// Scan calls fn for each key of a view, ordered by key group and key.
func (v *Value[T]) Scan(view View, fn func(key []tuple.Value, val T) error) error {
	if v.x != nil {
		return v.x.t.scan(view, v.x.unexpired(fn))
	}
	return v.t.scan(view, fn)
}

// ScanPrefix calls fn for each key of this task whose first fields are prefix, ordered
// by key group and key, with its value as it is now, in the open batch. An empty prefix
// stands for every key. The tasks of a component hold different keys, so that only all
// of them together see every key of a prefix. fn may use the state; whether it is
// called for a key that it has added is open. The current key stays what it was.
//
// It costs a look at every key in memory and, for each key group of the task, a search
// in its store.
func (v *Value[T]) ScanPrefix(prefix []tuple.Value, fn func(key []tuple.Value, val T) error) error {
	if v.x != nil {
		return v.x.t.scanPrefix(prefix, v.x.unexpired(fn))
	}
	return v.t.scanPrefix(prefix, fn)
}

// Aggregate is a state that combines everything added to a key.
type Aggregate[T any] struct {
	t       *table[T]
	x       *expiring[T] // instead of t, with a TTL; t is then empty and not in use
	combine func(a, b T) T
}

// NewAggregate registers an aggregate state in Open.
func NewAggregate[T any](s *State, name string, a Aggregator[T], opts ...StateOption) *Aggregate[T] {
	kind, ttl := s.optionsOf(name, "aggregate", opts)
	if ttl > 0 {
		return &Aggregate[T]{new(table[T]), newExpiring(s, name, kind, a.Kind, a.Codec, ttl), a.Combine}
	}
	t := newTable(s, name, kind, a.Kind, a.Codec)
	if a.merges() {
		t.merge, s.merges = a.Combine, true
	}
	return &Aggregate[T]{t, nil, a.Combine}
}

// Add combines val into the current key's value.
func (a *Aggregate[T]) Add(val T) error {
	if a.x != nil {
		return a.x.add(val, a.combine)
	}
	t := a.t
	e, err := t.loadToAdd()
	if err != nil {
		return err
	}
	t.touch(e)
	if e.flags&flagPresent != 0 {
		val = a.combine(e.val, val)
	}
	if t.plain {
		e.val = val
		e.flags |= flagPresent
		return nil
	}
	t.replace(e, t.clone(val))
	return nil
}

// Get returns the current key's value, and whether anything was added.
func (a *Aggregate[T]) Get() (T, bool, error) {
	if a.x != nil {
		return a.x.get()
	}
	e, err := a.t.load()
	if err != nil || e.flags&flagPresent == 0 {
		var zero T
		return zero, false, err
	}
	return a.t.clone(e.val), true, nil
}

// Scan calls fn for each key of a view, ordered by key group and key.
func (a *Aggregate[T]) Scan(view View, fn func(key []tuple.Value, val T) error) error {
	if a.x != nil {
		return a.x.t.scan(view, a.x.unexpired(fn))
	}
	return a.t.scan(view, fn)
}

func (t *table[T]) clone(v T) T {
	if t.codec.Clone == nil {
		return v
	}
	return t.codec.Clone(v)
}

func (t *table[T]) replace(e *entry[T], val T) {
	t.touch(e)
	t.s.held -= t.size(e)
	e.val = val
	e.flags |= flagPresent
	t.s.held += t.size(e)
}

// delete takes the current key's value away.
func (t *table[T]) delete() error {
	e, err := t.load()
	if err != nil || e.flags&flagPresent == 0 {
		return err
	}
	t.remove(e)
	return nil
}

// remove takes away the value of an entry that has one.
func (t *table[T]) remove(e *entry[T]) {
	t.touch(e)
	t.drop(e)
}

// drop lets an entry have no value.
func (t *table[T]) drop(e *entry[T]) {
	t.s.held -= t.size(e)
	var zero T
	e.val = zero
	e.flags &^= flagPresent
}

func (t *table[T]) scan(view View, fn func(key []tuple.Value, val T) error) error {
	return view.Scan(t.name, func(key, raw []byte) error {
		vals, err := tuple.DecodeKey(key)
		if err != nil {
			return err
		}
		v, err := t.decode(raw)
		if err != nil {
			return err
		}
		return fn(vals, v)
	})
}
