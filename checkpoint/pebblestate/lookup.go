package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// Table reads a file of keyed state where it lies, in few and small parts: its end when
// it is opened, and then what is asked for. Parts that follow each other are read ahead.
// It is not safe for concurrent use.
type Table struct{ reader *sstable.Reader }

// apart is how tables are read without a local store.
var apart = func() tables {
	o := &pebble.Options{Merger: merger, Logger: pebbleLogger{slog.New(slog.DiscardHandler)}}
	o.EnsureDefaults()
	return newTables(o)
}()

// OpenTable opens the table that f names. Only the parts that are read are verified, by
// the checksum of their block.
func OpenTable(ctx context.Context, objects checkpoint.RangeReader, f checkpoint.FileRef) (*Table, error) {
	s := &source{objects: objects, name: f.Name, size: f.Size}
	if err := s.readTail(ctx); err != nil {
		return nil, err
	}
	r, err := sstable.NewReader(ctx, s, apart.read)
	if err != nil {
		return nil, damage(err)
	}
	return &Table{r}, nil
}

// Close closes the table.
func (t *Table) Close() error { return t.reader.Close() }

// Each calls fn for each row, in the order of their keys. r is valid during the call.
func (t *Table) Each(ctx context.Context, fn func(r txn.Record) error) (err error) {
	it, err := t.iterate(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for kv := it.First(); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil)
		if err != nil {
			return damage(err)
		}
		r, err := recordOf(kv.K.Kind(), kv.K.UserKey, value)
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return damage(it.Error())
}

// iterate returns the rows of [lower, upper). It does without the table's filter, which
// is many times as large as the block that it might save.
func (t *Table) iterate(ctx context.Context, lower, upper []byte) (sstable.Iterator, error) {
	it, err := t.reader.NewPointIter(ctx, sstable.IterOptions{
		Lower: lower, Upper: upper, FilterBlockSizeLimit: sstable.NeverUseFilterBlock,
		ReaderProvider: sstable.MakeTrivialReaderProvider(t.reader), BlobContext: sstable.AssertNoBlobHandles,
	})
	return it, damage(err)
}

// recordOf returns a row as the change that it was.
func recordOf(kind pebble.InternalKeyKind, key, value []byte) (txn.Record, error) {
	switch kind {
	case pebble.InternalKeyKindSet:
		return txn.Record{Key: key, Value: value}, nil
	case pebble.InternalKeyKindDelete:
		return txn.Record{Key: key, Delete: true}, nil
	case pebble.InternalKeyKindMerge:
		return txn.Record{Key: key, Value: value, Merge: true}, nil
	default:
		return txn.Record{}, fmt.Errorf("%w: row %x is of kind %s, must be SET, DEL or MERGE", checkpoint.ErrDamaged, key, kind)
	}
}

// damage says in the words of checkpoint that bytes are not what they were.
func damage(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", checkpoint.ErrDamaged, err)
	}
	return err
}

const (
	// tailBytes is how much of the end of a table is read at once: all that says where
	// the rest is, unless the table is large, and the whole of a small one.
	tailBytes = 32 << 10
	// Of parts that follow each other this much is read ahead, twice as much each time.
	aheadMin = 16 << 10
	aheadMax = 512 << 10
)

// source is a file as Pebble reads it. It implements objstorage.Readable.
type source struct {
	objects checkpoint.RangeReader
	name    string
	size    int64
	tail    []byte
}

func (s *source) readTail(ctx context.Context) error {
	tail := make([]byte, min(s.size, tailBytes))
	if err := s.ReadAt(ctx, tail, s.size-int64(len(tail))); err != nil {
		return err
	}
	s.tail = tail
	return nil
}

// ReadAt implements objstorage.Readable.
func (s *source) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > s.size-int64(len(p)) {
		return fmt.Errorf("%w: it refers to bytes %d to %d of %d", checkpoint.ErrDamaged, off, off+int64(len(p)), s.size)
	}
	if from := off - (s.size - int64(len(s.tail))); from >= 0 {
		copy(p, s.tail[from:])
		return nil
	}
	err := s.objects.ReadAt(ctx, s.name, p, off)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", checkpoint.ErrDamaged, err)
	}
	return err
}

// Close implements objstorage.Readable.
func (s *source) Close() error { return nil }

// Size implements objstorage.Readable.
func (s *source) Size() int64 { return s.size }

// NewReadHandle implements objstorage.Readable.
func (s *source) NewReadHandle(objstorage.ReadBeforeSize) objstorage.ReadHandle {
	return &window{source: s}
}

// window reads ahead when parts follow each other. It implements objstorage.ReadHandle.
type window struct {
	source *source
	buf    []byte
	at     int64 // of buf in the file
	ahead  int
}

// ReadAt implements objstorage.ReadHandle.
func (w *window) ReadAt(ctx context.Context, p []byte, off int64) error {
	end := w.at + int64(len(w.buf))
	if off >= w.at && off+int64(len(p)) <= end {
		copy(p, w.buf[off-w.at:])
		return nil
	}
	if w.ahead = min(max(2*w.ahead, aheadMin), aheadMax); len(w.buf) == 0 || off < w.at || off > end {
		w.ahead = 0
	}
	left := w.source.size - int64(len(w.source.tail)) - off // the tail is there already
	n := max(int64(len(p)), min(int64(w.ahead), left))
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	w.buf, w.at = w.buf[:n], off
	if err := w.source.ReadAt(ctx, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return err
	}
	copy(p, w.buf)
	return nil
}

// Close implements objstorage.ReadHandle.
func (w *window) Close() error { return nil }

// SetupForCompaction implements objstorage.ReadHandle.
func (w *window) SetupForCompaction() {}

// RecordCacheHit implements objstorage.ReadHandle.
func (w *window) RecordCacheHit(context.Context, int64, int64) {}
