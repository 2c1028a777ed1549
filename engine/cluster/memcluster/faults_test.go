package memcluster_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

func bucket(t *testing.T, s cluster.Store) cluster.Bucket {
	t.Helper()
	b, err := s.Bucket(t.Context(), "b", true)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

func TestUnknownWriteIsDone(t *testing.T) {
	server := memcluster.New()
	alice, bob := server.Connect("alice"), server.Connect("bob")
	b, other := bucket(t, alice), bucket(t, bob)
	ctx := t.Context()
	alice.Unknown()
	_, err := other.Create(ctx, "bob's", nil)
	wants(t, "another's create", err, nil)
	_, err = b.Get(ctx, "bob's")
	wants(t, "a read", err, nil)
	_, err = b.Create(ctx, "k", []byte("v"))
	wants(t, "create", err, cluster.ErrUnavailable)
	_, err = b.Create(ctx, "k", []byte("v"))
	wants(t, "create again", err, cluster.ErrExists)

	server.Unknown()
	wants(t, "delete", other.Delete(ctx, "k", 0), cluster.ErrUnavailable)
	_, err = b.Get(ctx, "k")
	wants(t, "get", err, cluster.ErrNotFound)

	objects, err := alice.Objects(ctx, "o")
	wants(t, "objects", err, nil)
	alice.Unknown()
	alice.Unknown()
	_, err = objects.Put(ctx, "x", strings.NewReader("x"), "", nil)
	wants(t, "put object", err, cluster.ErrUnavailable)
	wants(t, "describe", objects.SetMeta(ctx, "x", map[string]string{"a": "b"}), cluster.ErrUnavailable)
	if info, err := objects.Info(ctx, "x"); err != nil || info.Meta["a"] != "b" {
		t.Errorf("object: %+v, %v", info, err)
	}
	alice.Unknown()
	_, err = alice.Bucket(ctx, "b", true)
	wants(t, "open a bucket that is there", err, nil)
	_, err = alice.Bucket(ctx, "new", true)
	wants(t, "make a bucket", err, cluster.ErrUnavailable)
	_, err = alice.Bucket(ctx, "new", false)
	wants(t, "open it", err, nil)
}

func TestLostReplyWasHandled(t *testing.T) {
	server := memcluster.New()
	nimbus, alice := server.Connect("nimbus"), server.Connect("alice")
	handled := 0
	stop, err := nimbus.Serve("s", func(context.Context, string, []byte) ([]byte, error) {
		handled++
		return []byte("done"), nil
	})
	wants(t, "serve", err, nil)
	defer stop()
	alice.LoseReply()
	_, err = alice.Request(t.Context(), "s", nil)
	wants(t, "request", err, cluster.ErrUnavailable)
	if handled != 1 {
		t.Errorf("handled %d times", handled)
	}
	got, err := alice.Request(t.Context(), "s", nil)
	if err != nil || string(got) != "done" || handled != 2 {
		t.Errorf("the next: %q, %v; handled %d times", got, err, handled)
	}
}

func TestCutIsForOneClient(t *testing.T) {
	server := memcluster.New()
	alice, bob := server.Connect("alice"), server.Connect("bob")
	b, other := bucket(t, alice), bucket(t, bob)
	stop, err := alice.Serve("s", func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
	wants(t, "serve", err, nil)
	defer stop()
	<-alice.Changes()
	<-bob.Changes()
	alice.Cut()
	<-alice.Changes()
	if alice.Connected() || !bob.Connected() {
		t.Error("the wrong one was cut")
	}
	_, err = b.Put(t.Context(), "k", nil)
	wants(t, "put", err, cluster.ErrUnavailable)
	_, err = other.Put(t.Context(), "k", nil)
	wants(t, "another's put", err, nil)
	_, err = bob.Request(t.Context(), "s", nil)
	wants(t, "request to the one that is cut", err, cluster.ErrUnavailable)
	server.Stop()
	<-bob.Changes()
	alice.Heal()
	if alice.Connected() {
		t.Error("healed, it reaches a server that is stopped")
	}
	server.Start()
	<-alice.Changes()
	<-bob.Changes()
	_, err = b.Get(t.Context(), "k")
	wants(t, "get", err, nil)
	_, err = bob.Request(t.Context(), "s", nil)
	wants(t, "request", err, nil)
}

// The newest that can be reached is asked, and nobody else.
func TestWhoIsAsked(t *testing.T) {
	server := memcluster.New()
	caller := server.Connect("alice")
	var stores []*memcluster.Store
	for _, name := range []string{"first", "second", "third"} {
		s := server.Connect(name)
		stores = append(stores, s)
		_, err := s.Serve("s", func(context.Context, string, []byte) ([]byte, error) {
			if !s.Connected() {
				t.Errorf("%s is asked, who cannot be reached", name)
			}
			return []byte(name), nil
		})
		wants(t, "serve", err, nil)
	}
	asked := func(want string) {
		t.Helper()
		if got, err := caller.Request(t.Context(), "s", nil); err != nil || string(got) != want {
			t.Errorf("%q answers, %v; want %q", got, err, want)
		}
	}
	asked("third")
	stores[2].Cut()
	asked("second")
	wants(t, "close", stores[1].Close(), nil)
	asked("first")
	stores[2].Heal()
	asked("third")
}

func TestRequestUnderWay(t *testing.T) {
	for what, fail := range map[string]func(server *memcluster.Server, asks, serves *memcluster.Store){
		"stopped":         func(s *memcluster.Server, _, _ *memcluster.Store) { s.Stop() },
		"caller cut":      func(_ *memcluster.Server, asks, _ *memcluster.Store) { asks.Cut() },
		"handler cut":     func(_ *memcluster.Server, _, serves *memcluster.Store) { serves.Cut() },
		"handler's ended": func(_ *memcluster.Server, _, serves *memcluster.Store) { wants(t, "close", serves.Close(), nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			server := memcluster.New()
			asks, serves := server.Connect("alice"), server.Connect("nimbus")
			stop, err := serves.Serve("s", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return nil, nil
			})
			wants(t, "serve", err, nil)
			defer stop()
			told := make(chan error, 1)
			began := time.Now()
			go func() {
				_, err := asks.Request(t.Context(), "s", nil)
				told <- err
			}()
			synctest.Wait()
			fail(server, asks, serves)
			err = <-told
			if took := time.Since(began); !errors.Is(err, cluster.ErrUnavailable) && what != "handler's ended" || took != 0 {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		})
	}
}

func TestWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		alice := server.Connect("alice")
		b := bucket(t, alice)
		_, err := b.Put(t.Context(), "k", []byte("v"))
		wants(t, "put", err, nil)
		_, err = b.Put(t.Context(), "old", []byte("v"))
		wants(t, "put", err, nil)
		objects, err := alice.Objects(t.Context(), "o")
		wants(t, "objects", err, nil)
		_, err = objects.Put(t.Context(), "x", strings.NewReader("x"), "", nil)
		wants(t, "put object", err, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		entries, err := b.Watch(ctx, "")
		wants(t, "watch", err, nil)
		for range 3 {
			<-entries
		}
		wants(t, "delete", b.Delete(t.Context(), "old", 0), nil)
		<-entries

		server.Wipe()
		if gone, end := <-entries, <-entries; gone.Key != "k" || gone.Value != nil || end.Key != "" {
			t.Errorf("watched %+v and %+v", gone, end)
		}
		_, err = b.Put(t.Context(), "k", nil)
		wants(t, "put", err, cluster.ErrNotFound)
		_, err = objects.Info(t.Context(), "x")
		wants(t, "object", err, cluster.ErrNotFound)
		revision, err := bucket(t, alice).Put(t.Context(), "l", []byte("w"))
		wants(t, "put into a new bucket", err, nil)
		if e := <-entries; revision != 1 || e.Key != "l" {
			t.Errorf("revision %d; watched %+v", revision, e)
		}
		wants(t, "delete bucket", alice.DeleteBucket(t.Context(), "b"), nil)
		if e := <-entries; e.Key != "l" || e.Value != nil {
			t.Errorf("watched %+v", e)
		}
	})
}

