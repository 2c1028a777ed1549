package pebblestate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/isobar-io/isobar/txn"
)

// tables reads and writes SST files of state keys: points only, set, deleted or
// merged, in key order, each key once, all with sequence number 0.
type tables struct {
	read  sstable.ReaderOptions
	write sstable.WriterOptions
}

func newTables(o *pebble.Options) tables {
	t := tables{o.MakeReaderOptions(), o.MakeWriterOptions(0, tableFormat)}
	t.read.Mergers = sstable.Mergers{mergerNameOlder: pebble.DefaultMerger}
	return t
}

// tableWriter writes one SST to a local file.
type tableWriter struct {
	*sstable.Writer
	file *tableFile
	rows int
}

func (t tables) create(path string) (*tableWriter, error) {
	f, err := createNew(path)
	if err != nil {
		return nil, err
	}
	file := &tableFile{f: f, buf: bufio.NewWriterSize(f, 64<<10)}
	return &tableWriter{Writer: sstable.NewWriter(file, t.write), file: file}, nil
}

// createNew creates a file, in place of one that has the name. It never truncates: what
// has the name may be a file of the checkpoint store, or a table that Pebble has ingested
// and failed to remove.
func createNew(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

func (w *tableWriter) add(kind pebble.InternalKeyKind, key, value []byte) error {
	w.rows++
	switch kind {
	case pebble.InternalKeyKindSet:
		return w.Set(key, value)
	case pebble.InternalKeyKindDelete:
		return w.Delete(key)
	case pebble.InternalKeyKindMerge:
		return w.Merge(key, value)
	}
	return fmt.Errorf("a row is of kind %s, must be SET, DEL or MERGE", kind)
}

func kindOf(r txn.Record) pebble.InternalKeyKind {
	switch {
	case r.Delete:
		return pebble.InternalKeyKindDelete
	case r.Merge:
		return pebble.InternalKeyKindMerge
	}
	return pebble.InternalKeyKindSet
}

// tableFile is a local file that knows the size and CRC-32C of what was written. It
// implements objstorage.Writable.
type tableFile struct {
	f    *os.File
	buf  *bufio.Writer
	size int64
	crc  uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (t *tableFile) Write(p []byte) error {
	t.size += int64(len(p))
	t.crc = crc32.Update(t.crc, castagnoli, p)
	_, err := t.buf.Write(p)
	return err
}

func (t *tableFile) Finish() error { return errors.Join(t.buf.Flush(), t.f.Close()) }

// Abort gives up the file. It has been or will be removed with its folder.
func (t *tableFile) Abort() { _ = t.f.Close() }

// clip returns a local file that holds the rows of the one at path whose key group
// is in [from, to): the same file if it holds no others, a new one that replaces it
// if it does or is of an older kind, and no file, with an empty path, if no row is left.
func (t tables) clip(ctx context.Context, path string, from, to int) (clipped string, err error) {
	f, err := vfs.Default.Open(path)
	if err != nil {
		return "", err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	reader, err := sstable.NewReader(ctx, readable, t.read)
	if err != nil {
		return "", errors.Join(err, readable.Close())
	}
	whole, err := asItIs(ctx, reader, from, to)
	if err == nil && !whole {
		clipped = path + ".clipped"
		var rows int
		if rows, err = t.copyGroups(ctx, reader, clipped, from, to); rows == 0 {
			clipped = ""
		}
	}
	if err = errors.Join(err, reader.Close()); err != nil {
		return "", err
	}
	if whole {
		return path, nil
	}
	return clipped, os.Remove(path)
}

// asItIs reports whether a table can be ingested without being rewritten.
func asItIs(ctx context.Context, r *sstable.Reader, from, to int) (bool, error) {
	properties, err := r.ReadPropertiesBlock(ctx, nil)
	if err != nil || properties.MergerName != mergerName {
		return false, err
	}
	return onlyGroups(r, from, to)
}

// onlyGroups reports whether all rows of a table are of key groups in [from, to).
func onlyGroups(r *sstable.Reader, from, to int) (only bool, err error) {
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	first := it.First()
	if first == nil {
		return false, it.Error()
	}
	smallest, err := groupOf(first.K.UserKey)
	if err != nil {
		return false, err
	}
	last := it.Last()
	if last == nil {
		return false, it.Error()
	}
	largest, err := groupOf(last.K.UserKey)
	return smallest >= from && largest < to, err
}

// copyGroups writes the rows of the key groups [from, to), deletions included, to a
// new table at path, and returns how many there are. Without any there is no file.
func (t tables) copyGroups(ctx context.Context, r *sstable.Reader, path string, from, to int) (rows int, err error) {
	lower, upper := groupBounds(from, to)
	it, err := r.NewIter(sstable.NoTransforms, lower, upper, sstable.AssertNoBlobHandles)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	kv := it.SeekGE(lower, 0)
	if kv == nil {
		return 0, it.Error()
	}
	w, err := t.create(path)
	if err != nil {
		return 0, err
	}
	for ; kv != nil; kv = it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		var value []byte
		if value, _, err = kv.Value(nil); err == nil {
			err = w.add(kv.K.Kind(), kv.K.UserKey, value)
		}
		if err != nil {
			break
		}
	}
	return w.rows, errors.Join(err, it.Error(), w.Close())
}

func groupOf(key []byte) (int, error) {
	group, _, _, ok := txn.SplitStateKey(key)
	if !ok {
		return 0, fmt.Errorf("%x is too short for a state key", key)
	}
	return group, nil
}

// groupBounds returns the first state key of the key groups [from, to) and the
// first one after them, which is nil if there are no groups after them.
func groupBounds(from, to int) (lower, upper []byte) {
	if to < 1<<16 {
		upper = []byte{byte(to >> 8), byte(to)}
	}
	return []byte{byte(from >> 8), byte(from)}, upper
}
