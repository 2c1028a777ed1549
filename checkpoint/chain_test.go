package checkpoint

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestClipChainTakesEachFileOnceAndInOrder(t *testing.T) {
	old := []FileRef{
		{Name: "b0", Base: true, Batch: 5, GroupFrom: 0, GroupTo: 4},
		{Name: "d0", Batch: 7, GroupFrom: 0, GroupTo: 4},
		{Name: "shared", Batch: 6, GroupFrom: 4, GroupTo: 6},
		{Name: "b1", Base: true, Batch: 9, GroupFrom: 6, GroupTo: 9},
		{Name: "shared", Batch: 6, GroupFrom: 2, GroupTo: 4},
		{Name: "shared", Batch: 6, GroupFrom: 7, GroupTo: 9},
		{Name: "beyond", Batch: 6, GroupFrom: 8, GroupTo: 9},
	}
	got := ClipChain(old, 1, 8)
	want := []FileRef{
		{Name: "b0", Base: true, Batch: 5, GroupFrom: 1, GroupTo: 4},
		{Name: "b1", Base: true, Batch: 9, GroupFrom: 6, GroupTo: 8},
		{Name: "shared", Batch: 6, GroupFrom: 2, GroupTo: 6},
		{Name: "shared", Batch: 6, GroupFrom: 7, GroupTo: 8},
		{Name: "d0", Batch: 7, GroupFrom: 1, GroupTo: 4},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestClipChainKeepsEveryGroupOfEveryFileAcrossRescaling(t *testing.T) {
	const groups = 24
	type cell struct {
		name  string
		group int
	}
	cells := func(files []FileRef) map[cell]int {
		m := map[cell]int{}
		for _, f := range files {
			for g := f.GroupFrom; g < f.GroupTo; g++ {
				m[cell{f.Name, g}]++
			}
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		files := []FileRef{{Name: "a", Base: true, GroupTo: groups}, {Name: "b", Batch: 1, GroupFrom: 3, GroupTo: 17}, {Name: "c", Batch: 2, GroupTo: groups}}
		want := cells(files)
		for range rapid.IntRange(1, 5).Draw(t, "times") {
			tasks := rapid.IntRange(1, groups).Draw(t, "tasks")
			var next []FileRef
			for i := range tasks {
				next = append(next, ClipChain(files, i*groups/tasks, (i+1)*groups/tasks)...)
			}
			files = next
			got := cells(files)
			if len(got) != len(want) {
				t.Fatalf("%d group entries became %d", len(want), len(got))
			}
			for c, n := range got {
				if n != 1 || want[c] != 1 {
					t.Fatalf("%s counts %d times for group %d", c.name, n, c.group)
				}
			}
		}
		if one := ClipChain(files, 0, groups); len(one) != 3 {
			t.Fatalf("three files became %+v", one)
		}
	})
}

func TestBaseIsDueWhenDeltasOutweighItOrAreMany(t *testing.T) {
	delta := FileRef{Size: 1}
	for _, c := range []struct {
		chain []FileRef
		want  bool
	}{
		{nil, false},
		{slices.Repeat([]FileRef{delta}, 60), false},
		{slices.Repeat([]FileRef{delta}, 61), true},
		{[]FileRef{{Size: 1 << 20}}, false},
		{[]FileRef{{Size: 1<<20 + 1}}, true},
		{[]FileRef{{Base: true, Size: 3 << 20}, {Size: 3 << 20}}, false},
		{[]FileRef{{Base: true, Size: 3 << 20}, {Size: 3<<20 + 1}}, true},
	} {
		if got := BaseDue(c.chain); got != c.want {
			t.Errorf("%d files: due is %v", len(c.chain), got)
		}
	}
}

func TestRebaseKeepsNewerDeltasOnly(t *testing.T) {
	chain := []FileRef{{Name: "old", Base: true, Batch: 2}, {Name: "3", Batch: 3}, {Name: "4", Batch: 4}, {Name: "5", Batch: 5}}
	got := Rebase(chain, []FileRef{{Name: "new", Base: true, Batch: 4}}, 4)
	want := []FileRef{{Name: "new", Base: true, Batch: 4}, {Name: "5", Batch: 5}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Rebase(chain, nil, 5); len(got) != 0 {
		t.Errorf("an empty base with nothing newer gives %+v", got)
	}
}
