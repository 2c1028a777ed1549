package txn

import "github.com/isobar-io/isobar/tuple"

// Value is a state that holds one value for each key. Values are copied on Set and
// on Get, so that nothing a caller keeps can change the state.
type Value[T any] struct{ t *table[T] }

// NewValue registers a value state in Open.
func NewValue[T any](s *State, name string, c Codec[T]) *Value[T] {
	return &Value[T]{newTable(s, name, "value", c.Version, c)}
}

func newTable[T any](s *State, name, kind string, first byte, c Codec[T]) *table[T] {
	t := &table[T]{
		s: s, name: name, first: first, codec: c,
		aggregate: kind == "aggregate",
		plain:     c.Clone == nil && c.Size == nil,
	}
	t.id = s.register(StateMeta{Name: name, Kind: kind, Codec: c.Name, Version: c.Version}, t)
	return t
}

// Get returns the current key's value, and whether it has one.
func (v *Value[T]) Get() (T, bool, error) {
	e, err := v.t.load()
	if err != nil || e.flags&flagPresent == 0 {
		var zero T
		return zero, false, err
	}
	return v.t.clone(e.val), true, nil
}

// Set gives the current key a value.
func (v *Value[T]) Set(val T) error {
	e, err := v.t.load()
	if err != nil {
		return err
	}
	v.t.replace(e, v.t.clone(val))
	return nil
}

// Delete takes the current key's value away.
func (v *Value[T]) Delete() error {
	e, err := v.t.load()
	if err != nil || e.flags&flagPresent == 0 {
		return err
	}
	v.t.varlen -= v.t.size(e)
	var zero T
	e.val = zero
	e.flags &^= flagPresent
	v.t.touch(e)
	return nil
}

// Scan calls fn for each key of a view, ordered by key group and key.
func (v *Value[T]) Scan(view View, fn func(key []tuple.Value, val T) error) error {
	return v.t.scan(view, fn)
}

// Aggregate is a state that combines everything added to a key.
type Aggregate[T any] struct {
	t       *table[T]
	combine func(a, b T) T
}

// NewAggregate registers an aggregate state in Open.
func NewAggregate[T any](s *State, name string, a Aggregator[T]) *Aggregate[T] {
	return &Aggregate[T]{newTable(s, name, "aggregate", a.Kind, a.Codec), a.Combine}
}

// Add combines val into the current key's value.
func (a *Aggregate[T]) Add(val T) error {
	e, err := a.t.load()
	if err != nil {
		return err
	}
	if e.flags&flagPresent != 0 {
		val = a.combine(e.val, val)
	}
	if a.t.plain {
		e.val = val
		e.flags |= flagPresent
		a.t.touch(e)
		return nil
	}
	a.t.replace(e, a.t.clone(val))
	return nil
}

// Get returns the current key's value, and whether anything was added.
func (a *Aggregate[T]) Get() (T, bool, error) {
	e, err := a.t.load()
	if err != nil || e.flags&flagPresent == 0 {
		var zero T
		return zero, false, err
	}
	return a.t.clone(e.val), true, nil
}

// Scan calls fn for each key of a view, ordered by key group and key.
func (a *Aggregate[T]) Scan(view View, fn func(key []tuple.Value, val T) error) error {
	return a.t.scan(view, fn)
}

func (t *table[T]) clone(v T) T {
	if t.codec.Clone == nil {
		return v
	}
	return t.codec.Clone(v)
}

func (t *table[T]) replace(e *entry[T], val T) {
	t.varlen -= t.size(e)
	e.val = val
	e.flags |= flagPresent
	t.varlen += t.size(e)
	t.touch(e)
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
