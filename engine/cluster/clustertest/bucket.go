package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

func bucketLife(t *testing.T, p Place) {
	s := p.Connect("alice")
	ctx := patient(t)
	_, err := s.Bucket(ctx, "one", false)
	wants(t, "open a bucket that is not there", err, cluster.ErrNotFound)
	one := bucket(t, s, "one")
	put(t, one, "k", "v")
	put(t, bucket(t, s, "two"), "other", "w")

	for _, create := range []bool{true, false} {
		again, err := p.Connect("bob").Bucket(ctx, "one", create)
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, again); !maps.Equal(got, map[string]string{"k": "v"}) {
			t.Errorf("opened again (create: %v) it holds %v", create, got)
		}
	}
	list := func(want ...string) {
		t.Helper()
		got, err := s.Buckets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("buckets %q, want %q", got, want)
		}
	}
	list("one", "two")
	if err := s.DeleteBucket(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	list("two")
	if err := s.DeleteBucket(ctx, "one"); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("delete it again: %v", err)
	}
	_, err = s.Bucket(ctx, "one", false)
	wants(t, "open a deleted bucket", err, cluster.ErrNotFound)
	if got := content(t, bucket(t, s, "one")); len(got) != 0 {
		t.Errorf("made again it holds %v", got)
	}
}

func compareAndSwap(t *testing.T, p Place) {
	b, other := bucket(t, p.Connect("alice"), "b"), bucket(t, p.Connect("bob"), "b")
	ctx := patient(t)
	_, err := b.Get(ctx, "k")
	wants(t, "get what is not there", err, cluster.ErrNotFound)
	_, err = b.Update(ctx, "k", []byte("x"), 7)
	wants(t, "update what is not there", err, cluster.ErrMoved)
	_, err = b.Update(ctx, "k", []byte("x"), 0)
	wants(t, "update what is not there, of revision 0", err, cluster.ErrMoved)
	wants(t, "delete a revision of what is not there", b.Delete(ctx, "k", 7), cluster.ErrMoved)
	wants(t, "delete what is not there", b.Delete(ctx, "k", 0), nil)

	first, err := b.Create(ctx, "k", []byte("1"))
	wants(t, "create", err, nil)
	_, err = other.Create(ctx, "k", []byte("x"))
	wants(t, "create again", err, cluster.ErrExists)
	second, err := other.Update(ctx, "k", []byte("2"), first)
	wants(t, "update", err, nil)
	_, err = b.Update(ctx, "k", []byte("x"), first)
	wants(t, "update an old revision", err, cluster.ErrMoved)
	wants(t, "delete an old revision", b.Delete(ctx, "k", first), cluster.ErrMoved)
	third := put(t, b, "k", "3")
	_, err = other.Update(ctx, "k", []byte("x"), second)
	wants(t, "update after a put", err, cluster.ErrMoved)
	fourth := put(t, b, "elsewhere", "4")
	if !slices.IsSorted([]uint64{1, first, second, third, fourth}) || first == second || second == third || third == fourth {
		t.Errorf("revisions %d, %d, %d, %d do not go up", first, second, third, fourth)
	}
	e, err := other.Get(ctx, "k")
	wants(t, "get", err, nil)
	if e.Key != "k" || string(e.Value) != "3" || e.Revision != third {
		t.Errorf("got %+v, want revision %d", e, third)
	}

	wants(t, "delete", other.Delete(ctx, "k", third), nil)
	_, err = b.Get(ctx, "k")
	wants(t, "get what was deleted", err, cluster.ErrNotFound)
	_, err = b.Update(ctx, "k", []byte("x"), third)
	wants(t, "update what was deleted", err, cluster.ErrMoved)
	again, err := b.Create(ctx, "k", []byte("5"))
	wants(t, "create what was deleted", err, nil)
	if again <= fourth {
		t.Errorf("revision %d after %d", again, fourth)
	}
	if got := content(t, other); !maps.Equal(got, map[string]string{"k": "5", "elsewhere": "4"}) {
		t.Errorf("in the end there is %v", got)
	}
}

func createRace(t *testing.T, p Place) {
	stores := []cluster.Store{p.Connect("alice"), p.Connect("bob")}
	ctx := patient(t)
	for round := range 5 {
		key := fmt.Sprint("key", round)
		var won atomic.Int32
		var winner atomic.Value
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 20 {
			b := bucket(t, stores[i%len(stores)], "b")
			all.Go(func() {
				<-start
				_, err := b.Create(ctx, key, []byte(strconv.Itoa(i)))
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(strconv.Itoa(i))
				case !errors.Is(err, cluster.ErrExists):
					t.Errorf("create: %v", err)
				}
			})
		}
		close(start)
		all.Wait()
		if got := content(t, bucket(t, stores[0], "b"))[key]; won.Load() != 1 || got != winner.Load() {
			t.Fatalf("%d of 20 have created it, the last %v; it holds %q", won.Load(), winner.Load(), got)
		}
	}
}

