package memstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// Opener keeps the keyed state of tasks in memory and stores their cuts as objects.
// It implements checkpoint.StateOpener.
type Opener struct{ store checkpoint.Store }

var _ checkpoint.StateOpener = (*Opener)(nil)

// NewOpener returns an Opener that keeps its objects in store.
func NewOpener(store checkpoint.Store) *Opener { return &Opener{store} }

// OpenState implements checkpoint.StateOpener.
func (o *Opener) OpenState(ctx context.Context, c checkpoint.StateConfig) (checkpoint.StateStore, error) {
	s := &state{config: c, store: o.store, chain: checkpoint.ClipChain(c.Files, c.GroupFrom, c.GroupTo),
		applied: c.Restored, views: map[checkpoint.BatchID][]txn.Record{}}
	var table []txn.Record
	for _, f := range s.chain {
		var buf bytes.Buffer
		if err := checkpoint.CopyObject(ctx, o.store, &buf, f.Name, f.Size, f.CRC32C); err != nil {
			return nil, fmt.Errorf("restore state of %s/%d: %w", c.Component, c.TaskIndex, err)
		}
		records, err := decodeRecords(buf.Bytes(), f.GroupFrom, f.GroupTo)
		if err != nil {
			return nil, fmt.Errorf("restore state of %s/%d: object %s: %w", c.Component, c.TaskIndex, f.Name, err)
		}
		if table, err = merge(table, records); err != nil {
			return nil, fmt.Errorf("restore state of %s/%d: object %s: %w", c.Component, c.TaskIndex, f.Name, err)
		}
	}
	s.publish(c.Restored, table)
	return s, nil
}

// state is the keyed state of one task: a sorted table that is never changed but
// replaced by each cut, so that the older ones are views.
type state struct {
	config checkpoint.StateConfig
	store  checkpoint.Store
	newest atomic.Pointer[moment]
	used   atomic.Bool // it has held a key

	// Of the committer.
	chain   []checkpoint.FileRef
	applied checkpoint.BatchID
	due     bool                // a base is
	pending *checkpoint.FileRef // of the cut that is being applied; its bytes follow
	bytes   []byte

	mu    sync.Mutex
	views map[checkpoint.BatchID][]txn.Record
}

// moment is the table as of one batch.
type moment struct {
	batch checkpoint.BatchID
	table []txn.Record // sorted by key
}

func (s *state) publish(n checkpoint.BatchID, table []txn.Record) {
	if len(table) > 0 {
		s.used.Store(true)
	}
	s.newest.Store(&moment{n, table})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[n] = table
}

// Get implements txn.Backend.
func (s *state) Get(key []byte) ([]byte, txn.BatchID, error) {
	m := s.newest.Load()
	i, ok := slices.BinarySearchFunc(m.table, key, func(r txn.Record, key []byte) int { return bytes.Compare(r.Key, key) })
	if !ok {
		return nil, m.batch, nil
	}
	return append([]byte{}, m.table[i].Value...), m.batch, nil
}

// Range implements txn.Backend.
func (s *state) Range(from, to []byte, fn func(key, value []byte) error) error {
	table := s.newest.Load().table
	compare := func(r txn.Record, key []byte) int { return bytes.Compare(r.Key, key) }
	i, _ := slices.BinarySearchFunc(table, from, compare)
	for _, r := range table[i:] {
		if to != nil && bytes.Compare(r.Key, to) >= 0 {
			return nil
		}
		if err := fn(r.Key, r.Value); err != nil {
			return err
		}
	}
	return nil
}

// Empty implements txn.Backend.
func (s *state) Empty() bool { return !s.used.Load() }

// Apply implements checkpoint.StateStore.
func (s *state) Apply(ctx context.Context, cut *txn.Cut) ([]checkpoint.FileRef, error) {
	if cut.Batch == s.applied && cut.Batch > s.config.Restored {
		return slices.Clone(s.chain), nil
	}
	if s.due { // only now: all that the base replaces has been in a chain that was returned
		s.writeBase(ctx, s.newest.Load().table)
	}
	if err := s.apply(ctx, cut); err != nil {
		return nil, fmt.Errorf("apply batch %d to the state of %s/%d: %w", cut.Batch, s.config.Component, s.config.TaskIndex, err)
	}
	s.due = s.due || cut.Shrunk || checkpoint.BaseDue(s.chain)
	return slices.Clone(s.chain), nil
}

func (s *state) apply(ctx context.Context, cut *txn.Cut) error {
	step := func(name string) {
		if s.config.Hook != nil {
			s.config.Hook(name)
		}
	}
	if cut.Batch <= s.applied {
		return fmt.Errorf("it has batch %d", s.applied)
	}
	if err := checkpoint.CheckMerges(cut); err != nil {
		return txn.Fatal(err)
	}
	table := s.newest.Load().table
	if len(cut.Records) == 0 {
		s.applied = cut.Batch
		s.publish(cut.Batch, table)
		return nil
	}
	records := cloneSorted(cut.Records)
	table, err := merge(table, records)
	if err != nil {
		return txn.Fatal(err)
	}
	if s.pending == nil || s.pending.Batch != cut.Batch {
		step("sst.before")
		s.bytes = encodeRecords(records)
		ref := s.newRef(cut.Batch, s.bytes, false)
		s.pending = &ref
		step("sst.after")
	}
	if err := s.put(ctx, *s.pending, s.bytes); err != nil {
		return err
	}
	step("ingest.before")
	s.chain = append(slices.Clip(s.chain), *s.pending)
	s.pending, s.bytes, s.applied = nil, nil, cut.Batch
	s.publish(cut.Batch, table)
	step("ingest.after")
	return nil
}

