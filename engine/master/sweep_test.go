package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// keeping is a store that may refuse to delete, as a bucket may whose policy forbids it.
type keeping struct {
	*memstore.Store
	refuses func(name string) bool
}

func all(string) bool  { return true }
func none(string) bool { return false }

func (k *keeping) Delete(ctx context.Context, name string) error {
	if k.refuses(name) {
		return errors.New("access denied")
	}
	return k.Store.Delete(ctx, name)
}

// commit stores a checkpoint of one file.
func (k *keeping) commit(t *testing.T, n checkpoint.BatchID) checkpoint.Ref {
	t.Helper()
	put := func(name string, data []byte) (size int64, crc uint32) {
		size, crc = int64(len(data)), checkpoint.CRC(data)
		if err := k.Put(t.Context(), name, bytes.NewReader(data), size, crc); err != nil {
			t.Fatal(err)
		}
		return size, crc
	}
	f := checkpoint.FileRef{Name: checkpoint.DataName(1, "c", 0, n, "u"), Generation: 1, Batch: n, GroupTo: 1}
	f.Size, f.CRC32C = put(f.Name, []byte("rows"))
	data, err := checkpoint.EncodeManifest(&checkpoint.Manifest{Topology: "t", RunID: "r", Region: "c", Generation: 1, Batch: n, Engine: "e",
		Table: "f", Graph: "g", KeyGroups: 1, Components: map[string]checkpoint.ComponentMeta{"c": {Parallelism: 1}},
		Tasks: []checkpoint.TaskSnapshot{{Component: "c", Files: []checkpoint.FileRef{f}}}})
	if err != nil {
		t.Fatal(err)
	}
	ref := checkpoint.Ref{Generation: 1, Batch: n, Manifest: checkpoint.ManifestName(1, n, "c", "u")}
	ref.Size, ref.CRC32C = put(ref.Manifest, data)
	return ref
}

func (k *keeping) count(t *testing.T) (n int) {
	t.Helper()
	for _, err := range k.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Case: a clean-up that could not be done kept all that it was about in memory, until the
// process died. What is given up here are orphans once the generation has passed.
func TestStoreThatRefusesToDeleteFillsNoMemory(t *testing.T) {
	const retained, more = 3, 50
	store := &keeping{memstore.New(), all}
	s := &sweeper{store: store, log: slog.New(slog.DiscardHandler), ctx: t.Context(), manifests: map[string]*checkpoint.Manifest{}}
	var refs []checkpoint.Ref
	commit := func(n int, generation checkpoint.Generation) {
		var dropped []checkpoint.Ref
		refs = append(refs, store.commit(t, checkpoint.BatchID(n)))
		if len(refs) > retained {
			dropped, refs = refs[:1], refs[1:]
		}
		s.moved(&checkpoint.Head{Generation: generation, Regions: map[string]checkpoint.RegionHead{
			"c": {Generation: generation, Retained: slices.Clone(refs)}}}, dropped)
		s.work()
	}
	last := droppedMax + retained + more
	for n := range last {
		commit(n+1, 1)
	}
	if len(s.dropped) != droppedMax || len(s.manifests) > retained {
		t.Errorf("%d checkpoints and %d manifests are in memory, want %d and %d", len(s.dropped), len(s.manifests), droppedMax, retained)
	}
	store.refuses = none
	commit(last+1, 1)
	if n, want := store.count(t), 2*(retained+more); n != want || len(s.dropped) > 0 {
		t.Errorf("%d objects are left and %d checkpoints still to be deleted, want %d and 0", n, len(s.dropped), want)
	}
	s.tidied = s.tidied.Add(-tidyMin)
	s.grace = -tidyMin // what is written now is old
	commit(last+2, 2)
	if n, want := store.count(t), 2*retained; n != want {
		t.Errorf("%d objects are left after the generation, want %d", n, want)
	}
}

// What was deleted before the store failed is not looked for again.
func TestSweepGoesOnWhereItFailed(t *testing.T) {
	store := &keeping{memstore.New(), none}
	s := &sweeper{store: store, log: slog.New(slog.DiscardHandler), ctx: t.Context(), manifests: map[string]*checkpoint.Manifest{}}
	var refs []checkpoint.Ref
	for n := range checkpoint.BatchID(5) {
		refs = append(refs, store.commit(t, n+1))
	}
	h := &checkpoint.Head{Generation: 1, Regions: map[string]checkpoint.RegionHead{"c": {Generation: 1, Retained: refs[4:]}}}
	store.refuses = func(name string) bool { return name == refs[2].Manifest }
	left, err := s.sweep(h, refs[:4])
	if err == nil || !slices.Equal(left, refs[2:4]) || store.count(t) != 5 {
		t.Errorf("%v, still to be deleted are %v, there are %d objects", err, left, store.count(t))
	}
	store.refuses = none
	if left, err = s.sweep(h, left); len(left) > 0 || err != nil || store.count(t) != 2 {
		t.Errorf("%v, still to be deleted are %v, there are %d objects", err, left, store.count(t))
	}
}

// A region that goes on undisturbed, or has finished, keeps nothing of another one.
func TestOrphansAreThoseOfTheirRegion(t *testing.T) {
	store := &keeping{memstore.New(), none}
	s := &sweeper{store: store, log: slog.New(slog.DiscardHandler), ctx: t.Context(), grace: -tidyMin,
		owners: map[string]string{"a": "first", "b-1.x": "second"}}
	h := &checkpoint.Head{Generation: 9, Regions: map[string]checkpoint.RegionHead{"first": {Generation: 9}, "second": {Generation: 4}}}
	want := map[string]bool{}
	for g := range checkpoint.Generation(10) {
		for name, stays := range map[string]bool{
			checkpoint.DataName(g, "a", 0, 1, "u"):       g >= 9,
			checkpoint.DataName(g, "b-1.x", 12, 1, "u"):  g >= 4,
			checkpoint.DataName(g, "b", 1, 1, "u"):       g >= 4, // nobody's
			checkpoint.ManifestName(g, 1, "first", "u"):  g >= 9,
			checkpoint.ManifestName(g, 1, "second", "u"): g >= 4,
			checkpoint.ManifestName(g, 1, "gone", "u"):   g >= 4,
		} {
			if err := store.Put(t.Context(), name, bytes.NewReader(nil), 0, 0); err != nil {
				t.Fatal(err)
			}
			if stays {
				want[name] = true
			}
		}
	}
	if err := s.tidy(h, nil); err != nil {
		t.Fatal(err)
	}
	for o, err := range store.List(t.Context(), "") {
		if err != nil || !want[o.Name] {
			t.Errorf("%s is left, %v", o.Name, err)
		}
		delete(want, o.Name)
	}
	if len(want) > 0 {
		t.Errorf("deleted are %v", slices.Sorted(maps.Keys(want)))
	}
}
