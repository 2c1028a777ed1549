package pebblestate

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// fullDisk is a file system on which, while it is full, nothing more can be written to
// the stores, neither new files nor old ones. Links need no room.
type fullDisk struct {
	full    atomic.Bool
	refused atomic.Int32 // new tables
}

func (d *fullDisk) fs() vfs.FS {
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !d.full.Load() {
			return nil
		}
		switch op.Kind {
		case errorfs.OpCreate:
			if strings.HasSuffix(op.Path, ".sst") {
				d.refused.Add(1)
			}
			return syscall.ENOSPC
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate, errorfs.OpReuseForWrite:
			return syscall.ENOSPC
		default:
			return nil
		}
	}))
}

func TestAFullDiskHoldsUpCompactionsAndNothingElse(t *testing.T) {
	const patience = time.Minute
	o, disk := newOpener(t, t.TempDir(), memstore.New()), &fullDisk{}
	o.fs = disk.fs()
	s := openState(t, o, config(1, 0))
	disk.full.Store(true)
	var files []checkpoint.FileRef
	n := checkpoint.BatchID(0)
	for begun := time.Now(); disk.refused.Load() == 0 || n < 4*l0CompactionThreshold; {
		if time.Since(begun) > patience {
			t.Fatalf("no compaction was tried in %d batches", n)
		}
		n++
		files = apply(t, s, plus(n))
		checkSums(t, s, int64(n))
		s.Release(n)
	}
	if err := s.failed(); err != nil {
		t.Error(err)
	}
	if deep := s.Stats().ReadDepth; deep < l0CompactionThreshold {
		t.Errorf("with no room for compactions a read looks into %d tables", deep)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	disk.full.Store(false)
	checkSums(t, openState(t, o, config(2, n, files...)), int64(n))
}

// A table of the local store is damaged: what reads it says so, and from then on all
// that is asked of the state, so that its task is rolled back.
func TestADamagedTableFailsTheState(t *testing.T) {
	s := openState(t, newOpener(t, t.TempDir(), memstore.New()), config(1, 0))
	apply(t, s, cutOf(1, 0, 300, "some value that takes room"))
	tables, err := filepath.Glob(filepath.Join(s.dir, dbFolder, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("the tables are %q, %v", tables, err)
	}
	for _, path := range tables {
		data, err := os.ReadFile(path)
		if err == nil {
			data[len(data)/2] ^= 1
			err = os.WriteFile(path, data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func() error { return s.Range(nil, nil, func(_, _ []byte) error { return nil }) }
	if err := read(); err == nil {
		t.Fatal("it was read")
	}
	if _, _, err := s.Get([]byte{0, 0, 0, 7}); err == nil {
		t.Error("another key could be read")
	}
	v, err := s.View(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Scan("n", func(_, _ []byte) error { return nil }); !txn.IsFatal(err) {
		t.Errorf("scan: %v", err)
	}
	if _, err := s.Apply(t.Context(), plus(2)); !txn.IsFatal(err) {
		t.Errorf("apply: %v", err)
	}
}
