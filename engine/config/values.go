package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Values holds the values of one or several layers. It is immutable. A key that is
// not set in it has its default, so the zero Values is all defaults.
type Values struct {
	table *Table // nil: that of topologies
	set   map[string]entry
}

func (v Values) keys() *Table {
	if v.table == nil {
		return topologies
	}
	return v.table
}

type entry struct {
	value  any // bool, int or string; of a user key, anything
	origin string
}

// Origins of values, as [Values.Origin] gives them; that of a file is its path.
const (
	FromDefault  = "default"
	FromTopology = "topology"
	FromFlag     = "-c"
)

// fromComponent is the origin of a value that component id sets for itself.
func fromComponent(id string) string { return "component " + id }

// Defaults returns the values of a run that was given none.
func Defaults() Values { return Values{} }

// Of returns the layer that a topology's code sets. The values are bool, int or
// string as the table says; of user keys anything that must not change after. All
// that is wrong with them is in one error.
func Of(values map[string]any) (Values, error) {
	v, err := topologies.Of(FromTopology, values)
	return v, prefixed("configuration of the topology", err)
}

// prefixed puts text before each of the errors that were joined.
func prefixed(text string, err error) error {
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = slices.Clone(joined.Unwrap())
	}
	for i := range errs {
		errs[i] = fmt.Errorf("%s: %w", text, errs[i])
	}
	return errors.Join(errs...)
}

// OfComponent returns the layer that component id sets for itself, which wins over
// all others. Only keys that Key.Component marks, and user keys, may be in it.
func OfComponent(id string, values map[string]any) (Values, error) {
	set := make(map[string]entry, len(values))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		err := topologies.acceptNamed(name, values[name])
		if err == nil && !isUser(name) && !topologies.byName[name].Component {
			err = fmt.Errorf("%s cannot be set for one component, only for the topology", name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("configuration of component %q: %w", id, err))
			continue
		}
		set[name] = entry{values[name], fromComponent(id)}
	}
	return topologies.layer(set, errs)
}

// Merge returns the layers on top of each other: a later one wins. The keys are those of
// the first layer's table that is not [Defaults].
func Merge(layers ...Values) Values {
	merged := Values{set: map[string]entry{}}
	for _, l := range layers {
		maps.Copy(merged.set, l.set)
		if merged.table == nil {
			merged.table = l.table
		}
	}
	return merged
}

func isUser(name string) bool {
	return strings.HasPrefix(name, userPrefix) && len(name) > len(userPrefix)
}

// Get returns the value of a key: its default where it is not set. ok is false for
// a key that is neither in the table nor a user key that was set. What a user key
// holds must not be changed.
func (v Values) Get(name string) (value any, ok bool) {
	if e, ok := v.set[name]; ok {
		return e.value, true
	}
	if k, ok := v.keys().byName[name]; ok {
		return k.Default, true
	}
	return nil, false
}

// Origin says where a key's value comes from: [FromDefault], [FromTopology],
// [FromFlag], the path of a file, or "component" and its id.
func (v Values) Origin(name string) string {
	if e, ok := v.set[name]; ok {
		return e.origin
	}
	return FromDefault
}

// Set yields the keys that were set, by name.
func (v Values) Set() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.set)) {
			if !yield(name, v.set[name].value) {
				return
			}
		}
	}
}

// All yields every key that has a value, in the order of the table and then the
// user keys by name.
func (v Values) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, k := range v.keys().keys {
			value, _ := v.Get(k.Name)
			if !yield(k.Name, value) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v.set)) {
			if isUser(name) && !yield(name, v.set[name].value) {
				return
			}
		}
	}
}

// Int returns the value of an Int key. Like Bool, String and Duration it panics if
// the table has no such key of that type.
func (v Values) Int(name string) int { return typed[int](v, name) }

// Bool returns the value of a Bool key.
func (v Values) Bool(name string) bool { return typed[bool](v, name) }

// String returns the value of a String key.
func (v Values) String(name string) string { return typed[string](v, name) }

// List returns the texts of a List key.
func (v Values) List(name string) []string { return split(v.String(name)) }

// split takes a List key's value apart. Spaces around commas do not count, nor do empty
// texts.
func split(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// Duration returns the value of an Int key that counts milliseconds or seconds.
func (v Values) Duration(name string) time.Duration {
	n := v.Int(name)
	unit := v.keys().byName[name].Unit
	if unit == 0 {
		panic(fmt.Sprintf("config: %s is not a duration", name))
	}
	return time.Duration(n) * unit
}

func typed[T any](v Values, name string) T {
	if _, err := v.keys().Lookup(name); err != nil {
		panic(fmt.Sprintf("config: %v", err))
	}
	value, _ := v.Get(name)
	t, ok := value.(T)
	if !ok {
		panic(fmt.Sprintf("config: %s is of type %T, not %T", name, value, t))
	}
	return t
}
