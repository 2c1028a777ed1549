package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func serve(t *testing.T, s cluster.Store, service string, h cluster.Handler) (stop func()) {
	t.Helper()
	stop, err := s.Serve(service, h)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(stop)
	t.Cleanup(stop)
	return stop
}

// echo answers with the user and what he said.
func echo(_ context.Context, user string, body []byte) ([]byte, error) {
	return append([]byte(user+": "), body...), nil
}

func request(t *testing.T, p Place) {
	server, alice, bob := p.Connect("server"), p.Connect("alice"), p.Connect("bob")
	serve(t, server, cluster.ServiceNimbus, echo)
	serve(t, server, "silent", func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
	ctx := patient(t)
	for _, c := range []struct {
		store cluster.Store
		want  string
	}{{alice, "alice: hello"}, {bob, "bob: hello"}, {server, "server: hello"}} {
		got, err := c.store.Request(ctx, cluster.ServiceNimbus, []byte("hello"))
		if err != nil || string(got) != c.want {
			t.Errorf("got %q, %v; want %q", got, err, c.want)
		}
	}
	if got, err := alice.Request(ctx, "silent", nil); err != nil || len(got) != 0 {
		t.Errorf("silent: %q, %v", got, err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if got, err := alice.Request(ctx, cluster.ServiceNimbus, big); err != nil || !bytes.Equal(got, append([]byte("alice: "), big...)) {
		t.Errorf("of a big request %d bytes come back, %v", len(got), err)
	}
}

func requestErrors(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	serve(t, server, "s", func(_ context.Context, _ string, body []byte) ([]byte, error) {
		return []byte("with a reply"), errors.New(string(body))
	})
	ctx := patient(t)
	for _, text := range []string{
		"no topology \"words\"", "first problem\nsecond problem\n", " spaces ", "größer", "404", cluster.ErrUnavailable.Error(),
	} {
		got, err := alice.Request(ctx, "s", []byte(text))
		if err == nil || err.Error() != text || got != nil {
			t.Errorf("the handler said %q, the caller was told %q, %v", text, got, err)
		}
		if errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%q: an answer is taken for none", text)
		}
	}
}

// requestMany: a handler that takes its time does not hold up others.
func requestMany(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	const n = 20
	var together sync.WaitGroup
	together.Add(n)
	serve(t, server, "s", func(ctx context.Context, user string, body []byte) ([]byte, error) {
		together.Done()
		together.Wait()
		return echo(ctx, user, body)
	})
	ctx := patient(t)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			got, err := alice.Request(ctx, "s", []byte(fmt.Sprint(i)))
			if want := fmt.Sprintf("alice: %d", i); err != nil || string(got) != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
	all.Wait()
}

func requestNobody(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	ctx := patient(t)
	_, err := alice.Request(ctx, "s", nil)
	wants(t, "a request that nobody serves", err, cluster.ErrUnserved)
	stop := serve(t, server, "s", echo)
	_, err = alice.Request(ctx, "s", nil)
	wants(t, "a request that is served", err, nil)
	stop()
	_, err = alice.Request(ctx, "s", nil)
	wants(t, "a request that is served no more", err, cluster.ErrUnserved)
	serve(t, p.Connect("other"), "s", echo)
	_, err = alice.Request(ctx, "s", nil)
	wants(t, "a request that another serves now", err, nil)
}

// requestGivenUp: the caller waits no longer than his context; the handler is told only
// when it is to stop.
func requestGivenUp(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	asked, ended := make(chan struct{}), make(chan struct{})
	stop := serve(t, server, "s", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		close(asked)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() {
		_, err := alice.Request(ctx, "s", nil)
		told <- err
	}()
	<-asked
	cancel()
	wants(t, "a request that was given up", <-told, context.Canceled)
	select {
	case <-ended:
		t.Error("the handler was told before it was to stop")
	default:
	}
	stop()
	select {
	case <-ended:
	case <-patient(t).Done():
		t.Error("the handler was not told to stop")
	}
}

// requestTooLate: that no answer came in time is as if nobody answered.
func requestTooLate(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	stop := serve(t, server, "s", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := alice.Request(ctx, "s", nil)
	wants(t, "a request without an answer", err, cluster.ErrUnavailable)
	wants(t, "a request without an answer", err, context.DeadlineExceeded)
}

func serveAfterOutage(t *testing.T, p Place) {
	server, alice := p.Connect("server"), p.Connect("alice")
	serve(t, server, "s", echo)
	ask := func() error {
		_, err := alice.Request(patient(t), "s", nil)
		return err
	}
	wants(t, "a request", ask(), nil)
	p.Stop()
	awaitConnected(t, alice, false)
	wants(t, "a request in an outage", ask(), cluster.ErrUnavailable)
	p.Start()
	awaitConnected(t, alice, true)
	awaitConnected(t, server, true)
	answered(t, ask)
	p.Cut(server)
	awaitConnected(t, server, false)
	p.Heal(server)
	awaitConnected(t, server, true)
	answered(t, ask)
}
