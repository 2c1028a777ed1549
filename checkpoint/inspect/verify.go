package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/internal/parallel"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Finding is what a verification says of one object.
type Finding struct {
	Object string
	Size   int64
	Of     []checkpoint.Ref // the checkpoints that name it, of those that were verified
	Err    error            // what is wrong with it; nil if nothing is
}

// width is how many objects are read at a time, each into a temporary file.
const width = 8

// Verify reads every object that the checkpoints of refs name, once, and reports of each
// whether it is what was recorded: a manifest of its size and checksum whose files fit
// its tasks; files of their size and checksum that are tables whose rows can be read and
// are of the key groups that they should be of. Several are read at a time; the reports
// come in the order in which they are named, on the caller's goroutine. Other errors than
// damage and absence end it and are returned.
func Verify(ctx context.Context, s checkpoint.Store, refs []checkpoint.Ref, report func(Finding)) error {
	var objects []*object
	named := map[checkpoint.FileRef]*object{}
	for ref, r := range parallel.Each(ctx, width, refs, func(ctx context.Context, ref checkpoint.Ref) described {
		return describe(ctx, s, ref)
	}) {
		m, err := r.manifest, r.err
		if err != nil && !Damage(err) {
			return err
		}
		report(Finding{Object: ref.Manifest, Size: ref.Size, Of: []checkpoint.Ref{ref}, Err: err})
		if m == nil {
			continue
		}
		for _, t := range m.Tasks {
			for _, f := range t.Files {
				as := checkpoint.FileRef{Name: f.Name, Size: f.Size, CRC32C: f.CRC32C}
				o := named[as]
				if o == nil {
					o = &object{ref: as, groups: m.KeyGroups, states: map[uint16]layout{}}
					named[as] = o
					objects = append(objects, o)
				}
				if err := o.expect(ref, m, t, f); err != nil {
					return err
				}
			}
		}
	}
	for o, err := range parallel.Each(ctx, width, objects, func(ctx context.Context, o *object) error {
		return o.verify(ctx, s)
	}) {
		if err != nil && !Damage(err) {
			return err
		}
		report(Finding{Object: o.ref.Name, Size: o.ref.Size, Of: o.of, Err: err})
	}
	return ctx.Err()
}

// described is a manifest, if it could be read, and what is wrong with it.
type described struct {
	manifest *checkpoint.Manifest
	err      error
}

func describe(ctx context.Context, s checkpoint.Store, ref checkpoint.Ref) described {
	m, err := checkpoint.ReadManifest(ctx, s, ref)
	if err == nil {
		err = checkShares(m)
	}
	return described{m, err}
}

// Damage reports whether an error says that something stored is damaged, missing or of a
// later format.
func Damage(err error) bool {
	return errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrNewer)
}

// checkShares: no file counts for key groups that its task does not own.
func checkShares(m *checkpoint.Manifest) error {
	var errs []error
	for _, t := range m.Tasks {
		from, to := tuple.GroupRange(t.Index, m.KeyGroups, m.Components[t.Component].Parallelism)
		for _, f := range t.Files {
			if f.GroupFrom < from || f.GroupTo > to {
				errs = append(errs, fmt.Errorf("%w: task %s/%d owns the key groups [%d,%d), its file %s counts for [%d,%d)",
					checkpoint.ErrDamaged, t.Component, t.Index, from, to, f.Name, f.GroupFrom, f.GroupTo))
			}
		}
	}
	return errors.Join(errs...)
}

// object is a file and what is expected of it.
type object struct {
	ref    checkpoint.FileRef // name, size and checksum
	of     []checkpoint.Ref
	groups int
	base   bool
	states map[uint16]layout
	// within are the key groups that all its rows are of: known for a file that has been
	// written by the generation that lists it, as no rescale can lie between.
	within []span
}

type span struct{ from, to int }

func (o *object) expect(ref checkpoint.Ref, m *checkpoint.Manifest, t checkpoint.TaskSnapshot, f checkpoint.FileRef) error {
	if !slices.Contains(o.of, ref) {
		o.of = append(o.of, ref)
	}
	o.base = f.Base
	if f.Generation == m.Generation {
		o.within = append(o.within, span{f.GroupFrom, f.GroupTo})
	}
	for _, meta := range t.States {
		l, err := layoutOf(meta)
		if err != nil {
			return fmt.Errorf("checkpoint %s: component %q: %w", ref, t.Component, err)
		}
		o.states[meta.ID] = l
	}
	return nil
}

// verify reads the object once, into a temporary file.
func (o *object) verify(ctx context.Context, s checkpoint.Store) (err error) {
	local, err := Fetch(ctx, s, o.ref)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	table, err := pebblestate.OpenTable(ctx, local, o.ref)
	if err == nil {
		err = errors.Join(table.Each(ctx, o.check), table.Close())
	}
	if err != nil && ctx.Err() == nil && !Damage(err) { // its bytes are right, so they say it
		err = fmt.Errorf("%w: %w", checkpoint.ErrDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("read object %s as a table of state: %w", o.ref.Name, err)
	}
	return nil
}

func (o *object) check(r txn.Record) error {
	group, id, _, ok := txn.SplitStateKey(r.Key)
	if !ok {
		return fmt.Errorf("%x is too short for a state key", r.Key)
	}
	if group >= o.groups {
		return fmt.Errorf("row %x is of key group %d, there are %d", r.Key, group, o.groups)
	}
	for _, w := range o.within {
		if group < w.from || group >= w.to {
			return fmt.Errorf("row %x is of key group %d, the file is one of [%d,%d)", r.Key, group, w.from, w.to)
		}
	}
	if o.base && (r.Delete || r.Merge) {
		return fmt.Errorf("row %x of a base deletes or merges", r.Key)
	}
	l, known := o.states[id]
	if r.Delete || !known {
		return nil
	}
	if r.Merge && (l.base != "aggregate" || l.ttl) {
		return fmt.Errorf("row %x is to be merged, its state is of kind %s", r.Key, l.base)
	}
	if r.Merge {
		cut := txn.Cut{Records: []txn.Record{r}}
		if err := checkpoint.CheckMerges(&cut); err != nil {
			return err
		}
	}
	_, err := l.entry(r.Key, r.Value)
	return err
}
