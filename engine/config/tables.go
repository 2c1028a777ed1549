package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Table is a set of keys. The functions of this package are about the one of topologies;
// those who have more keys make one of their own. It is immutable.
type Table struct {
	keys   []Key
	byName map[string]*Key
}

var topologies = NewTable(table)

// NewTable returns a table of keys, in that order. Names must differ.
func NewTable(keys []Key) *Table {
	t := &Table{keys: slices.Clone(keys), byName: make(map[string]*Key, len(keys))}
	for i := range t.keys {
		k := &t.keys[i]
		if t.byName[k.Name] != nil {
			panic("config: the key " + k.Name + " is twice in a table")
		}
		t.byName[k.Name] = k
	}
	return t
}

// Keys returns the keys in their order.
func (t *Table) Keys() []Key { return slices.Clone(t.keys) }

// Lookup returns the key of a name; the error for any other name says what would be
// right.
func (t *Table) Lookup(name string) (Key, error) {
	if k, ok := t.byName[name]; ok {
		return *k, nil
	}
	return Key{}, t.unknown(name)
}

// Of returns the layer of values that were set from origin; see [Of].
func (t *Table) Of(origin string, values map[string]any) (Values, error) {
	set := make(map[string]entry, len(values))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := t.acceptNamed(name, values[name]); err != nil {
			errs = append(errs, err)
			continue
		}
		set[name] = entry{values[name], origin}
	}
	return t.layer(set, errs)
}

// OfJSON returns the layer of values that encoding/json has read into a map, where all
// numbers are float64.
func OfJSON(origin string, values map[string]any) (Values, error) {
	whole := maps.Clone(values)
	for name, v := range whole {
		if f, ok := v.(float64); ok && !isUser(name) && f == math.Trunc(f) && math.Abs(f) <= noMax {
			whole[name] = int(f)
		}
	}
	return topologies.Of(origin, whole)
}

// Environment returns the layer of environment variables: topology.key.groups is
// PREFIX_TOPOLOGY_KEY_GROUPS. A variable with the prefix that is no key and not among
// others is an error, but for what Kubernetes sets for its services. Keys that begin with
// "user." cannot be set so.
func (t *Table) Environment(prefix string, environ []string, others ...string) (Values, error) {
	byVariable := make(map[string]*Key, len(t.keys))
	for i := range t.keys {
		byVariable[variable(prefix, t.keys[i].Name)] = &t.keys[i]
	}
	set := map[string]entry{}
	var errs []error
	for _, assignment := range environ {
		name, text, _ := strings.Cut(assignment, "=")
		k := byVariable[name]
		switch {
		case k != nil:
			v, err := k.parse(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
			set[k.Name] = entry{v, "$" + name}
		case strings.HasPrefix(name, prefix+"_") && !slices.Contains(others, name) && !ofService.MatchString(name):
			near := Nearest(name, slices.Sorted(maps.Keys(byVariable)))
			errs = append(errs, fmt.Errorf("environment variable %s is no configuration key, did you mean %s?", name, near))
		}
	}
	return t.layer(set, errs)
}

// ofService matches what Kubernetes puts into the environment for a service.
var ofService = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?$`)

func variable(prefix, key string) string {
	return prefix + "_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func (t *Table) layer(set map[string]entry, errs []error) (Values, error) {
	if len(errs) > 0 {
		return Values{}, errors.Join(errs...)
	}
	return Values{table: t, set: set}, nil
}

func (t *Table) acceptNamed(name string, v any) error {
	if isUser(name) {
		return nil
	}
	k, ok := t.byName[name]
	if !ok {
		return t.unknown(name)
	}
	return k.accept(v)
}

// ofDaemons begin the keys of nimbus and the supervisors.
var ofDaemons = []string{"nimbus.", "supervisor.", "storm.", "nats.", "isolation."}

// unknown is the error for a name that is not in the table.
func (t *Table) unknown(name string) error {
	if _, ok := notYet[name]; ok {
		return fmt.Errorf("%s is not supported yet", name)
	}
	if t == topologies && slices.ContainsFunc(ofDaemons, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return fmt.Errorf("%s is not a configuration key of a topology: keys that begin so are set for the daemons of a cluster", name)
	}
	near, distance := t.nearest(name)
	switch _, later := notYet[near]; {
	case !isNear(name, near, distance):
		if near = t.with(name); near != "" {
			return fmt.Errorf("%s is not a configuration key, did you mean %s?", name, near)
		}
		return fmt.Errorf("%s is not a configuration key, see: isobar config (keys of your own begin with %q)", name, userPrefix)
	case later:
		return fmt.Errorf("%s is not a configuration key; the nearest, %s, is not supported yet", name, near)
	}
	return fmt.Errorf("%s is not a configuration key, did you mean %s?", name, near)
}

// isNear reports whether so few edits may be a slip: up to a third of the letters, without a
// first part that both have.
func isNear(name, near string, distance int) bool {
	length := max(len(name), len(near))
	if first, _, parts := strings.Cut(name, "."); parts && strings.HasPrefix(near, first+".") {
		length -= len(first) + 1
	}
	return 3*distance <= length
}

// with returns the first key that has all words of a name but the first one, as they are, or "".
func (t *Table) with(name string) string {
	_, words, _ := strings.Cut(name, ".")
	for _, k := range t.keys {
		if len(words) > 3 && strings.Contains("."+k.Name+".", "."+words+".") {
			return k.Name
		}
	}
	return ""
}

// nearest returns the known name that takes the fewest edits to get to. A missing
// first part ("max.pending.batch") is one edit. Names that act win a tie.
func (t *Table) nearest(name string) (near string, distance int) {
	distance = math.MaxInt
	consider := func(candidate string) {
		_, rest, _ := strings.Cut(candidate, ".")
		if d := min(edits(name, candidate), 1+edits(name, rest)); d < distance {
			near, distance = candidate, d
		}
	}
	for _, k := range t.keys {
		consider(k.Name)
	}
	for _, later := range notYetNames {
		consider(later)
	}
	return near, distance
}
