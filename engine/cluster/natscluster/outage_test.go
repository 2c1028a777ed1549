package natscluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// await waits until f holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	ctx := patient(t)
	for !f() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("in vain: %s", what)
		}
	}
}

// persist repeats what has no answer.
func persist(t *testing.T, f func() error) {
	t.Helper()
	await(t, "an answer", func() bool {
		err := f()
		if err != nil && !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestRestarts: a server that comes up never says that there is nothing, watches see all
// that changed, and nothing is left behind.
func TestRestarts(t *testing.T) {
	const restarts, watchers = 20, 5
	s := newSite(t, true)
	store := s.client(RoleNimbus, "nimbus")
	ctx := patient(t)
	b, err := store.Bucket(ctx, "assignments", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(ctx, "stays", []byte("here")); err != nil {
		t.Fatal(err)
	}
	var watches []<-chan cluster.Entry
	for range watchers {
		w, err := b.Watch(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	before := s.server.Subscriptions()

	var asking sync.WaitGroup
	done := make(chan struct{})
	for _, f := range []func() error{
		func() error { _, err := b.Get(ctx, "stays"); return err },
		func() error { _, err := store.Bucket(ctx, "assignments", false); return err },
		func() error {
			list, err := b.List(ctx)
			if err == nil && len(list) == 0 {
				return errors.New("the bucket is empty")
			}
			return err
		},
	} {
		asking.Go(func() {
			again := time.NewTicker(2 * time.Millisecond)
			defer again.Stop()
			for {
				select {
				case <-done:
					return
				case <-again.C:
				}
				if err := f(); err != nil && !errors.Is(err, cluster.ErrUnavailable) {
					t.Errorf("while the server is started again: %v", err)
				}
			}
		})
	}
	for n := range restarts {
		s.stop()
		s.start()
		persist(t, func() error { _, err := b.Put(ctx, "n", []byte(strconv.Itoa(n))); return err })
		for _, w := range watches {
			for e := range w {
				if e.Key == "stays" && e.Value == nil {
					t.Fatal("a watch says that a key is deleted that is there")
				}
				if e.Key == "n" && string(e.Value) == strconv.Itoa(n) {
					break
				}
			}
		}
	}
	close(done)
	asking.Wait()
	about, err := b.(*bucket).stream.Info(ctx)
	if err != nil || about.State.Consumers != 0 {
		t.Errorf("%d consumers, %v", about.State.Consumers, err)
	}
	if after := s.server.Subscriptions(); after > before {
		t.Errorf("%d subscriptions after %d restarts, %d before", after, restarts, before)
	}
}

// TestNoFalseSuccess: what was acknowledged is there, whatever happens to the connection.
func TestNoFalseSuccess(t *testing.T) {
	s := newSite(t, true)
	store, other := s.client(RoleNimbus, "cut"), s.client(RoleNimbus, "whole")
	ctx := patient(t)
	b, err := store.Bucket(ctx, "b", true)
	if err != nil {
		t.Fatal(err)
	}
	revision, err := b.Create(ctx, "n", []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	calm, err := other.Bucket(ctx, "b", false)
	if err != nil {
		t.Fatal(err)
	}
	proxy := s.proxy(store)
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(4 * time.Millisecond)): // of a connection's life
			}
			proxy.Cut()
			proxy.Heal()
			for !store.Connected() {
				select {
				case <-store.Changes():
				case <-stop:
					return
				}
			}
		}
	})
	n, successes, unknown := 0, 0, 0
	for successes < 20 || unknown < 3 {
		next, err := b.Update(ctx, "n", []byte(strconv.Itoa(n+1)), revision)
		switch {
		case err == nil:
			successes++
			n, revision = n+1, next
			if e, err := calm.Get(ctx, "n"); err != nil || e.Revision != next || string(e.Value) != strconv.Itoa(n) {
				t.Fatalf("acknowledged: %d as revision %d; there is %q, %d, %v", n, next, e.Value, e.Revision, err)
			}
		case errors.Is(err, cluster.ErrUnavailable):
			unknown++
			fallthrough
		case errors.Is(err, cluster.ErrMoved): // the unknown one has arrived late
			e, err := calm.Get(ctx, "n")
			if err != nil {
				t.Fatal(err)
			}
			if n, err = strconv.Atoi(string(e.Value)); err != nil {
				t.Fatal(err)
			}
			revision = e.Revision
			await(t, "a connection", store.Connected)
		default:
			t.Fatal(err)
		}
	}
	close(stop)
	cutting.Wait()
}

// TestTooLarge: what is too large is refused before it is sent, by name.
func TestTooLarge(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	ctx := patient(t)
	b, err := store.Bucket(ctx, "b", true)
	if err != nil {
		t.Fatal(err)
	}
	revision, err := b.Put(ctx, "k", make([]byte, ValueBytesMax))
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, ValueBytesMax+1)
	for what, f := range map[string]func() error{
		"put":    func() error { _, err := b.Put(ctx, "k", large); return err },
		"create": func() error { _, err := b.Create(ctx, "k", large); return err },
		"update": func() error { _, err := b.Update(ctx, "k", large, revision); return err },
	} {
		err := f()
		if err == nil || !strings.Contains(err.Error(), `"k"`) || !strings.Contains(err.Error(), "1048577") || !strings.Contains(err.Error(), "1048576") || errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if e, err := b.Get(ctx, "k"); err != nil || e.Revision != revision || !store.Connected() {
		t.Errorf("afterwards: revision %d, %v", e.Revision, err)
	}
	most := store.messageBytesMax()
	stop, err := store.Serve("s", func(_ context.Context, user string, body []byte) ([]byte, error) {
		if user != "local" {
			return nil, fmt.Errorf("the user is %q", user)
		}
		return make([]byte, most+len(body)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if reply, err := store.Request(ctx, "s", nil); err != nil || len(reply) != most {
		t.Errorf("the largest reply has %d bytes, %v", len(reply), err)
	}
	for what, body := range map[string][]byte{"reply": {1}, "request": make([]byte, most+1)} {
		if _, err := store.Request(ctx, "s", body); err == nil || !strings.Contains(err.Error(), strconv.Itoa(most+1)) || errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("too large a %s: %v", what, err)
		}
	}
}

// looking watches a bucket, and is told of nothing.
func looking(t *testing.T, b cluster.Bucket) <-chan cluster.Entry {
	w := &watch{bucket: b.(*bucket), out: make(chan cluster.Entry), every: 20 * time.Millisecond, known: map[string]uint64{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w.out
}

// TestNoHints: a watch finds what nobody has told it of.
func TestNoHints(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	b, err := store.Bucket(patient(t), "b", true)
	if err != nil {
		t.Fatal(err)
	}
	entries := looking(t, b)
	next := func() cluster.Entry {
		select {
		case e := <-entries:
			return e
		case <-patient(t).Done():
			t.Fatal("the change is not found")
		}
		panic("unreachable")
	}
	if e := next(); e.Key != "" {
		t.Errorf("of an empty bucket comes %+v", e)
	}
	for i := range 10 {
		if _, err := b.Put(patient(t), "k", []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if e := next(); e.Key != "k" || string(e.Value) != strconv.Itoa(i) {
			t.Errorf("watched: %+v", e)
		}
	}
}

// TestBucketGone: a watch tells that a bucket is gone, once, and finds the one that is
// made in its place.
func TestBucketGone(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	ctx := patient(t)
	b, err := store.Bucket(ctx, "b", true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := b.Put(ctx, "k"+strconv.Itoa(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	entries := looking(t, b)
	seen := map[string]bool{}
	sync := func(want ...string) {
		t.Helper()
		for e := range entries {
			if e.Key == "" {
				break
			}
			if seen[e.Key] = true; e.Value == nil {
				delete(seen, e.Key)
			}
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("seen: %q, want %q", got, want)
		}
	}
	sync("k0", "k1", "k2")
	if err := store.DeleteBucket(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(ctx, "k", nil); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("put: %v", err)
	}
	sync()
	select {
	case e := <-entries:
		t.Errorf("then comes %+v", e)
	case <-time.After(200 * time.Millisecond):
	}
	if b, err = store.Bucket(ctx, "b", true); err != nil {
		t.Fatal(err)
	}
	sync()
	if _, err := b.Put(ctx, "new", nil); err != nil {
		t.Fatal(err)
	}
	if e := <-entries; e.Key != "new" {
		t.Errorf("then comes %+v", e)
	}
}

// TestOlderCopy: the server's folder is replaced by an older copy of itself, so that a watch
// is beyond the end of the stream. It tells what is there then, and all that comes.
func TestOlderCopy(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	ctx := patient(t)
	b, err := store.Bucket(ctx, "b", true)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		persist(t, func() error { _, err := b.Put(ctx, key, []byte(value)); return err })
	}
	put("k", "old")
	s.stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(s.opts.StoreDir)); err != nil {
		t.Fatal(err)
	}
	s.start()
	for i := range 10 {
		put("k", strconv.Itoa(i))
	}
	put("new", "")
	entries, err := b.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	until := func(done func(e cluster.Entry) bool) {
		t.Helper()
		for e := range entries {
			if seen[e.Key] = string(e.Value); e.Value == nil {
				delete(seen, e.Key)
			}
			if done(e) {
				return
			}
		}
		t.Fatalf("nothing comes any more; seen so far: %q", seen)
	}
	synced := func(e cluster.Entry) bool { return e.Key == "" }
	until(synced)
	s.stop()
	if err := errors.Join(os.RemoveAll(s.opts.StoreDir), os.CopyFS(s.opts.StoreDir, os.DirFS(older))); err != nil {
		t.Fatal(err)
	}
	s.start()
	until(synced)
	if want := map[string]string{"k": "old"}; !maps.Equal(seen, want) {
		t.Errorf("of the older copy %q is told, want %q", seen, want)
	}
	put("k", "again")
	until(func(e cluster.Entry) bool { return string(e.Value) == "again" })
}

// TestAskAgain: a question that is lost is asked once more.
func TestAskAgain(t *testing.T) {
	store := newSite(t, false).client("", "")
	var asked atomic.Int32
	got, err := ask(patient(t), store, "subject", "", func(ctx context.Context) (string, error) {
		if asked.Add(1) == 1 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "answer", nil
	})
	if err != nil || got != "answer" || asked.Load() != 2 {
		t.Errorf("got %q, %v after %d questions", got, err, asked.Load())
	}
}
