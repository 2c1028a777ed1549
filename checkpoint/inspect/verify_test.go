package inspect_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/txn"
)

// sums makes a checkpoint of two tasks, each with a set and a merged row in each of its
// key groups, and a deleted one.
func sums(t *testing.T) (checkpoint.Store, *checkpoint.Manifest) {
	t.Helper()
	store := memstore.New()
	o := pebblestate.New(pebblestate.Options{Dir: t.TempDir(), Store: store})
	t.Cleanup(func() { _ = o.Close() })
	m := &checkpoint.Manifest{
		Topology: "t", RunID: "r", Region: "a", Generation: 1, Batch: 1, UnixMilli: 1, Engine: "e", Table: checkpoint.TableFormat,
		KeyGroups: keyGroups, Graph: "g", Components: map[string]checkpoint.ComponentMeta{"count": {Parallelism: 2, Keyed: true}},
	}
	metas := as("aggregate", "value")
	for i := range 2 {
		conf := checkpoint.StateConfig{Component: "count", TaskIndex: i, TaskID: checkpoint.TaskID(i), Generation: 1, GroupFrom: i * 4, GroupTo: i*4 + 4}
		s, err := o.OpenState(t.Context(), conf)
		if err != nil {
			t.Fatal(err)
		}
		cut := &txn.Cut{Batch: 1}
		for g := conf.GroupFrom; g < conf.GroupTo; g++ {
			value := []byte{1, 0, 0, 0, 0, 0, 0, 0, 7}
			cut.Records = append(cut.Records,
				txn.Record{Key: txn.AppendStateKey(nil, g, 1, []byte("\x08set")), Value: value},
				txn.Record{Key: txn.AppendStateKey(nil, g, 1, []byte("\x08merged")), Value: value, Merge: true},
				txn.Record{Key: txn.AppendStateKey(nil, g, 1, []byte("\x08deleted")), Delete: true})
		}
		cut.Records = append(cut.Records, txn.Record{Key: txn.AppendStateKey(nil, conf.GroupFrom, 2, []byte("\x08x")), Value: []byte{1, 'v'}})
		files, err := s.Apply(t.Context(), cut)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		m.Tasks = append(m.Tasks, checkpoint.TaskSnapshot{Component: "count", Index: i, Files: files, States: metas})
	}
	return store, m
}

// verify stores a manifest and returns what is wrong, by object.
func verify(t *testing.T, store checkpoint.Store, m *checkpoint.Manifest, before func(ref checkpoint.Ref)) map[string]string {
	t.Helper()
	data, err := checkpoint.EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	ref := checkpoint.Ref{Generation: m.Generation, Batch: m.Batch, Manifest: checkpoint.ManifestName(m.Generation, m.Batch, "a", t.Name()),
		Size: int64(len(data)), CRC32C: checkpoint.CRC(data)}
	if err := store.Put(t.Context(), ref.Manifest, bytes.NewReader(data), ref.Size, ref.CRC32C); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(ref)
	}
	wrong, objects := map[string]string{}, 0
	err = inspect.Verify(t.Context(), store, []checkpoint.Ref{ref}, func(f inspect.Finding) {
		objects++
		if f.Err != nil {
			wrong[f.Object] = f.Err.Error()
			if !inspect.Damage(f.Err) || !slices.Contains(f.Of, ref) {
				t.Errorf("%s of %v: %v", f.Object, f.Of, f.Err)
			}
		}
	})
	if err != nil || objects != 3 && len(wrong) == 0 {
		t.Fatalf("%d objects, %v", objects, err)
	}
	return wrong
}

func TestVerifyFindsWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(m *checkpoint.Manifest)
		before func(s checkpoint.Store, m *checkpoint.Manifest, ref checkpoint.Ref)
		want   string
		bad    int
	}{
		"right":  {func(*checkpoint.Manifest) {}, nil, "", 0},
		"others": {func(m *checkpoint.Manifest) { swapNames(m) }, nil, "the file is one of", 2},
		// After a rescale a file holds rows that do not count.
		"older generation": {func(m *checkpoint.Manifest) { swapNames(m); m.Generation = 2 }, nil, "", 0},
		"groups":           {func(m *checkpoint.Manifest) { m.KeyGroups = 2; regroup(m, 2) }, nil, "there are 2", 2},
		"a task's groups":  {func(m *checkpoint.Manifest) { m.Tasks[0].Files[0].GroupTo = 5 }, nil, "owns the key groups [0,4), its file", 1},
		"base":             {func(m *checkpoint.Manifest) { m.Tasks[0].Files[0].Base = true }, nil, "of a base deletes or merges", 1},
		"kind":             {func(m *checkpoint.Manifest) { m.Tasks[1].States = as("value", "value") }, nil, "is to be merged, its state is of kind value", 1},
		"layout":           {func(m *checkpoint.Manifest) { m.Tasks[0].States = as("aggregate", "value+ttl") }, nil, "its value has 2 bytes", 1},
		"file gone": {func(*checkpoint.Manifest) {}, func(s checkpoint.Store, m *checkpoint.Manifest, _ checkpoint.Ref) {
			_ = s.Delete(t.Context(), m.Tasks[1].Files[0].Name)
		}, "not found", 1},
		"manifest gone": {func(*checkpoint.Manifest) {}, func(s checkpoint.Store, _ *checkpoint.Manifest, ref checkpoint.Ref) {
			_ = s.Delete(t.Context(), ref.Manifest)
		}, "not found", 1},
	} {
		t.Run(name, func(t *testing.T) {
			store, m := sums(t)
			c.spoil(m)
			wrong := verify(t, store, m, func(ref checkpoint.Ref) {
				if c.before != nil {
					c.before(store, m, ref)
				}
			})
			if c.bad > 0 && len(wrong) != c.bad || (c.want == "") != (len(wrong) == 0) {
				t.Errorf("wrong are %q", wrong)
			}
			for object, text := range wrong {
				if !strings.Contains(text, c.want) {
					t.Errorf("%s: %s", object, text)
				}
			}
		})
	}
}

func swapNames(m *checkpoint.Manifest) {
	a, b := &m.Tasks[0].Files[0], &m.Tasks[1].Files[0]
	a.Name, a.Size, a.CRC32C, b.Name, b.Size, b.CRC32C = b.Name, b.Size, b.CRC32C, a.Name, a.Size, a.CRC32C
}

func regroup(m *checkpoint.Manifest, groups int) {
	for i := range m.Tasks {
		f := &m.Tasks[i].Files[0]
		f.GroupFrom, f.GroupTo, f.Generation = i*groups/2, (i+1)*groups/2, 1
	}
	m.Generation = 2
}

// as describes the states, of which the first has rows that are to be merged.
func as(first, second string) []txn.StateMeta {
	return []txn.StateMeta{{ID: 1, Name: "n", Kind: first, Codec: "sum", Version: 1}, {ID: 2, Name: "m", Kind: second, Codec: "string", Version: 1}}
}

// A state that was dropped is not looked into any more, though its rows may still be there.
func TestDroppedStatesAreNotShown(t *testing.T) {
	store, m := sums(t)
	for i := range m.Tasks {
		states := slices.Clone(m.Tasks[i].States)
		states[0].Drop()
		states = append(states, txn.StateMeta{ID: 3, Name: m.Tasks[i].States[0].Name, Kind: "aggregate", Codec: "sum", Version: 1})
		m.Tasks[i].States = states
	}
	c, err := inspect.New(store, m)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.States()
	if err != nil || len(all) != 2 {
		t.Fatalf("%d states, %v, want 2", len(all), err)
	}
	for _, s := range all {
		if n, err := s.Count(t.Context(), inspect.Prefix{}); err != nil || s.Meta.ID == 1 || s.Meta.ID == 3 && n.Entries > 0 {
			t.Errorf("state %q, %d, holds %d entries, %v", s.Meta.Name, s.Meta.ID, n.Entries, err)
		}
	}
	for object, wrong := range verify(t, store, m, nil) {
		if wrong != "" {
			t.Errorf("%s: %s", object, wrong)
		}
	}
}
