package remote_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/worker/remote"
)

// Code that does not return costs its worker, which is replaced, but not the topology
// master, and no count.
func TestCodeThatHangsCostsItsWorker(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tsv")
	c := newCluster(t, out)
	conf, err := config.Of(map[string]any{"topology.task.stop.timeout.secs": 1})
	if err != nil {
		t.Fatal(err)
	}
	c.opts = append(c.opts, engine.WithConfig(conf))
	hangs := make(chan struct{})
	once := func() {
		close(hangs)
		select {} // the goroutine is lost
	}
	executing.Store(&once)
	var result engine.Result
	led := make(chan struct{})
	go func() {
		defer close(led)
		result, err = c.lead(t.Context())
	}()
	address := <-c.address
	<-c.ready
	var all sync.WaitGroup
	var hung atomic.Int32
	for i := range 2 {
		all.Go(func() {
			for incarnation := uint64(1); ; incarnation++ {
				ctx, cancel := context.WithCancel(t.Context())
				if i == 0 && incarnation == 1 {
					go func() {
						<-hangs
						cancel() // so that the region is rolled back
					}()
				}
				werr := c.work(ctx, fmt.Sprintf("w%d", i), incarnation, address)
				again := ctx.Err() != nil || errors.Is(werr, remote.ErrHung)
				cancel()
				switch {
				case errors.Is(werr, remote.ErrHung):
					hung.Add(1)
				case werr != nil:
					t.Errorf("worker %d: %v", i, werr)
				}
				if !again {
					return
				}
			}
		})
	}
	<-led
	all.Wait()
	if err != nil || result.Restarts == 0 || hung.Load() != 1 {
		t.Fatalf("the run ended with %v after %d restarts and %d hung workers", err, result.Restarts, hung.Load())
	}
	check(t, out)
}
