package peer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/link"
)

// While Connect waits for some of its workers, they are named, and no others: neither those
// that no channel goes to or comes from, nor those that are reached by now.
func TestUnlinkedWorkersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		change := w.config(t)
		b := node(t, config(t, "b", change))
		peers := map[string]Peer{"d": {"d", "d-1"}, "idle": {"idle", "idle-1"}}
		others := map[string]*Node{}
		for _, name := range []string{"a", "c"} { // a dials b, and b dials c
			others[name] = node(t, config(t, name, change))
			peers[name] = as(others[name])
		}
		fails := func(err error) { t.Error(err) }
		g, err := b.Generation(1, peers, fails)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"d", "c", "a"} {
			g.Inbound(name, 9, link.Config{SourceTask: i + 1, Receiver: link.NewBell(), Frames: 4})
		}
		names := func(want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := g.Unlinked(); !slices.Equal(got, want) {
				t.Errorf("unlinked are %q, want %q", got, want)
			}
		}
		names("a", "c", "d")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Connect(ctx) }()
		names("a", "c", "d")
		for i, name := range []string{"c", "a"} {
			other, err := others[name].Generation(1, map[string]Peer{"b": as(b)}, func(error) {}) // b ends first
			if err != nil {
				t.Fatal(err)
			}
			other.Outbound("b", 9, link.Config{SourceTask: i + 2, Done: t.Context().Done()}, fails)
			if err := other.Connect(ctx); err != nil {
				t.Fatal(err)
			}
			names([]string{"a", "d"}[i:]...)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("connected with a worker that is not there")
		}
		g.Close()
		names()
	})
}
