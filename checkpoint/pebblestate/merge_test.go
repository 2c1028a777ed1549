package pebblestate

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// plus returns a cut that adds 1 to one sum in every group.
func plus(n checkpoint.BatchID) *txn.Cut {
	cut := cutOf(n, 0, 1, "")
	for i := range cut.Records {
		cut.Records[i].Value, cut.Records[i].Merge = sumOf(1), true
	}
	return cut
}

func sumOf(n int64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, uint64(n)) }

// checkSums demands that the sum in every group is n.
func checkSums(t *testing.T, s *state, n int64) {
	t.Helper()
	for _, r := range plus(0).Records {
		if got, _, err := s.Get(r.Key); err != nil || string(got) != string(sumOf(n)) {
			t.Fatalf("the sum of %x is %x, %v; want %d", r.Key, got, err, n)
		}
	}
}

// Each operation of the local file system during an Apply fails once; the cut is then
// applied again. Whatever had happened by then, it counts once.
func TestAMergeCountsOnceWhateverFailsLocally(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	armed, left := false, 0
	var failed string
	o.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed {
			return nil
		}
		if left--; left != 0 {
			return nil
		}
		failed = op.Path
		return errorfs.ErrInjected
	}))
	failures := 0
	for at := 1; ; at++ {
		s := openState(t, o, config(checkpoint.Generation(at), 0))
		apply(t, s, plus(1))
		apply(t, s, plus(2))
		armed, left, failed = true, at, ""
		files, err := s.Apply(t.Context(), plus(3))
		armed = false
		if err != nil {
			failures++
			files = apply(t, s, plus(3))
		}
		checkSums(t, s, 3)
		checkSums(t, openState(t, o, config(checkpoint.Generation(1000+at), 3, files...)), 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if failed == "" {
			break
		}
	}
	if failures < 3 {
		t.Errorf("only %d operations made an Apply fail", failures)
	}
}

// A value that cannot be merged is met by a compaction first.
func TestADamagedMergeInACompactionFailsTheState(t *testing.T) {
	s := openState(t, newOpener(t, t.TempDir(), memstore.New()), config(1, 0))
	apply(t, s, cutOf(1, 0, 1, "no aggregate"))
	apply(t, s, plus(2))
	s.Release(2) // or the two would have to be kept apart
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{1}, false); err == nil {
		t.Fatal("it was merged")
	}
	if _, err := s.Apply(t.Context(), plus(3)); !txn.IsFatal(err) || !strings.Contains(err.Error(), "merge stored values") {
		t.Errorf("apply: %v", err)
	}
	if _, _, err := s.Get([]byte{0, 0, 0, 7}); err == nil {
		t.Error("another key could be read")
	}
}

// A base meets it first.
func TestADamagedMergeInABaseFailsTheState(t *testing.T) {
	s := openState(t, newOpener(t, t.TempDir(), memstore.New()), config(1, 0))
	apply(t, s, cutOf(1, 0, 1, "no aggregate"))
	apply(t, s, plus(2))
	s.startBase()
	s.bases.Wait()
	if _, err := s.Apply(t.Context(), plus(3)); !txn.IsFatal(err) {
		t.Errorf("apply: %v", err)
	}
}

func TestTablesOfBeforeThereWereMergesAreRestored(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	s := openState(t, o, config(1, 0))
	s.tables.write.MergerName = mergerNameOlder
	older, err := s.writeDelta(cutOf(1, 0, 100, string(sumOf(5))))
	if err == nil {
		err = s.put(t.Context(), older.ref, older.path)
	}
	if err != nil {
		t.Fatal(err)
	}
	restored := openState(t, o, config(2, 1, older.ref))
	if got := rows(t, restored, 1); got != 100*groups {
		t.Errorf("restored are %d rows, want %d", got, 100*groups)
	}
	checkSums(t, restored, 5)
	files := apply(t, restored, plus(2))
	checkSums(t, restored, 6)
	checkSums(t, openState(t, o, config(3, 2, files...)), 6)
}

// What a program does that knows nothing of merges: it must not read on.
func TestAProgramOfBeforeThereWereMergesRefusesTables(t *testing.T) {
	store := memstore.New()
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	path := s.filePath("table")
	if err := os.WriteFile(path, object(t, store, apply(t, s, plus(1))[0]), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.Default.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		t.Fatal(err)
	}
	older := &pebble.Options{}
	older.EnsureDefaults()
	older.Filters = s.tables.read.Filters
	if r, err := sstable.NewReader(t.Context(), readable, older.MakeReaderOptions()); err == nil || !strings.Contains(err.Error(), mergerName) {
		t.Errorf("it was opened: %v", err)
		if r != nil {
			_ = r.Close()
		}
	}
}

// A cut that is ingested but not yet applied is read by nobody, nor is half of what
// Get says of the state: its value and the batch.
func TestGetIsOfABatchThatWasApplied(t *testing.T) {
	o := newOpener(t, t.TempDir(), memstore.New())
	var s *state
	seen := 0
	o.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		// Pebble removes what it has ingested at the end.
		if op.Kind != errorfs.OpRemove || s == nil || op.Path != s.filePath("delta-2") {
			return nil
		}
		seen++
		checkSums(t, s, 1)
		if _, asOf, err := s.Get([]byte{0, 0, 0, 7}); asOf != 1 || err != nil {
			t.Errorf("before batch 2 is applied a key is read as of batch %d, %v", asOf, err)
		}
		err := s.Range(nil, nil, func(_, value []byte) error {
			if string(value) != string(sumOf(1)) {
				t.Errorf("a range holds %x", value)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return nil
	}))
	s = openState(t, o, config(1, 0))
	apply(t, s, plus(1))
	apply(t, s, plus(2))
	if seen != 1 {
		t.Errorf("the file of batch 2 was removed %d times", seen)
	}
	checkSums(t, s, 2)
}
