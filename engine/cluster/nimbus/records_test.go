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
