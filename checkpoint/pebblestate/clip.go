package pebblestate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// span is the key groups [from, to).
type span struct{ from, to int }

// bounds returns the first state key of the groups and the first one after them, which
// is nil if there are no groups after them.
func (s span) bounds() (lower, upper []byte) {
	if s.to < 1<<16 {
		upper = []byte{byte(s.to >> 8), byte(s.to)}
	}
	return []byte{byte(s.from >> 8), byte(s.from)}, upper
}

// localTable is a local file to ingest, with its first and last key. Its path is empty
// if none of its rows count.
type localTable struct {
	path              string
	smallest, largest []byte
}

func (t localTable) overlaps(u localTable) bool {
	return bytes.Compare(t.smallest, u.largest) <= 0 && bytes.Compare(u.smallest, t.largest) <= 0
}

// clip makes of the file at path one that can be ingested by a task: the same one, a new
// one that replaces it, or none. Of the groups that the task owns it holds those rows
// whose groups count, and no others; it may hold rows of other tasks' groups.
func (t tables) clip(ctx context.Context, path string, counts, owned span) (clipped localTable, err error) {
	f, err := vfs.Default.Open(path)
	if err != nil {
		return clipped, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return clipped, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, t.read)
	if err != nil {
		return clipped, errors.Join(err, readable.Close())
	}
	clipped, err = lookThrough(ctx, r, counts, owned)
	switch {
	case errors.Is(err, errStray):
		if clipped, err = t.copyGroups(ctx, r, counts, path+".clipped"); err == nil {
			err = os.Remove(path)
		}
	case err == nil && clipped.smallest == nil:
		err = os.Remove(path)
	case err == nil:
		clipped.path = path
	}
	return clipped, errors.Join(err, r.Close())
}

// errStray says that a table must be rewritten.
var errStray = errors.New("the table is of an older kind, or has rows that do not count among those of the task")

// lookThrough returns the bounds of a table, none if no row counts.
func lookThrough(ctx context.Context, r *sstable.Reader, counts, owned span) (found localTable, err error) {
	properties, err := r.ReadPropertiesBlock(ctx, nil)
	if err != nil {
		return found, err
	}
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	holds := func(s span) bool {
		if s.from >= s.to {
			return false
		}
		lower, upper := s.bounds()
		kv := it.SeekGE(lower, 0)
		return kv != nil && (upper == nil || bytes.Compare(kv.K.UserKey, upper) < 0)
	}
	if !holds(counts) {
		return found, it.Error()
	}
	if properties.MergerName != mergerName || holds(span{owned.from, counts.from}) || holds(span{counts.to, owned.to}) {
		return found, cmp.Or(it.Error(), errStray)
	}
	if kv := it.First(); kv != nil {
		found.smallest = bytes.Clone(kv.K.UserKey)
	}
	if kv := it.Last(); kv != nil {
		found.largest = bytes.Clone(kv.K.UserKey)
	}
	return found, cmp.Or(it.Error(), checkKey(found.smallest), checkKey(found.largest))
}

func checkKey(key []byte) error {
	_, err := groupOf(key)
	return err
}

// copyGroups writes the rows of the groups that count, deletions included, to a new
// table at path. Without any there is no file.
func (t tables) copyGroups(ctx context.Context, r *sstable.Reader, counts span, path string) (copied localTable, err error) {
	lower, upper := counts.bounds()
	it, err := r.NewIter(sstable.NoTransforms, lower, upper, sstable.AssertNoBlobHandles)
	if err != nil {
		return copied, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	kv := it.SeekGE(lower, 0)
	if kv == nil {
		return copied, it.Error()
	}
	w, err := t.create(path)
	if err != nil {
		return copied, err
	}
	copied = localTable{path: path, smallest: bytes.Clone(kv.K.UserKey)}
	for ; kv != nil && err == nil; kv = it.Next() {
		var value []byte
		if value, _, err = kv.Value(nil); err == nil {
			err = w.add(kv.K.Kind(), kv.K.UserKey, value)
		}
		copied.largest = append(copied.largest[:0], kv.K.UserKey...)
		err = errors.Join(err, ctx.Err())
	}
	return copied, errors.Join(err, it.Error(), w.Close())
}

// withoutForeign writes tables that delete what was ingested of other tasks' groups, one
// for those below the task's own and one for those above.
func (t tables) withoutForeign(path string, owned span, ingested []localTable) (paths []string, err error) {
	var last []byte
	below, above := false, false
	lower, upper := owned.bounds()
	for _, table := range ingested {
		below = below || bytes.Compare(table.smallest, lower) < 0
		if upper != nil && bytes.Compare(table.largest, upper) >= 0 && bytes.Compare(table.largest, last) > 0 {
			above, last = true, table.largest
		}
	}
	write := func(name string, from, to []byte) {
		w, failed := t.create(path + name)
		if failed == nil {
			failed = errors.Join(w.DeleteRange(from, to), w.Close())
		}
		paths, err = append(paths, path+name), errors.Join(err, failed)
	}
	if below {
		write(".below", []byte{0, 0}, lower)
	}
	if above {
		write(".above", upper, append(bytes.Clone(last), 0))
	}
	return paths, err
}
