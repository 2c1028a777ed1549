package pebblestate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// In a task's folder: its Pebble, and files on their way in or out.
const (
	dbFolder    = "db"
	filesFolder = "files"
)

// state is the keyed state of one task. It implements checkpoint.StateStore.
type state struct {
	opener *Opener
	config checkpoint.StateConfig
	dir    string
	store  checkpoint.Store
	tables tables
	logger *slog.Logger
	hook   func(step string)
	used   atomic.Bool // something was ever ingested

	db     *pebble.DB
	mu     sync.Mutex // of what follows, for moments only: the task waits for it
	last   *moment    // the newest batch that was applied
	closed bool
	// What is wrong with the local store, if anything is.
	failure error
	reads   sync.WaitGroup // Get and Range, so that Close waits for them

	// Of the committer.
	chain   []checkpoint.FileRef
	applied checkpoint.BatchID
	pending *delta
	shrunk  bool // much was deleted since the last base was begun
	views   map[checkpoint.BatchID]*moment

	// The writer of the next base, if base is not nil.
	ctx    context.Context
	cancel context.CancelFunc
	bases  sync.WaitGroup
	base   chan baseResult
	left   []string // objects of bases that failed; the writer has them while there is one

	baseFileBytes uint64
	rowBytesMax   int64
}

// delta is the file of a cut that is being applied, and how far that has come.
type delta struct {
	ref    checkpoint.FileRef
	path   string
	stored bool
}

// Get implements txn.Backend.
func (s *state) Get(key []byte) (value []byte, asOf txn.BatchID, err error) {
	m, err := s.newest()
	if err != nil {
		return nil, 0, s.errorf("get", err)
	}
	defer s.read(m)
	found, closer, err := m.snapshot.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, m.batch, nil
	}
	if err != nil {
		return nil, 0, s.errorf("get", err)
	}
	value = append(make([]byte, 0, len(found)), found...) // not nil, also if it is empty
	return value, m.batch, closer.Close()
}

// Range implements txn.Backend.
func (s *state) Range(from, to []byte, fn func(key, value []byte) error) error {
	m, err := s.newest()
	if err != nil {
		return s.errorf("range over", err)
	}
	defer s.read(m)
	it, err := m.snapshot.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return s.errorf("range over", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return s.errorf("range over", err)
		}
		if err := fn(it.Key(), value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return s.errorf("range over", err)
	}
	return nil
}

// Empty implements txn.Backend.
func (s *state) Empty() bool { return !s.used.Load() }

func (s *state) errorf(what string, err error) error {
	return fmt.Errorf("%s state of %s/%d: %w", what, s.config.Component, s.config.TaskIndex, err)
}

// Apply implements checkpoint.StateStore.
func (s *state) Apply(ctx context.Context, cut *txn.Cut) ([]checkpoint.FileRef, error) {
	if cut.Batch == s.applied && cut.Batch > s.config.Restored {
		return slices.Clone(s.chain), nil
	}
	if err := s.apply(ctx, cut); err != nil {
		return nil, s.errorf(fmt.Sprintf("apply batch %d to", cut.Batch), err)
	}
	s.shrunk = s.shrunk || cut.Shrunk
	s.adoptBase()
	if s.base == nil && (s.shrunk || checkpoint.BaseDue(s.chain)) {
		s.startBase()
	}
	return slices.Clone(s.chain), nil
}

func (s *state) apply(ctx context.Context, cut *txn.Cut) error {
	if cut.Batch <= s.applied {
		return fmt.Errorf("it has batch %d already", s.applied)
	}
	if err := cmp.Or(s.failed(), checkpoint.CheckMerges(cut)); err != nil {
		return txn.Fatal(err)
	}
	if len(cut.Records) == 0 {
		s.advance(cut.Batch)
		return nil
	}
	if s.pending == nil || s.pending.ref.Batch != cut.Batch {
		s.hook("sst.before")
		d, err := s.writeDelta(cut)
		if err != nil {
			return err
		}
		s.pending = d
		s.hook("sst.after")
	}
	d := s.pending
	// Durable and verified before the chain names it: invariant I6.
	if !d.stored {
		if err := s.put(ctx, d.ref, d.path); err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoint.ErrDamaged) {
				s.pending = nil // the local file is not what was written: write it anew
			}
			return err
		}
		d.stored = true
	}
	s.hook("ingest.before")
	if err := s.ingest(ctx, d.path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			s.pending = nil
		}
		return fmt.Errorf("ingest %s: %w", d.ref.Name, err)
	}
	// The rows are there: from here on nothing fails, or they would be merged twice
	// when the cut is applied again.
	s.chain = append(s.chain, d.ref)
	s.pending = nil
	s.advance(cut.Batch)
	s.hook("ingest.after")
	return nil
}

// advance makes n the newest batch that was applied.
func (s *state) advance(n checkpoint.BatchID) {
	s.applied = n
	s.publish()
}

