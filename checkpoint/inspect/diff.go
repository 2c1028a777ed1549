package inspect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
)

// Change is an entry that two checkpoints do not have alike. An entry that one of them
// does not have is nil.
type Change struct {
	Of            *State // of the checkpoint that has the entry; of the later one if both do
	Before, After *Entry
}

// Diff calls fn for each entry that is not the same in a and b, state by state. States
// are the same by component and name. An entry differs also if only its expiry does.
func Diff(ctx context.Context, a, b *Checkpoint, fn func(Change) error) error {
	if a.Manifest.KeyGroups != b.Manifest.KeyGroups {
		return fmt.Errorf("the checkpoints have %d and %d key groups: their keys cannot be compared",
			a.Manifest.KeyGroups, b.Manifest.KeyGroups)
	}
	before, err := a.States()
	if err != nil {
		return err
	}
	after, err := b.States()
	if err != nil {
		return err
	}
	same := func(s *State) func(*State) bool {
		return func(t *State) bool { return s.Component == t.Component && s.Meta.Name == t.Meta.Name }
	}
	for _, s := range after {
		var old *State
		if i := slices.IndexFunc(before, same(s)); i >= 0 {
			old = before[i]
		}
		if err := diffStates(ctx, old, s, fn); err != nil {
			return err
		}
	}
	for _, s := range before {
		if !slices.ContainsFunc(after, same(s)) {
			if err := diffStates(ctx, s, nil, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// diffStates goes through two versions of a state side by side; one of them may be nil.
func diffStates(ctx context.Context, a, b *State, fn func(Change) error) error {
	before, stopBefore := side(ctx, a)
	defer stopBefore()
	after, stopAfter := side(ctx, b)
	defer stopAfter()
	x, y := before(), after()
	for {
		if err := cmp.Or(x.err, y.err); err != nil {
			return err
		}
		var order int
		switch {
		case !x.there && !y.there:
			return nil
		case !x.there:
			order = 1
		case !y.there:
			order = -1
		default:
			order = cmp.Or(bytes.Compare(x.group(), y.group()), bytes.Compare(x.rest(), y.rest()))
		}
		var err error
		switch {
		case order < 0:
			err = fn(Change{Of: a, Before: &x.entry})
			x = before()
		case order > 0:
			err = fn(Change{Of: b, After: &y.entry})
			y = after()
		default:
			if !bytes.Equal(x.value, y.value) {
				err = fn(Change{Of: b, Before: &x.entry, After: &y.entry})
			}
			x, y = before(), after()
		}
		if err != nil {
			return err
		}
	}
}

// seen is a row of one side, and its entry; valid until the next one.
type seen struct {
	row
	entry Entry
	there bool
	err   error
}

// The id of the state, between the two, may not be the same on both sides.
func (s *seen) group() []byte { return s.key[:2] }
func (s *seen) rest() []byte  { return s.key[4:] }

// side returns a function that goes to the next row of a state that stands for an entry.
func side(ctx context.Context, s *State) (next func() *seen, stop func()) {
	if s == nil {
		return func() *seen { return &seen{} }, func() {}
	}
	pull, stop := iter.Pull2(s.rows(ctx, 0, s.of.Manifest.KeyGroups, []keyRange{{}}))
	return func() *seen {
		for {
			r, err, ok := pull()
			if !ok || err != nil {
				return &seen{err: s.errorf(err)}
			}
			e, counts, err := s.entry(r)
			if err != nil {
				return &seen{err: s.errorf(err)}
			}
			if counts {
				return &seen{row: r, entry: e, there: true}
			}
		}
	}, stop
}
