// Package inspect looks into checkpoints where they are kept, without the code of the
// topology that took them and without a local store: it reads their keyed state, compares
// two of them, and verifies what they name.
package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Checkpoint is one checkpoint to look into.
type Checkpoint struct {
	Manifest *checkpoint.Manifest
	objects  checkpoint.RangeReader
}

// New returns a checkpoint that is kept in s.
func New(s checkpoint.Store, m *checkpoint.Manifest) (*Checkpoint, error) {
	if m.Table != checkpoint.TableFormat {
		return nil, fmt.Errorf("checkpoint %d.%d: its state files have format %q, this build reads %q",
			m.Generation, m.Batch, m.Table, checkpoint.TableFormat)
	}
	return &Checkpoint{m, checkpoint.Ranges(s)}, nil
}

// State is one named state of a component in a checkpoint.
type State struct {
	Component string
	Meta      txn.StateMeta
	// Expired is to be set for entries that had expired when the checkpoint was taken to
	// be seen too.
	Expired bool

	of     *Checkpoint
	layout layout
}

// States returns all states, by component and name, without those that were dropped.
func (c *Checkpoint) States() ([]*State, error) {
	metas := map[string]map[string]txn.StateMeta{}
	for _, t := range c.Manifest.Tasks {
		if metas[t.Component] == nil {
			metas[t.Component] = map[string]txn.StateMeta{}
		}
		for _, m := range t.States {
			if m.Dropped() {
				continue
			}
			if other, ok := metas[t.Component][m.Name]; ok && other != m {
				return nil, fmt.Errorf("%w: the tasks of component %q disagree about state %q: %+v and %+v",
					checkpoint.ErrDamaged, t.Component, m.Name, other, m)
			}
			metas[t.Component][m.Name] = m
		}
	}
	var all []*State
	for _, component := range slices.Sorted(maps.Keys(metas)) {
		for _, name := range slices.Sorted(maps.Keys(metas[component])) {
			meta := metas[component][name]
			layout, err := layoutOf(meta)
			if err != nil {
				return nil, fmt.Errorf("component %q: %w", component, err)
			}
			all = append(all, &State{Component: component, Meta: meta, of: c, layout: layout})
		}
	}
	return all, nil
}

// State returns a state by name; without a name the only one that the component has.
// An error says which ones there are.
func (c *Checkpoint) State(component, name string) (*State, error) {
	all, err := c.States()
	if err != nil {
		return nil, err
	}
	var components, names []string
	var found []*State
	for _, s := range all {
		if !slices.Contains(components, s.Component) {
			components = append(components, s.Component)
		}
		if s.Component != component {
			continue
		}
		names = append(names, s.Meta.Name)
		if name == "" || s.Meta.Name == name {
			found = append(found, s)
		}
	}
	where := fmt.Sprintf("checkpoint %d.%d", c.Manifest.Generation, c.Manifest.Batch)
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%s holds no keyed state of component %q, only of %q", where, component, components)
	case len(found) == 0:
		return nil, fmt.Errorf("%s: component %q has no state %q; it has %q", where, component, name, names)
	case len(found) > 1:
		return nil, fmt.Errorf("%s: component %q has several states, name one: %q", where, component, names)
	}
	return found[0], nil
}

// files returns all files of a component.
func (c *Checkpoint) files(component string) []checkpoint.FileRef {
	var files []checkpoint.FileRef
	for _, t := range c.Manifest.Tasks {
		if t.Component == component {
			files = append(files, t.Files...)
		}
	}
	return files
}

// Get calls fn for what a key has: its value, or the entries of its map, the elements of
// its list, its timers, in their order. It reads little of a few files, but for timers a
// key group. The entry is valid during the call.
func (s *State) Get(ctx context.Context, key []tuple.Value, fn func(e *Entry) error) error {
	encoded, err := tuple.AppendKey(nil, key...)
	if err != nil {
		return err
	}
	hash, ok := tuple.HashKey(key)
	if !ok {
		return tuple.ErrKeyKind
	}
	group := tuple.KeyGroup(hash, s.of.Manifest.KeyGroups)
	if s.layout.base == "value" || s.layout.base == "aggregate" {
		chain := pebblestate.NewChain(checkpoint.ClipChain(s.of.files(s.Component), group, group+1), s.of.objects)
		stateKey := txn.AppendStateKey(nil, group, s.Meta.ID, encoded)
		value, err := chain.Get(ctx, stateKey)
		if err != nil || value == nil {
			return s.errorf(err)
		}
		return s.errorf(s.each(oneRow(stateKey, value), fn))
	}
	ranges := []keyRange{{}}
	if s.layout.base != "timer" {
		delimited := tuple.AppendDelimited(nil, encoded)
		ranges = []keyRange{{delimited, following(bytes.Clone(delimited))}}
	}
	return s.errorf(s.each(s.rows(ctx, group, group+1, ranges), func(e *Entry) error {
		if !bytes.Equal(e.Key, encoded) {
			return nil
		}
		return fn(e)
	}))
}

