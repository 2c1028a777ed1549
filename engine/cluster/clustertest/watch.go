package clustertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// watcher follows a bucket as its users do.
type watcher struct {
	entries <-chan cluster.Entry
	seen    map[string]string
	last    uint64 // revision
}

func watch(t *testing.T, b cluster.Bucket, prefix string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	entries, err := b.Watch(ctx, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{entries: entries, seen: map[string]string{}}
}

// next receives an entry and applies it.
func (w *watcher) next(t *testing.T) cluster.Entry {
	t.Helper()
	select {
	case e, ok := <-w.entries:
		if !ok {
			t.Fatal("the watch was closed")
		}
		switch {
		case e.Key == "":
			w.last = 0
		case e.Value == nil:
			delete(w.seen, e.Key)
		default:
			if w.seen == nil {
				w.seen = map[string]string{}
			}
			w.seen[e.Key] = string(e.Value)
		}
		return e
	case <-patient(t).Done():
		t.Fatalf("nothing comes; seen so far: %v", w.seen)
	}
	panic("unreachable")
}

// sync receives up to an entry without a key and returns how many came before it.
func (w *watcher) sync(t *testing.T) int {
	t.Helper()
	for n := 0; ; n++ {
		if e := w.next(t); e.Key == "" {
			if e.Value != nil {
				t.Errorf("the entry without a key has a value: %q", e.Value)
			}
			return n
		}
	}
}

// until receives until a key has a value, which must go up in revision.
func (w *watcher) until(t *testing.T, key, value string) {
	t.Helper()
	for w.seen[key] != value {
		e := w.next(t)
		if e.Key != "" && e.Revision <= w.last {
			t.Errorf("%q: revision %d came after %d", e.Key, e.Revision, w.last)
		}
		w.last = max(w.last, e.Revision)
	}
}

func watchChanges(t *testing.T, p Place) {
	b, other := bucket(t, p.Connect("alice"), "b"), bucket(t, p.Connect("bob"), "b")
	empty := watch(t, b, "")
	if n := empty.sync(t); n != 0 {
		t.Errorf("%d entries of an empty bucket", n)
	}
	put(t, b, "gone", "0")
	put(t, b, "a", "1")
	put(t, b, "b", "2")
	put(t, b, "a", "3")
	remove(t, b, "gone")
	w := watch(t, b, "")
	if n := w.sync(t); n != 2 || !maps.Equal(w.seen, map[string]string{"a": "3", "b": "2"}) {
		t.Errorf("%d entries, of %v", n, w.seen)
	}
	revision := put(t, other, "c", "4")
	if e := w.next(t); e.Key != "c" || string(e.Value) != "4" || e.Revision != revision {
		t.Errorf("the change is %+v, want revision %d", e, revision)
	}
	remove(t, other, "a")
	if e := w.next(t); e.Key != "a" || e.Value != nil {
		t.Errorf("the deletion is %+v", e)
	}
	put(t, b, "a", "5")
	if e := w.next(t); e.Key != "a" || string(e.Value) != "5" {
		t.Errorf("after it comes %+v", e)
	}
	empty.until(t, "a", "5")
	if want := content(t, b); !maps.Equal(empty.seen, want) || !maps.Equal(w.seen, want) {
		t.Errorf("watched %v and %v, there is %v", empty.seen, w.seen, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	short, err := b.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range short { // ends, or the test does not
	}
}

func watchPrefix(t *testing.T, p Place) {
	b := bucket(t, p.Connect("alice"), "b")
	put(t, b, "web-1", "1")
	put(t, b, "we", "2")
	put(t, b, "db-1", "3")
	w := watch(t, b, "web")
	if n := w.sync(t); n != 1 || w.seen["web-1"] != "1" {
		t.Errorf("%d entries, of %v", n, w.seen)
	}
	put(t, b, "db-2", "4")
	put(t, b, "web", "5")
	remove(t, b, "db-1")
	remove(t, b, "web-1")
	put(t, b, "we", "6")
	put(t, b, "webs", "7")
	w.until(t, "webs", "7")
	if !maps.Equal(w.seen, map[string]string{"web": "5", "webs": "7"}) {
		t.Errorf("seen %v", w.seen)
	}
}

// watchWhileWritten: whatever is skipped, the end is right, and nothing comes out of order.
func watchWhileWritten(t *testing.T, p Place) {
	stores := []cluster.Store{p.Connect("alice"), p.Connect("bob")}
	b := bucket(t, stores[0], "b")
	ctx := patient(t)
	for i := range 20 {
		put(t, b, fmt.Sprint("k", i), "before")
	}
	var all sync.WaitGroup
	var received atomic.Bool
	defer all.Wait()
	defer received.Store(true)
	for i, s := range stores {
		b := bucket(t, s, "b")
		all.Go(func() {
			for n := 0; ctx.Err() == nil && (n < 100 || !received.Load()); n++ {
				key := fmt.Sprint("k", (n*7+i)%30)
				var err error
				if n%4 == 3 {
					err = b.Delete(ctx, key, 0)
				} else {
					_, err = b.Put(ctx, key, []byte(fmt.Sprint(i, n)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	early := watch(t, b, "")
	early.sync(t)
	for range 5 { // let changes pile up behind this one
		early.next(t)
	}
	received.Store(true)
	all.Wait()
	put(t, b, "end", "end")
	early.until(t, "end", "end")
	late := watch(t, b, "")
	late.sync(t)
	want := content(t, b)
	if !maps.Equal(early.seen, want) || !maps.Equal(late.seen, want) {
		t.Errorf("watched %v and %v, there is %v", early.seen, late.seen, want)
	}
}

// watchAfterCut: what changed meanwhile is there after the next entry without a key,
// deletions too.
func watchAfterCut(t *testing.T, p Place) {
	s := p.Connect("alice")
	b, other := bucket(t, s, "b"), bucket(t, p.Connect("bob"), "b")
	put(t, b, "stays", "1")
	put(t, b, "changes", "2")
	put(t, b, "goes", "3")
	w := watch(t, b, "")
	w.sync(t)
	put(t, b, "goes too", "4")
	w.until(t, "goes too", "4")
	for round := range 2 {
		p.Cut(s)
		awaitConnected(t, s, false)
		remove(t, other, "goes")
		remove(t, other, "goes too")
		remove(t, other, "comes again")
		put(t, other, "comes again", fmt.Sprint(round))
		put(t, other, "changes", fmt.Sprint("changed", round))
		p.Heal(s)
		w.sync(t)
		if want := content(t, other); !maps.Equal(w.seen, want) || len(want) != 3 {
			t.Errorf("watched %v, there is %v", w.seen, want)
		}
		awaitConnected(t, s, true)
		put(t, other, "goes", "back")
		w.until(t, "goes", "back")
	}
}

func watchAfterRestart(t *testing.T, p Place) {
	s := p.Connect("alice")
	b := bucket(t, s, "b")
	put(t, b, "k", "1")
	remove(t, b, "k")
	put(t, b, "l", "2")
	w := watch(t, b, "")
	w.sync(t)
	p.Stop()
	awaitConnected(t, s, false)
	p.Start()
	w.sync(t)
	if !maps.Equal(w.seen, map[string]string{"l": "2"}) {
		t.Errorf("after the restart: %v", w.seen)
	}
	answered(t, func() error {
		_, err := b.Put(patient(t), "k", []byte("3"))
		return err
	})
	w.until(t, "k", "3")
}

// outage: everything fails for as long as it lasts, and what was written is kept.
func outage(t *testing.T, p Place) {
	s := p.Connect("alice")
	b := bucket(t, s, "b")
	ctx := patient(t)
	objects, err := s.Objects(ctx, "o")
	wants(t, "open objects", err, nil)
	revision := put(t, b, "k", "v")
	awaitConnected(t, s, true)
	p.Stop()
	awaitConnected(t, s, false)
	for what, f := range map[string]func() error{
		"get":         func() error { _, err := b.Get(ctx, "k"); return err },
		"create":      func() error { _, err := b.Create(ctx, "new", nil); return err },
		"update":      func() error { _, err := b.Update(ctx, "k", []byte("w"), revision); return err },
		"put":         func() error { _, err := b.Put(ctx, "other", nil); return err },
		"delete":      func() error { return b.Delete(ctx, "k", 0) },
		"list":        func() error { _, err := b.List(ctx); return err },
		"open":        func() error { _, err := s.Bucket(ctx, "c", true); return err },
		"buckets":     func() error { _, err := s.Buckets(ctx); return err },
		"request":     func() error { _, err := s.Request(ctx, "nobody", nil); return err },
		"info":        func() error { _, err := objects.Info(ctx, "x"); return err },
		"put object":  func() error { _, err := objects.Put(ctx, "x", text("x"), "", nil); return err },
		"list object": func() error { _, err := objects.List(ctx); return err },
	} {
		if err := f(); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Start()
	awaitConnected(t, s, true)
	answered(t, func() error { _, err := b.List(ctx); return err })
	e, err := b.Get(ctx, "k")
	if errors.Is(err, cluster.ErrNotFound) {
		return // the deletion, of which nobody knew what became of it, was done
	}
	if err != nil || e.Revision < revision {
		t.Errorf("after the outage: %+v, %v", e, err)
	}
}
