package remote_test

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/worker/remote"
	"github.com/isobar-io/isobar/tuple"
)

// A worker that is told of a later topology master goes there, although the one that it has
// is alive: that may be cut off from everybody else.
func TestWorkerGoesToTheLaterMaster(t *testing.T) {
	c := newCluster(t, filepath.Join(t.TempDir(), "out.tsv"))
	p, _, err := engine.Layout(c.topo, c.opts...)
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 8)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	lead := func() (*remote.Crew, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		crew := remote.NewCrew(remote.CrewConfig{
			Identity: identity(p), Plan: p, Lease: lease, Logger: slog.New(slog.DiscardHandler),
			Changed: func() { changed <- struct{}{} },
		})
		all.Go(func() { crew.Serve(l) })
		t.Cleanup(func() {
			l.Close()
			crew.Close(false)
		})
		return crew, l.Addr().String()
	}
	first, firstAddress := lead()
	second, secondAddress := lead()
	masters := make(chan string, 1)
	c.change = func(cfg *remote.WorkerConfig) { cfg.Masters = masters }
	all.Go(func() {
		if err := c.work(t.Context(), "w0", 1, "unused"); err != nil {
			t.Error(err)
		}
	})
	late := time.After(time.Minute)
	await := func(there, gone *remote.Crew) {
		t.Helper()
		for !slices.Equal(there.Workers(), []string{"w0"}) || len(gone.Workers()) > 0 {
			select {
			case <-changed:
			case <-late:
				t.Fatalf("the worker is at the first: %v, at the second: %v", first.Workers(), second.Workers())
			}
		}
	}
	masters <- firstAddress
	await(first, second)
	masters <- firstAddress // it is told again, which changes nothing
	masters <- secondAddress
	await(second, first)
}

// refusing are Links that a worker does not get once.
type refusing struct {
	remote.Links
	refused *atomic.Bool
}

func (r refusing) Generation(n tuple.Generation, place map[int]string, peers map[string]remote.Peer, failed func(error)) (remote.GenerationLinks, error) {
	if r.refused.CompareAndSwap(false, true) {
		return nil, errors.New("another life of a worker is expected")
	}
	return r.Links.Generation(n, place, peers, failed)
}

// A generation whose links cannot be had is made anew; the worker keeps its topology
// master, and its other regions.
func TestLinksThatAreRefusedCostOneGeneration(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tsv")
	c := newCluster(t, out)
	var refused atomic.Bool
	var dialed atomic.Int32
	c.change = func(cfg *remote.WorkerConfig) {
		cfg.Links = refusing{cfg.Links, &refused}
		dial := cfg.Dial
		cfg.Dial = func(address string) (net.Conn, error) {
			dialed.Add(1)
			return dial(address)
		}
	}
	var result engine.Result
	led := make(chan error, 1)
	go func() {
		var err error
		result, err = c.lead(t.Context())
		led <- err
	}()
	address := <-c.address
	var all sync.WaitGroup
	for _, id := range []string{"w0", "w1"} {
		all.Go(func() {
			if err := c.work(t.Context(), id, 1, address); err != nil {
				t.Errorf("worker %s: %v", id, err)
			}
		})
	}
	if err := <-led; err != nil {
		t.Fatal(err)
	}
	all.Wait()
	// The other worker's dial, given up with its generation, may have come to be the link of
	// the next one, which that costs as well.
	if result.Restarts < 1 || result.Restarts > 2 || dialed.Load() != 2 {
		t.Errorf("%d restarts, and the topology master was dialed %d times", result.Restarts, dialed.Load())
	}
	check(t, out)
}
