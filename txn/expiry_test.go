package txn_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// storedTask is one task over Pebble whose cuts are applied at once.
type storedTask struct {
	s     *txn.State
	store checkpoint.StateStore
	batch txn.BatchID
	now   int64
	chain []checkpoint.FileRef
}

func newStoredTask(t *testing.T, dir string, register func(s *txn.State)) *storedTask {
	t.Helper()
	opener := pebblestate.New(pebblestate.Options{Dir: dir, Store: memstore.New()})
	k := &storedTask{now: 1_700_000_000_000}
	clock := func() int64 { return k.now }
	var metas []txn.StateMeta
	var err error
	k.store, err = opener.OpenState(t.Context(), checkpoint.StateConfig{
		Component: "c", Generation: 1, GroupTo: kindGroups,
		States: func() []txn.StateMeta { return metas }, Now: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(k.store.Close(), opener.Close()); err != nil {
			t.Error(err)
		}
	})
	k.s = txn.NewState(txn.StateConfig{Component: "c", Groups: kindGroups, To: kindGroups, Backend: k.store, CacheBytes: 1 << 20, Now: clock})
	register(k.s)
	if err := k.s.Seal(); err != nil {
		t.Fatal(err)
	}
	metas = k.s.Metas()
	return k
}

// finish ends a batch and returns how many records it had.
func (k *storedTask) finish(t *testing.T) int {
	t.Helper()
	k.batch++
	cut, err := k.s.Cut(k.batch)
	if err != nil {
		t.Fatal(err)
	}
	if k.chain, err = k.store.Apply(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	k.store.Release(k.batch)
	k.s.Settle(k.batch)
	return len(cut.Records)
}

func (k *storedTask) rows(t *testing.T) (n int) {
	t.Helper()
	if err := k.store.Range(nil, nil, func(_, _ []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func (k *storedTask) chainBytes() (n int64) {
	for _, f := range k.chain {
		n += f.Size
	}
	return n
}

func diskBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ignoreGone passes over files that are removed in the background.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Nobody reads the keys again, and nothing else is written.
func TestExpiredStateLeavesTheDisk(t *testing.T) {
	const keys, perBatch, ttl = 100_000, 10_000, time.Minute
	dir := t.TempDir()
	var value *txn.Value[string]
	var list *txn.List[int64]
	k := newStoredTask(t, dir, func(s *txn.State) {
		value = txn.NewValue(s, "value", txn.StringCodec(), txn.WithTTL(ttl))
		list = txn.NewList(s, "list", txn.Int64Codec(), txn.WithTTL(ttl))
	})
	for i := range keys {
		if err := errors.Join(k.s.SetKey(tuple.String(fmt.Sprint("key-", i*7919))), value.Set(fmt.Sprint("value-", i*104729))); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			if err := list.Append(int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if (i+1)%perBatch == 0 {
			k.finish(t)
		}
	}
	full, fullChain, fullDisk := k.rows(t), k.chainBytes(), diskBytes(t, dir)
	if want := keys + keys/10*2; full != want {
		t.Fatalf("%d rows, want %d", full, want)
	}
	k.now += ttl.Milliseconds() - 1
	if n := k.finish(t); n != 0 {
		t.Fatalf("%d rows were deleted before they expired", n)
	}
	k.now++
	const batches = 30
	for i := 0; ; i++ {
		if at, ok := k.s.SweepDue(); !ok || at > k.now {
			break
		}
		if i == batches {
			t.Fatalf("after %d batches there are still %d rows", i, k.rows(t))
		}
		k.finish(t)
	}
	if n := k.rows(t); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	// What was deleted leaves the files in the background; an empty cut finds that done.
	const patience = time.Minute
	for begun := time.Now(); k.chainBytes() > fullChain/100 || diskBytes(t, dir) > fullDisk/10; k.finish(t) {
		if time.Since(begun) > patience {
			t.Fatalf("of %d bytes in the checkpoint %d are left, of %d on disk %d", fullChain, k.chainBytes(), fullDisk, diskBytes(t, dir))
		}
	}
}
