package pebblestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/checkpointtest"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

func newOpener(t testing.TB, dir string, store checkpoint.Store) *Opener {
	o := New(Options{Dir: dir, Store: store, CacheBytes: 8 << 20})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func TestState(t *testing.T) {
	checkpointtest.RunState(t, func(t *testing.T, store checkpoint.Store) checkpoint.StateOpener {
		return newOpener(t, t.TempDir(), store)
	})
}

const groups = 16

func config(g checkpoint.Generation, n checkpoint.BatchID, files ...checkpoint.FileRef) checkpoint.StateConfig {
	return checkpoint.StateConfig{
		Component: "count", Generation: g, Restored: n, GroupTo: groups, Files: files,
		States: func() []txn.StateMeta { return []txn.StateMeta{{ID: 1, Name: "n"}} },
	}
}

func openState(t testing.TB, o *Opener, c checkpoint.StateConfig) *state {
	t.Helper()
	s, err := o.OpenState(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*state)
}

// cutOf returns a cut that sets keys from..to in every group.
func cutOf(n checkpoint.BatchID, from, to int, value string) *txn.Cut {
	cut := &txn.Cut{Batch: n}
	for k := from; k < to; k++ {
		for g := range groups {
			cut.Records = append(cut.Records, txn.Record{Key: txn.AppendStateKey(nil, g, 1, fmt.Appendf(nil, "%08d", k)), Value: []byte(value)})
		}
	}
	return cut
}

func apply(t testing.TB, s *state, cut *txn.Cut) []checkpoint.FileRef {
	t.Helper()
	files, err := s.Apply(context.Background(), cut)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func rows(t testing.TB, s *state, n checkpoint.BatchID) int {
	t.Helper()
	v, err := s.View(n)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	if err := v.Scan("n", func(_, _ []byte) error { count++; return nil }); err != nil {
		t.Fatal(err)
	}
	return count
}

func object(t *testing.T, store checkpoint.Store, f checkpoint.FileRef) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := checkpoint.CopyObject(t.Context(), store, &buf, f.Name, f.Size, f.CRC32C); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestTheSameCutGivesTheSameTableInThePinnedFormat(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	var first []byte
	for g := range checkpoint.Generation(2) {
		cut := cutOf(1, 0, 500, "value")
		if g == 1 {
			slices.Reverse(cut.Records)
		}
		given := slices.Clone(cut.Records[:3])
		files := apply(t, openState(t, o, config(g+1, 0)), cut)
		if !bytes.Equal(given[0].Key, cut.Records[0].Key) || !bytes.Equal(given[2].Key, cut.Records[2].Key) {
			t.Error("the cut was reordered")
		}
		table := object(t, store, files[0])
		if first == nil {
			first = table
		}
		if !bytes.Equal(table, first) {
			t.Error("the same records in another order gave other bytes")
		}
		// A table ends with its format version and Pebble's magic number.
		if end := []byte("\x07\x00\x00\x00\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"); !bytes.HasSuffix(table, end) {
			t.Errorf("the table ends with %q, want %q", table[len(table)-len(end):], end)
		}
	}
}

func TestBasesAreCutBetweenKeyGroups(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	s := openState(t, o, config(1, 0))
	s.baseFileBytes = 4 << 10
	apply(t, s, cutOf(1, 0, 300, "some value that takes room"))
	s.startBase()
	s.bases.Wait()
	files := apply(t, s, cutOf(2, 0, 1, "new"))
	bases := files[:len(files)-1]
	if len(bases) < 3 || len(bases) > groups || files[len(files)-1].Base {
		t.Fatalf("the chain is %+v", files)
	}
	next := 0
	for _, f := range bases {
		if !f.Base || f.Batch != 1 || f.GroupFrom != next || f.GroupTo <= f.GroupFrom {
			t.Errorf("base %+v, expected to begin at group %d", f, next)
		}
		next = f.GroupTo
		// What it holds is what it counts for: nothing is left to clip.
		path := filepath.Join(t.TempDir(), "table")
		if err := os.WriteFile(path, object(t, store, f), 0o666); err != nil {
			t.Fatal(err)
		}
		if clipped, err := s.tables.clip(t.Context(), path, span{f.GroupFrom, f.GroupTo}, s.owned()); clipped.path != path || err != nil {
			t.Errorf("base %+v was clipped to %+v, %v", f, clipped, err)
		}
	}
	if next != groups {
		t.Errorf("the bases end at group %d of %d", next, groups)
	}
	if got := rows(t, openState(t, o, config(2, 2, files...)), 2); got != 300*groups {
		t.Errorf("restored are %d rows", got)
	}
}

func TestABaseOfNothingDropsTheChain(t *testing.T) {
	o := newOpener(t, t.TempDir(), memstore.New())
	s := openState(t, o, config(1, 0))
	gone := cutOf(1, 0, 10, "x")
	apply(t, s, gone)
	for i := range gone.Records {
		gone.Records[i].Delete = true
	}
	gone.Batch = 2
	apply(t, s, gone)
	s.startBase()
	s.bases.Wait()
	if files := apply(t, s, &txn.Cut{Batch: 3}); len(files) != 0 {
		t.Errorf("an empty state has the files %+v", files)
	}
}

// gatedStore holds up or fails puts.
type gatedStore struct {
	checkpoint.Store
	put atomic.Pointer[func(ctx context.Context) error]
}

func (g *gatedStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if f := g.put.Load(); f != nil {
		if err := (*f)(ctx); err != nil {
			return err
		}
	}
	return g.Store.Put(ctx, name, body, size, crc)
}

func TestABaseThatFailsIsTriedAgain(t *testing.T) {
	store := &gatedStore{Store: memstore.New()}
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	apply(t, s, cutOf(1, 0, 10, "x"))
	fail := func(context.Context) error { return errors.New("outage") }
	store.put.Store(&fail)
	s.startBase()
	s.bases.Wait()
	store.put.Store(nil)
	if files := apply(t, s, cutOf(2, 0, 10, "y")); len(files) != 2 || files[0].Base {
		t.Fatalf("after a failed base the chain is %+v", files)
	}
	s.startBase()
	s.bases.Wait()
	if files := apply(t, s, cutOf(3, 0, 10, "z")); len(files) != 2 || !files[0].Base || files[1].Batch != 3 {
		t.Errorf("after a base the chain is %+v", files)
	}
}

func TestABaseInProgressHoldsUpNothing(t *testing.T) {
	store := &gatedStore{Store: memstore.New()}
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	apply(t, s, cutOf(1, 0, 10, "x"))
	arrived := make(chan struct{})
	hold := func(ctx context.Context) error {
		close(arrived)
		<-ctx.Done() // until Close
		return ctx.Err()
	}
	store.put.Store(&hold)
	s.startBase()
	<-arrived
	store.put.Store(nil)
	for n := checkpoint.BatchID(2); n < 5; n++ {
		if files := apply(t, s, cutOf(n, 0, 10, "y")); len(files) != int(n) {
			t.Errorf("batch %d: the chain is %+v", n, files)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get([]byte{0, 0, 0, 1}); err == nil {
		t.Error("a closed state could be read")
	}
}

func TestLocalFolders(t *testing.T) {
	dir := t.TempDir()
	generation := filepath.Join(dir, "0000000000000003")
	for _, path := range []string{filepath.Join(generation, "0", "db", "CURRENT"), filepath.Join(dir, "0000000000000001", "9", "x"), filepath.Join(dir, "notes", "x")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("junk"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	store := memstore.New()
	o := newOpener(t, dir, store)
	s := openState(t, o, config(3, 0))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != filepath.Base(generation) || left[1].Name() != "notes" {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	if _, err := o.OpenState(t.Context(), config(3, 0)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a live folder was opened again: %v", err)
	}
	var files []checkpoint.FileRef
	for n := range checkpoint.BatchID(3) {
		files = apply(t, s, cutOf(n+1, 0, 10, "x"))
	}
	clipped := config(4, 3, files...)
	clipped.GroupFrom, clipped.TaskID = 5, 7
	restored := openState(t, o, clipped)
	if err := o.Clean(); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, restored, 3); got != 10*(groups-5) {
		t.Errorf("restored are %d rows", got)
	}
	for _, s := range []*state{s, restored} {
		left, err := os.ReadDir(filepath.Join(s.dir, filesFolder))
		if err != nil || len(left) != 0 {
			t.Errorf("%s holds %v, %v", s.dir, left, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a closed state left its folder: %v", err)
		}
	}
	if again := openState(t, o, config(3, 0)); !again.Empty() {
		t.Error("a folder that was used before is not fresh")
	}
}

func TestKeysOfOtherTasksAndOtherFilesAreRefused(t *testing.T) {
	store := memstore.New()
	o := newOpener(t, t.TempDir(), store)
	c := config(1, 0)
	c.GroupFrom, c.GroupTo = 4, 8
	s := openState(t, o, c)
	for group, ok := range map[int]bool{3: false, 4: true, 7: true, 8: false} {
		cut := &txn.Cut{Batch: s.applied + 1, Records: []txn.Record{{Key: txn.AppendStateKey(nil, group, 1, nil), Value: []byte("x")}}}
		if _, err := s.Apply(t.Context(), cut); (err == nil) != ok {
			t.Errorf("key group %d: %v", group, err)
		}
	}
	twice := cutOf(s.applied+1, 0, 1, "x").Records[4:5]
	if _, err := s.Apply(t.Context(), &txn.Cut{Batch: s.applied + 1, Records: append(twice, twice...)}); err == nil {
		t.Error("a cut with the same key twice was applied")
	}
	text := "this is no table, although its checksum is right"
	ref := checkpoint.FileRef{Name: "data/text", Size: int64(len(text)), CRC32C: checkpoint.CRC([]byte(text)), GroupTo: groups}
	if err := store.Put(t.Context(), ref.Name, strings.NewReader(text), ref.Size, ref.CRC32C); err != nil {
		t.Fatal(err)
	}
	if _, err := o.OpenState(t.Context(), config(2, 1, ref)); err == nil || !strings.Contains(err.Error(), ref.Name) {
		t.Errorf("restore of a text: %v", err)
	}
}

func TestStats(t *testing.T) {
	o := newOpener(t, t.TempDir(), memstore.New())
	s := openState(t, o, config(1, 0))
	for n := range checkpoint.BatchID(3) {
		apply(t, s, cutOf(n+1, 0, 1000, strings.Repeat("x", 100)))
	}
	rows(t, s, 3)
	stats := s.Stats()
	if stats.Tables < 1 || stats.DiskBytes < 10_000 || stats.MemoryBytes < 1 || stats.ReadDepth < 1 {
		t.Errorf("the stats are %+v", stats)
	}
	if held, limit := o.CacheBytes(); held < 1000 || held > limit || limit != 8<<20 {
		t.Errorf("the cache holds %d of %d bytes", held, limit)
	}
	for g := range checkpoint.Generation(20) {
		s := openState(t, o, config(2+g, 0))
		var reader sync.WaitGroup
		reader.Go(func() {
			for open := true; open; {
				open = s.Stats() != checkpoint.StateStats{}
			}
		})
		apply(t, s, plus(1))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		reader.Wait()
	}
}

func BenchmarkApply(b *testing.B) {
	s := openState(b, newOpener(b, b.TempDir(), memstore.New()), config(1, 0))
	cut := cutOf(0, 0, 1000, "8 bytes.")
	for b.Loop() {
		cut.Batch++
		apply(b, s, cut)
		s.Release(cut.Batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(cut.Records)), "ns/record")
}
