package remote_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/worker/remote"
	"github.com/isobar-io/isobar/tuple"
)

// withholding are Links that a worker does not connect until healed is closed.
type withholding struct {
	remote.Links
	healed <-chan struct{}
}

func (w withholding) Generation(n tuple.Generation, place map[int]string, peers map[string]remote.Peer, failed func(error)) (remote.GenerationLinks, error) {
	links, err := w.Links.Generation(n, place, peers, failed)
	return withheld{links, w.healed}, err
}

type withheld struct {
	remote.GenerationLinks
	healed <-chan struct{}
}

func (w withheld) Connect(ctx context.Context) error {
	select {
	case <-w.healed:
		return w.GenerationLinks.Connect(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Two workers that do not reach each other are known to their master, and in the errors of
// the topology, until they do.
func TestWorkersThatDoNotReachEachOtherAreTold(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tsv")
	c := newCluster(t, out)
	healed, changed := make(chan struct{}), make(chan struct{}, 1)
	c.changed = func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	c.change = func(cfg *remote.WorkerConfig) {
		if cfg.Worker == "w0" { // it is the one that dials
			cfg.Links = withholding{cfg.Links, healed}
		}
	}
	var mu sync.Mutex
	reported := map[string]int{}
	c.opts = append(c.opts, engine.WithProgress(func(p engine.Progress) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range p.Errors {
			reported[e.Err.Error()]++
		}
	}))
	led := make(chan error, 1)
	go func() {
		_, err := c.lead(t.Context())
		led <- err
	}()
	address := <-c.address
	<-c.ready
	var all sync.WaitGroup
	for _, id := range []string{"w0", "w1"} {
		all.Go(func() {
			if err := c.work(t.Context(), id, 1, address); err != nil {
				t.Errorf("worker %s: %v", id, err)
			}
		})
	}
	await := func(want ...[2]string) {
		t.Helper()
		late := time.After(time.Minute)
		for !slices.Equal(c.crew.Unlinked(), want) {
			select {
			case <-changed:
			case <-late:
				t.Fatalf("unlinked are %q, want %q", c.crew.Unlinked(), want)
			}
		}
	}
	await([2]string{"w0", "w1"})
	cleared := make(chan struct{})
	hold := func() { <-cleared } // while the generation goes on
	executing.Store(&hold)
	close(healed)
	func() {
		defer close(cleared)
		await()
	}()
	if err := <-led; err != nil {
		t.Fatal(err)
	}
	all.Wait()
	check(t, out)
	mu.Lock()
	defer mu.Unlock()
	for text := range reported {
		if !strings.HasSuffix(text, "worker w0 waits for its links to others: it does not reach w1") && !strings.HasSuffix(text, "worker w1 waits for its links to others: it does not reach w0") {
			t.Errorf("reported is %q", text)
		}
	}
	if len(reported) == 0 {
		t.Error("nothing is reported")
	}
}
