package natscluster

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// TestSweep: parts go when no object has named them for an hour, and not before.
func TestSweep(t *testing.T) {
	s := newSite(t, true)
	store := s.client(RoleNimbus, "nimbus")
	ctx := patient(t)
	set, err := store.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		t.Fatal(err)
	}
	o := set.(*objects)
	content := bytes.Repeat([]byte("0123456789abcdef"), 3*partBytes/16+1)
	put := func(name string) {
		t.Helper()
		if _, err := o.Put(ctx, name, bytes.NewReader(content), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	put("kept")
	put("replaced")
	old, _, err := o.Get(ctx, "replaced")
	if err != nil {
		t.Fatal(err)
	}
	put("replaced")
	if _, err := o.Put(ctx, "broken", io.MultiReader(bytes.NewReader(content), brokenReader{}), "", nil); !errors.Is(err, errBroken) {
		t.Errorf("put half of it: %v", err)
	}
	orphaned := func(want int) {
		t.Helper()
		uploads, err := o.orphaned(ctx)
		if err != nil || len(uploads) != want {
			t.Errorf("orphaned: %q, %v; want %d", uploads, err, want)
		}
	}
	orphaned(2)
	start := time.Now()
	for _, after := range []time.Duration{0, orphanAge - time.Second} {
		if err := store.sweep(ctx, start.Add(after)); err != nil {
			t.Fatal(err)
		}
		orphaned(2)
	}
	if got, err := io.ReadAll(old); err != nil || !bytes.Equal(got, content) {
		t.Errorf("who had begun to read the old content has %d bytes, %v", len(got), err)
	}
	again, _, err := o.Get(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.sweep(ctx, start.Add(orphanAge)); err != nil {
		t.Fatal(err)
	}
	orphaned(0)
	for name, r := range map[string]io.Reader{"kept": again, "replaced": mustGet(t, o, "replaced")} {
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes after the sweep, %v", name, len(got), err)
		}
	}
	if err := store.Sweep(ctx); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("broken off")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func mustGet(t *testing.T, o *objects, name string) io.Reader {
	t.Helper()
	r, _, err := o.Get(patient(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDamagedObject: parts that are gone or others than were put are told.
func TestDamagedObject(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	ctx := patient(t)
	set, err := store.Objects(ctx, "o")
	if err != nil {
		t.Fatal(err)
	}
	o := set.(*objects)
	content := bytes.Repeat([]byte("x"), 2*partBytes+5)
	for what, damage := range map[string]func(r record) error{
		"gone": func(r record) error { return o.purge(ctx, o.shelf.data(r.Upload)+"1") },
		"longer": func(r record) error {
			return o.publish(ctx, o.shelf.data(r.Upload)+"2", valueHeader(), []byte("longer"))
		},
		"other": func(r record) error {
			return o.publish(ctx, o.shelf.data(r.Upload)+"2", valueHeader(), []byte("xxxxy"))
		},
		"no value": func(r record) error { return o.publish(ctx, o.shelf.data(r.Upload)+"2", nil, []byte("xxxxx")) },
	} {
		if _, err := o.Put(ctx, what, bytes.NewReader(content), "", nil); err != nil {
			t.Fatal(err)
		}
		r, _, err := o.find(ctx, what)
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(r); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(mustGet(t, o, what)); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOrphans(t *testing.T) {
	var o orphans
	now := time.Now()
	due := func(after time.Duration, uploads []string, want ...string) {
		t.Helper()
		if got := o.due("s", uploads, now.Add(after)); !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	due(0, []string{"a"})
	due(orphanAge/2, []string{"a", "b"})
	due(orphanAge, []string{"a", "b"}, "a")
	due(orphanAge, []string{"a"}, "a") // b is named now
	due(2*orphanAge, []string{"b"})    // and no more
	if got := o.due("other", []string{"a"}, now.Add(3*orphanAge)); len(got) != 0 {
		t.Errorf("of another stream: %q", got)
	}
	due(3*orphanAge, []string{"b"}, "b")
}