// writeBase replaces the chain by one base without what is not needed. If that fails the chain stays as it is,
// which is as right, and the next cut tries again.
func (s *state) writeBase(ctx context.Context, table []txn.Record) {
	unneeded := s.config.Unneeded()
	table = slices.DeleteFunc(slices.Clone(table), func(r txn.Record) bool { return unneeded(r.Key, r.Value) })
	var bases []checkpoint.FileRef
	if len(table) > 0 {
		data := encodeRecords(table)
		ref := s.newRef(s.applied, data, true)
		if s.put(ctx, ref, data) != nil {
			return
		}
		bases = append(bases, ref)
	}
	s.chain, s.due = checkpoint.Rebase(s.chain, bases, s.applied), false
}

func (s *state) newRef(n checkpoint.BatchID, data []byte, base bool) checkpoint.FileRef {
	c := &s.config
	return checkpoint.FileRef{
		Name: checkpoint.DataName(c.Generation, c.Component, c.TaskIndex, n, rand.Text()),
		Base: base, Batch: n, Generation: c.Generation, Size: int64(len(data)), CRC32C: checkpoint.CRC(data),
		GroupFrom: c.GroupFrom, GroupTo: c.GroupTo,
	}
}

func (s *state) put(ctx context.Context, f checkpoint.FileRef, data []byte) error {
	return s.store.Put(ctx, f.Name, bytes.NewReader(data), f.Size, f.CRC32C)
}

// View implements checkpoint.StateStore.
func (s *state) View(n checkpoint.BatchID) (txn.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	table, ok := s.views[n]
	if !ok {
		return nil, fmt.Errorf("view state of %s/%d: batch %d is not there, or has been released", s.config.Component, s.config.TaskIndex, n)
	}
	return view{&s.config, table}, nil
}

// Release implements checkpoint.StateStore.
func (s *state) Release(n checkpoint.BatchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for batch := range s.views {
		if batch < n {
			delete(s.views, batch)
		}
	}
}

// Close implements checkpoint.StateStore.
func (s *state) Close() error { return nil }

type view struct {
	config *checkpoint.StateConfig
	table  []txn.Record
}

// Scan implements txn.View.
func (v view) Scan(name string, fn func(key, value []byte) error) error {
	id, err := v.config.StateID(name)
	if err != nil {
		return err
	}
	for _, r := range v.table {
		if _, state, key, ok := txn.SplitStateKey(r.Key); ok && state == id {
			if err := fn(key, r.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func cloneSorted(records []txn.Record) []txn.Record {
	sorted := make([]txn.Record, len(records))
	for i, r := range records {
		sorted[i] = txn.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Delete: r.Delete, Merge: r.Merge}
	}
	slices.SortFunc(sorted, func(a, b txn.Record) int { return bytes.Compare(a.Key, b.Key) })
	return sorted
}

// merge returns the table that changes, sorted by key, make of table.
func merge(table, changes []txn.Record) ([]txn.Record, error) {
	out := make([]txn.Record, 0, len(table)+len(changes))
	for _, c := range changes {
		for len(table) > 0 && bytes.Compare(table[0].Key, c.Key) < 0 {
			out, table = append(out, table[0]), table[1:]
		}
		if len(table) > 0 && bytes.Equal(table[0].Key, c.Key) {
			if c.Merge {
				var err error
				if c.Value, err = txn.MergeValues(bytes.Clone(table[0].Value), c.Value); err != nil {
					return nil, err
				}
			}
			table = table[1:]
		}
		if c.Merge = false; !c.Delete {
			out = append(out, c)
		}
	}
	return append(out, table...), nil
}

// Kinds of records in an object.
const (
	rowDelete byte = iota
	rowSet
	rowMerge
)

// The object of a cut holds its records sorted by key: uvarint length and bytes of
// the key, the kind, and but for a deletion uvarint length and bytes of the value.
func encodeRecords(records []txn.Record) []byte {
	var b []byte
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r.Key))), r.Key...)
		switch {
		case r.Delete:
			b = append(b, rowDelete)
			continue
		case r.Merge:
			b = append(b, rowMerge)
		default:
			b = append(b, rowSet)
		}
		b = append(binary.AppendUvarint(b, uint64(len(r.Value))), r.Value...)
	}
	return b
}

// decodeRecords returns the records whose key group is in [from, to).
func decodeRecords(b []byte, from, to int) ([]txn.Record, error) {
	take := func() ([]byte, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, false
		}
		v := b[size : size+int(n)]
		b = b[size+int(n):]
		return v, true
	}
	var records []txn.Record
	for len(b) > 0 {
		key, ok := take()
		group, _, _, isKey := txn.SplitStateKey(key)
		if !ok || !isKey || len(b) == 0 || b[0] > rowMerge {
			return nil, errors.New("not the records of a cut")
		}
		r := txn.Record{Key: key, Delete: b[0] == rowDelete, Merge: b[0] == rowMerge}
		b = b[1:]
		if !r.Delete {
			if r.Value, ok = take(); !ok {
				return nil, errors.New("not the records of a cut")
			}
		}
		if group >= from && group < to {
			records = append(records, r)
		}
	}
	return records, nil
}