func oneRow(key, value []byte) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) { yield(row{key, value}, nil) }
}

// Scan calls fn for each entry of the keys that begin as prefix says, ordered by key
// group and key, of timers by their moments. The entry is valid during the call.
func (s *State) Scan(ctx context.Context, prefix Prefix, fn func(e *Entry) error) error {
	ranges, err := prefix.ranges(s.layout.base)
	if err != nil {
		return err
	}
	return s.errorf(s.each(s.rows(ctx, 0, s.of.Manifest.KeyGroups, ranges), func(e *Entry) error {
		if ok, err := prefix.fits(e.Key); !ok || err != nil {
			return err
		}
		return fn(e)
	}))
}

// Counts says how much a state holds.
type Counts struct {
	Keys    int64 `json:"keys"`    // of timers not known: 0
	Entries int64 `json:"entries"` // of maps and lists more than keys
}

// Count counts the keys that begin as prefix says, and their entries. It reads all of
// them.
func (s *State) Count(ctx context.Context, prefix Prefix) (n Counts, err error) {
	var last []byte
	err = s.Scan(ctx, prefix, func(e *Entry) error {
		n.Entries++
		if s.layout.base != "timer" && (n.Keys == 0 || !bytes.Equal(e.Key, last)) {
			n.Keys++
			last = append(last[:0], e.Key...)
		}
		return nil
	})
	return n, err
}

// each calls fn for the rows that stand for an entry.
func (s *State) each(rows iter.Seq2[row, error], fn func(e *Entry) error) error {
	for r, err := range rows {
		if err != nil {
			return err
		}
		e, counts, err := s.entry(r)
		if err != nil {
			return err
		}
		if !counts {
			continue
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
	return nil
}

// entry returns what a row stands for. counts is false if that is nothing: it has
// expired, or is the length of a list.
func (s *State) entry(r row) (e Entry, counts bool, err error) {
	e, err = s.layout.entry(r.key, r.value)
	expired := e.Expires != 0 && e.Expires <= s.of.Manifest.UnixMilli
	return e, !e.length && (s.Expired || !expired), err
}

// row is a state key and its value, valid until the next one.
type row struct{ key, value []byte }

// rows goes through the rows of key groups whose keys are in one of ranges, which rise,
// in the order of the state keys.
func (s *State) rows(ctx context.Context, from, to int, ranges []keyRange) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		tasks := s.of.Manifest.Components[s.Component].Parallelism
		for t := range tasks {
			first, end := tuple.GroupRange(t, s.of.Manifest.KeyGroups, tasks)
			if first, end = max(first, from), min(end, to); first < end && !s.rowsOf(ctx, first, end, ranges, yield) {
				return
			}
		}
	}
}

// rowsOf is rows for the groups of one task: as many files are open at once as the task
// has deltas. It returns false if no more are wanted.
func (s *State) rowsOf(ctx context.Context, from, to int, ranges []keyRange, yield func(row, error) bool) (more bool) {
	rows := pebblestate.NewChain(checkpoint.ClipChain(s.of.files(s.Component), from, to), s.of.objects).Rows(ctx)
	defer func() {
		if err := errors.Join(rows.Err(), rows.Close()); err != nil && more {
			more = yield(row{}, err) && false
		}
	}()
	var at, end []byte
	for group := from; group < to; group++ {
		for _, r := range ranges {
			at = txn.AppendStateKey(at[:0], group, s.Meta.ID, r.from)
			if end = txn.AppendStateKey(end[:0], group, s.Meta.ID, r.to); r.to == nil {
				end = following(end)
			}
			for ok := rows.SeekGE(at); ok && (end == nil || bytes.Compare(rows.Key(), end) < 0); ok = rows.Next() {
				if !yield(row{rows.Key(), rows.Value()}, nil) {
					return false
				}
			}
			if rows.Err() != nil {
				return true
			}
		}
	}
	return true
}

func (s *State) errorf(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("state %q of component %q in checkpoint %d.%d: %w",
		s.Meta.Name, s.Component, s.of.Manifest.Generation, s.of.Manifest.Batch, err)
}

// layout is what the kind and the codec of a state say about its rows.
type layout struct {
	base   string // the kind without "+ttl"
	ttl    bool
	mapKey decoder // of a map
	value  decoder
}

const ttlSuffix = "+ttl"

func layoutOf(m txn.StateMeta) (layout, error) {
	var l layout
	l.base, l.ttl = strings.CutSuffix(m.Kind, ttlSuffix)
	codec := m.Codec
	switch l.base {
	case "value", "aggregate", "list", "timer":
	case "map":
		var err error
		if l.mapKey, codec, err = mapCodecs(codec); err != nil {
			return l, fmt.Errorf("state %q: %w", m.Name, err)
		}
	default:
		return l, fmt.Errorf("state %q is of kind %q, which this build does not know", m.Name, m.Kind)
	}
	l.value = decoderOf(codec)
	return l, nil
}