// writeDelta writes a cut to a local SST.
func (s *state) writeDelta(cut *txn.Cut) (*delta, error) {
	records := sorted(cut.Records)
	for _, r := range []txn.Record{records[0], records[len(records)-1]} {
		group, err := groupOf(r.Key)
		if err != nil {
			return nil, err
		}
		if group < s.config.GroupFrom || group >= s.config.GroupTo {
			return nil, fmt.Errorf("the cut has key group %d, the task owns [%d,%d)", group, s.config.GroupFrom, s.config.GroupTo)
		}
	}
	path := s.filePath(fmt.Sprintf("delta-%d", cut.Batch))
	w, err := s.tables.create(path)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		err := s.checkSize(r)
		if err == nil {
			err = w.add(kindOf(r), r.Key, r.Value)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &delta{ref: s.newRef(w, cut.Batch, false), path: path}, nil
}

// rowBytesMax is how large a key and its value can be together, unless a test chooses
// otherwise. A block of a table, which holds at least a row, has offsets of 32 bits, and
// Pebble does not look whether they are enough.
const rowBytesMax = 2 << 30

func (s *state) checkSize(r txn.Record) error {
	if int64(len(r.Key))+int64(len(r.Value)) <= s.rowBytesMax {
		return nil
	}
	_, id, key, _ := txn.SplitStateKey(r.Key)
	return txn.Fatal(fmt.Errorf("the value of key %.40q in %s has %d bytes, and the key %d: together they can have %d: use a map or a list, whose entries are stored one by one",
		key, s.stateName(id), len(r.Value), len(r.Key), s.rowBytesMax))
}

func (s *state) stateName(id uint16) string {
	if s.config.States != nil {
		for _, m := range s.config.States() {
			if m.ID == id {
				return fmt.Sprintf("state %q", m.Name)
			}
		}
	}
	return fmt.Sprintf("state %d", id)
}

// newRef names the finished file of w under a name that was never used.
func (s *state) newRef(w *tableWriter, n checkpoint.BatchID, base bool) checkpoint.FileRef {
	c := &s.config
	return checkpoint.FileRef{
		Name: checkpoint.DataName(c.Generation, c.Component, c.TaskIndex, n, rand.Text()),
		Base: base, Batch: n, Generation: c.Generation, Size: w.file.size, CRC32C: w.file.crc,
		GroupFrom: c.GroupFrom, GroupTo: c.GroupTo,
	}
}

func (s *state) filePath(name string) string { return filepath.Join(s.dir, filesFolder, name) }

// put stores a local file as an object.
func (s *state) put(ctx context.Context, f checkpoint.FileRef, path string) error {
	body, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(s.store.Put(ctx, f.Name, body, f.Size, f.CRC32C), body.Close())
}

// ingest makes the rows of local files, of which no two have a key in common, the newest
// of the store, and takes the files. If it fails then none of the rows are there.
func (s *state) ingest(ctx context.Context, paths ...string) error {
	s.used.Store(true)
	return s.db.Ingest(ctx, paths)
}

// View implements checkpoint.StateStore.
func (s *state) View(n checkpoint.BatchID) (txn.View, error) {
	m, ok := s.views[n]
	if !ok {
		return nil, s.errorf("view", fmt.Errorf("batch %d is not there, or has been released", n))
	}
	return view{&s.config, m.snapshot}, nil
}

// Release implements checkpoint.StateStore.
func (s *state) Release(n checkpoint.BatchID) {
	for batch, m := range s.views {
		if batch < n {
			delete(s.views, batch)
			s.letGo(m)
		}
	}
}

// Close implements checkpoint.StateStore. It removes the local folder.
func (s *state) Close() error {
	s.cancel()
	s.bases.Wait()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	s.reads.Wait()
	if closed {
		return nil
	}
	for _, m := range s.views {
		s.letGo(m)
	}
	clear(s.views)
	if s.last != nil {
		s.letGo(s.last)
	}
	err := errors.Join(s.db.Close(), os.RemoveAll(s.dir))
	s.opener.release(s.dir)
	if err != nil {
		return s.errorf("close", err)
	}
	return nil
}

// view reads the state as of one batch.
type view struct {
	config   *checkpoint.StateConfig
	snapshot *pebble.Snapshot
}

// Scan implements txn.View. That rows cannot be read is not cured by trying again.
func (v view) Scan(name string, fn func(key, value []byte) error) error {
	id, err := v.config.StateID(name)
	if err != nil {
		return err
	}
	unreadable := func(err error) error {
		return txn.Fatal(fmt.Errorf("scan state %q of %s/%d: %w", name, v.config.Component, v.config.TaskIndex, err))
	}
	lower, upper := span{v.config.GroupFrom, v.config.GroupTo}.bounds()
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return unreadable(err)
	}
	defer it.Close()
	// From each key group only the rows of the state: what lies between is skipped.
	var prefix []byte
	seek := func(group int) bool {
		prefix = txn.AppendStateKey(prefix[:0], group, id, nil)
		return it.SeekGE(prefix)
	}
	for ok := seek(v.config.GroupFrom); ok; {
		group, state, key, isKey := txn.SplitStateKey(it.Key())
		switch order := cmp.Compare(state, id); {
		case !isKey:
			return unreadable(fmt.Errorf("%x is no state key", it.Key()))
		case order < 0:
			ok = seek(group)
		case order > 0 && group+1 >= v.config.GroupTo:
			ok = false
		case order > 0:
			ok = seek(group + 1)
		default:
			value, err := it.ValueAndErr()
			if err != nil {
				return unreadable(err)
			}
			if err := fn(key, value); err != nil {
				return err
			}
			ok = it.Next()
		}
	}
	if err := it.Error(); err != nil {
		return unreadable(err)
	}
	return nil
}
