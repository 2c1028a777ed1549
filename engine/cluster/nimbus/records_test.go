package nimbus

import (
	"context"
	"errors"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

func freely(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, done := context.WithCancel(ctx)
	return ctx, done, nil
}

// The store was put back to an older copy: what is known is of a later revision than there
// is, and is given up as soon as a write tells so.
func TestRecordsOfAnOlderCopy(t *testing.T) {
	server := memcluster.New()
	store := server.Connect("n")
	ctx := t.Context()
	r, err := openRecords[string](ctx, store, "b", freely)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"one", "two", "three"} {
		if err := r.set(ctx, "k", v); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.DeleteBucket(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	older, err := openRecords[string](ctx, server.Connect("n"), "b", freely)
	if err != nil {
		t.Fatal(err)
	}
	if err := older.set(ctx, "k", "one"); err != nil {
		t.Fatal(err)
	}
	if err := r.set(ctx, "k", "four"); !errors.Is(err, errMoved) {
		t.Errorf("written over an older copy: %v", err)
	}
	if err := r.load(ctx); err != nil {
		t.Fatal(err)
	}
	if v, _ := r.get("k"); v != "one" {
		t.Errorf("read %q", v)
	}
	if err := r.set(ctx, "k", "two again"); err != nil {
		t.Errorf("after it was read: %v", err)
	}
}

func TestRecordsAreWrittenOverWhatWasSeen(t *testing.T) {
	server := memcluster.New()
	ctx := t.Context()
	open := func() *records[string] {
		r, err := openRecords[string](ctx, server.Connect("n"), "b", freely, "skip")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := open()
	if err := a.create(ctx, "k", "one"); err != nil {
		t.Fatal(err)
	}
	b := open()
	if err := b.set(ctx, "k", "two"); err != nil {
		t.Fatal(err)
	}
	if err := a.set(ctx, "k", "late"); !errors.Is(err, errMoved) {
		t.Errorf("written over what was not seen: %v", err)
	}
	if err := a.remove(ctx, "k"); !errors.Is(err, errMoved) {
		t.Errorf("removed what was not seen: %v", err)
	}
	if err := a.create(ctx, "k", "late"); !errors.Is(err, cluster.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	if err := a.load(ctx); err != nil {
		t.Fatal(err)
	}
	if v, _ := a.get("k"); v != "two" {
		t.Errorf("read %q", v)
	}
	// A watch that is behind does not take back what was written since.
	old := a.kept["k"].revision
	if err := a.set(ctx, "k", "three"); err != nil {
		t.Fatal(err)
	}
	if a.see(cluster.Entry{Key: "k", Value: []byte(`"two"`), Revision: old}) {
		t.Error("an old entry was taken for news")
	}
	if err := a.set(ctx, "k", "four"); err != nil {
		t.Errorf("after an old entry: %v", err)
	}
	// Claimed by another, it is not to be written any more.
	if err := b.load(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.claim(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.set(ctx, "k", "late"); !errors.Is(err, errMoved) {
		t.Errorf("written over another's claim: %v", err)
	}
	if v, _ := b.get("k"); v != "four" {
		t.Errorf("claiming has made it %q", v)
	}
	if err := b.remove(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if b.see(cluster.Entry{Key: "skip", Value: []byte("no JSON"), Revision: 99}) || len(b.damaged) > 0 {
		t.Error("a key of others was read")
	}
}