func updateRace(t *testing.T, p Place) {
	const writers, each = 8, 10
	ctx := patient(t)
	stores := []cluster.Store{p.Connect("alice"), p.Connect("bob")}
	put(t, bucket(t, stores[0], "b"), "n", "0")
	var all sync.WaitGroup
	for i := range writers {
		b := bucket(t, stores[i%len(stores)], "b")
		all.Go(func() {
			for done := 0; done < each; {
				e, err := b.Get(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(e.Value))
				_, err = b.Update(ctx, "n", []byte(strconv.Itoa(n+1)), e.Revision)
				if err == nil {
					done++
				} else if !errors.Is(err, cluster.ErrMoved) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := content(t, bucket(t, stores[0], "b"))["n"]; got != strconv.Itoa(writers*each) {
		t.Errorf("counted %s, want %d", got, writers*each)
	}
}

func values(t *testing.T, p Place) {
	s := p.Connect("alice")
	b := bucket(t, s, "b")
	ctx := patient(t)
	entries, err := b.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{entries: entries}
	w.sync(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, value := range map[string][]byte{"big": big, "empty": {}, "nil": nil, "binary": {0, 255, 10, 13}} {
		mine := bytes.Clone(value)
		if _, err := b.Put(ctx, name, mine); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range mine {
			mine[i] = '!'
		}
		got, err := b.Get(ctx, name)
		if err != nil || got.Value == nil || !bytes.Equal(got.Value, value) {
			t.Errorf("%s: got %d bytes (nil: %v), want %d; %v", name, len(got.Value), got.Value == nil, len(value), err)
		}
		if e := w.next(t); e.Key != name || e.Value == nil || !bytes.Equal(e.Value, value) {
			t.Errorf("%s: watched %q with %d bytes (nil: %v)", name, e.Key, len(e.Value), e.Value == nil)
		}
	}
	if got := content(t, b); got["big"] != string(big) || len(got) != 4 {
		t.Errorf("%d keys are listed", len(got))
	}
}

// oddNames are names of topologies, supervisors and blobs that users may choose.
var oddNames = []string{
	"plain", "two words", "a*b", "a>b", "*", ">", "100%", "zählen", "数える", "under_score", "-dash", "=", "$x", "a,b;c", "\"quoted\"", "UPPER", "upper", "a.b",
}

func names(t *testing.T, p Place) {
	s := p.Connect("alice")
	ctx := patient(t)
	b := bucket(t, s, "b")
	want := map[string]string{}
	for _, name := range oddNames {
		own := bucket(t, s, cluster.TopologyBucket(name))
		put(t, own, cluster.KeyIntent, name)
		put(t, b, name, "in "+name)
		want[name] = "in " + name
		objects, err := s.Objects(ctx, "o")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Put(ctx, name, bytes.NewReader([]byte(name)), "", nil); err != nil {
			t.Errorf("object %q: %v", name, err)
		}
		service := cluster.SupervisorService(name)
		stop, err := s.Serve(service, func(context.Context, string, []byte) ([]byte, error) { return []byte(name), nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if got := content(t, b); !maps.Equal(got, want) {
		t.Errorf("keys %q", slices.Sorted(maps.Keys(got)))
	}
	for _, name := range oddNames {
		if got := content(t, bucket(t, s, cluster.TopologyBucket(name))); got[cluster.KeyIntent] != name {
			t.Errorf("bucket of %q holds %v", name, got)
		}
		if got, err := b.Get(ctx, name); err != nil || string(got.Value) != "in "+name {
			t.Errorf("key %q: %q, %v", name, got.Value, err)
		}
		if got, err := s.Request(ctx, cluster.SupervisorService(name), nil); err != nil || string(got) != name {
			t.Errorf("service %q: %q, %v", name, got, err)
		}
		if got, err := fetch(ctx, s, "o", name); err != nil || string(got) != name {
			t.Errorf("object %q: %q, %v", name, got, err)
		}
	}
	buckets, err := s.Buckets(ctx)
	wants(t, "list buckets", err, nil)
	for _, name := range oddNames {
		if !slices.Contains(buckets, cluster.TopologyBucket(name)) {
			t.Errorf("bucket of %q is not listed in %q", name, buckets)
		}
	}
}

// valueTooLarge: a value above the limit of NATS is refused by name, and changes nothing.
func valueTooLarge(t *testing.T, p Place) {
	s := p.Connect("alice")
	b := bucket(t, s, "b")
	const most = 1 << 20
	revision := put(t, b, "k", strings.Repeat("v", most))
	large := make([]byte, most+1)
	for what, f := range map[string]func() error{
		"put":    func() error { _, err := b.Put(patient(t), "k", large); return err },
		"update": func() error { _, err := b.Update(patient(t), "k", large, revision); return err },
		"create": func() error { _, err := b.Create(patient(t), "new", large); return err },
	} {
		if err := f(); err == nil || errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint(most+1)) {
			t.Errorf("%s: error is %v, want one with the size", what, err)
		}
	}
	if got := content(t, b); len(got) != 1 || len(got["k"]) != most {
		t.Errorf("%d keys, %d bytes", len(got), len(got["k"]))
	}
}

func cancelledContext(t *testing.T, p Place) {
	s := p.Connect("alice")
	b := bucket(t, s, "b")
	revision := put(t, b, "k", "v")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Get(ctx, "k")
	wants(t, "get", err, context.Canceled)
	_, err = b.Put(ctx, "k", []byte("x"))
	wants(t, "put", err, context.Canceled)
	_, err = b.Update(ctx, "k", []byte("x"), revision)
	wants(t, "update", err, context.Canceled)
	_, err = b.List(ctx)
	wants(t, "list", err, context.Canceled)
	_, err = s.Request(ctx, "nobody", nil)
	wants(t, "request", err, context.Canceled)
	if got := content(t, b)["k"]; got != "v" {
		t.Errorf("written with a cancelled context: %q", got)
	}
}
