package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func manifestOf(names ...string) *Manifest {
	m := &Manifest{}
	for _, n := range names {
		m.Tasks = append(m.Tasks, TaskSnapshot{Files: []FileRef{{Name: n}}})
	}
	return m
}

func TestDeletableSparesWhatIsRetained(t *testing.T) {
	dropped := []*Manifest{manifestOf("d", "b", "a"), manifestOf("a", "c")}
	retained := []*Manifest{manifestOf("b", "x"), manifestOf("c")}
	if got := Deletable(dropped, retained); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("deletable are %v, want [a d]", got)
	}
	if got := Deletable(dropped, dropped); len(got) != 0 {
		t.Errorf("deletable are %v, want none", got)
	}
}

func TestOrphans(t *testing.T) {
	object := func(g Generation, unique string, ms int64) ObjectInfo {
		return ObjectInfo{Name: DataName(g, "count", 0, 1, unique), UnixMilli: ms}
	}
	orphan, orphanManifest := object(4, "orphan", 99), ObjectInfo{Name: ManifestName(4, 7, "r", "u"), UnixMilli: 1}
	named, recent, present := object(4, "named", 1), object(4, "recent", 100), object(5, "present", 1)
	objects := []ObjectInfo{
		orphan, orphanManifest, named, recent, present, object(6, "future", 1),
		{Name: "savepoint/1", UnixMilli: 1}, {Name: "data/4/x", UnixMilli: 1},
	}
	got := Orphans(objects, map[string]bool{named.Name: true}, 5, 100)
	if !slices.Equal(got, []string{orphan.Name, orphanManifest.Name}) {
		t.Errorf("orphans are %v, want %v and %v", got, orphan.Name, orphanManifest.Name)
	}
}

func TestNamesTellTheirGeneration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Generation(rapid.Uint64().Draw(t, "generation"))
		n := BatchID(rapid.Uint64().Draw(t, "batch"))
		text, unique := rapid.String().Draw(t, "text"), rapid.StringMatching(`[0-9a-f]{1,8}`).Draw(t, "unique")
		for _, name := range []string{ManifestName(g, n, text, unique), DataName(g, text, 3, n, unique)} {
			if got, ok := NameGeneration(name); !ok || got != g {
				t.Fatalf("%q: generation is %d %v, want %d", name, got, ok, g)
			}
			if i := strings.IndexFunc(name, func(r rune) bool {
				return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/", r)
			}); i >= 0 {
				t.Fatalf("%q is no object name", name)
			}
		}
		if region, none := NameOwner(ManifestName(g, n, text, unique)); region != text || none != "" {
			t.Fatalf("the manifest of region %q is one of %q and %q", text, region, none)
		}
		if none, component := NameOwner(DataName(g, text, 3, n, unique)); component != text || none != "" {
			t.Fatalf("the object of component %q is one of %q and %q", text, none, component)
		}
		other := rapid.String().Draw(t, "other")
		if (DataName(g, text, 3, n, unique) == DataName(g, other, 3, n, unique)) != (text == other) {
			t.Fatalf("%q and %q share a name", text, other)
		}
	})
}

func TestForeignNamesTellNone(t *testing.T) {
	for _, name := range []string{"", "data/", "data/00000000000000zz/x", "data/0000000000000001.x", "manifest/0000000000000001/x", "other/0000000000000001/x"} {
		if g, ok := NameGeneration(name); ok {
			t.Errorf("%q tells generation %d", name, g)
		}
		if region, component := NameOwner(name); region != "" || component != "" {
			t.Errorf("%q is of region %q and component %q", name, region, component)
		}
	}
}
