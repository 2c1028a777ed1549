package pebblestate

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

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
	default:
		return fmt.Errorf("a row is of kind %s, must be SET, DEL or MERGE", kind)
	}
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

func groupOf(key []byte) (int, error) {
	group, _, _, ok := txn.SplitStateKey(key)
	if !ok {
		return 0, fmt.Errorf("%x is too short for a state key", key)
	}
	return group, nil
}
