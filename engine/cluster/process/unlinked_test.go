package process_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
)

// That two workers do not reach each other is in the status, until one of them has been
// replaced by one that does.
func TestWorkersThatDoNotReachEachOtherAreInTheStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100_000, 0)
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	var all sync.WaitGroup
	work := func(ctx context.Context, worker, host string, incarnation uint64) {
		c := b.config(cluster.RoleWorker, worker, incarnation)
		c.Host = host
		all.Go(func() {
			if err := process.Worker(ctx, c); err != nil && (ctx.Err() == nil || !errors.Is(err, process.ErrInterrupted)) {
				t.Errorf("worker %s: %v", worker, err)
			}
		})
	}
	b.leads(&all)
	first, kill := context.WithCancel(t.Context())
	defer kill()
	work(t.Context(), "s/1", "127.0.0.1", 1)
	work(first, "s/2", "127.0.0.2", 2) // it does not listen there
	unlinked := [][2]string{{"s/1", "s/2"}}
	b.await("that the two do not reach each other", func(s cluster.RunStatus) bool { return slices.Equal(s.Unlinked, unlinked) })
	kill()
	work(t.Context(), "s/2", "127.0.0.1", 3)
	s := b.await("that it has finished", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseFinished })
	all.Wait()
	b.check()
	if len(s.Unlinked) > 0 {
		t.Errorf("at the end unlinked are %q", s.Unlinked)
	}
}