// What a watch may skip, it does skip; what there was when it began is never skipped.
func TestWatchSkipsWhatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		b := bucket(t, server.Connect("alice"))
		put := func(key, value string) {
			t.Helper()
			_, err := b.Put(t.Context(), key, []byte(value))
			wants(t, "put", err, nil)
		}
		put("a", "1")
		put("b", "1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		entries, err := b.Watch(ctx, "")
		wants(t, "watch", err, nil)
		synctest.Wait()
		for _, value := range []string{"2", "3"} {
			put("b", value)
			put("c", value)
		}
		var got []string
		for range 5 {
			e := <-entries
			got = append(got, e.Key+string(e.Value))
		}
		if want := []string{"a1", "b1", "", "b3", "c3"}; !slices.Equal(got, want) {
			t.Errorf("watched %q, want %q", got, want)
		}
		synctest.Wait()
		select {
		case e := <-entries:
			t.Errorf("watched %+v as well", e)
		default:
		}
	})
}

func TestDamagedObject(t *testing.T) {
	server := memcluster.New()
	objects, err := server.Connect("alice").Objects(t.Context(), "o")
	wants(t, "objects", err, nil)
	_, err = objects.Put(t.Context(), "x", strings.NewReader("content"), "", nil)
	wants(t, "put", err, nil)
	server.Damage("o", "x")
	r, _, err := objects.Get(t.Context(), "x")
	wants(t, "get", err, nil)
	if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("read: %v", err)
	}
	server.Stop()
	_, err = r.Read(make([]byte, 1))
	wants(t, "read in an outage", err, cluster.ErrUnavailable)
}

func TestClosedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		alice, bob := server.Connect("alice"), server.Connect("bob")
		b := bucket(t, alice)
		ctx, cancel := context.WithCancel(t.Context())
		entries, err := b.Watch(ctx, "")
		wants(t, "watch", err, nil)
		<-entries
		_, err = alice.Serve("s", func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
		wants(t, "serve", err, nil)
		wants(t, "close", alice.Close(), nil)
		wants(t, "close again", alice.Close(), nil)
		_, err = bob.Request(t.Context(), "s", nil)
		wants(t, "request", err, cluster.ErrUnavailable)
		_, err = b.Get(t.Context(), "k")
		wants(t, "get", err, cluster.ErrUnavailable)
		if _, err := alice.Serve("s", nil); err == nil {
			t.Error("it serves after it was closed")
		}
		_, err = bucket(t, bob).Put(t.Context(), "k", nil)
		wants(t, "put", err, nil)
		server.Stop()
		server.Start()
		synctest.Wait()
		select {
		case e, open := <-entries:
			t.Errorf("watched %+v, open: %v", e, open)
		default:
		}
		cancel()
		if _, open := <-entries; open {
			t.Error("the watch goes on after its context has ended")
		}
	})
}
