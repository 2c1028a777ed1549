package process_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
)

// A topology master that dies while the coordination store is away is replaced by one that
// goes by what the former was told: workers find it where that was, and commits go on.
func TestMasterIsReplacedWithoutTheCoordinationStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 10_000)
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	dir := t.TempDir()
	lead := func(ctx context.Context, incarnation uint64) <-chan error {
		c := b.config(cluster.RoleMaster, "", incarnation)
		c.Dir = dir
		ended := make(chan error, 1)
		go func() { ended <- process.Master(ctx, c) }()
		return ended
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	working, stop := context.WithCancel(t.Context())
	defer stop()
	for i := 1; i <= 2; i++ {
		workers.Go(func() {
			if err := process.Worker(working, b.config(cluster.RoleWorker, fmt.Sprintf("s/%d", i), uint64(i))); !errors.Is(err, process.ErrInterrupted) {
				t.Errorf("worker: %v", err)
			}
		})
	}
	first, kill := context.WithCancel(t.Context())
	defer kill()
	ended := lead(first, 1)
	b.await("that it commits", func(s cluster.RunStatus) bool { return s.Committed > 0 })
	b.server.Stop()
	kill()
	if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
		t.Fatalf("the first topology master ends with %v", err)
	}
	second, end := context.WithCancel(t.Context())
	defer end()
	ended = lead(second, 2)
	before := b.commits()
	b.until("commits while the coordination store is away", func() bool { return b.commits() >= before+5 })
	b.server.Start()
	b.await("that the second one leads", func(s cluster.RunStatus) bool { return s.Incarnation == 2 && s.Active && s.Committed > 0 })
	end()
	if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
		t.Errorf("the second topology master ends with %v", err)
	}
}
