package process_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
)

// That a topology was led is told as long as it is there, by each of its masters, so that
// none begins anew where the checkpoints are missing.
func TestThatItWasLedIsNotForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 1)
	store := b.client()
	led := func() bool { return process.Led(t.Context(), store, id) }
	if led() {
		t.Error("before there was any master")
	}
	first, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- process.Master(first, b.config(cluster.RoleMaster, "", 1)) }()
	b.await("that it has a generation", func(s cluster.RunStatus) bool { return s.Led })
	stop()
	if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
		t.Fatal(err)
	}
	for incarnation := uint64(2); incarnation < 4; incarnation++ {
		if !led() {
			t.Fatalf("it is forgotten before master %d", incarnation)
		}
		next := newBench(t, 1, 1) // for its store of checkpoints, which is empty
		c := b.config(cluster.RoleMaster, "", incarnation)
		c.Options = append(c.Options, next.config(cluster.RoleMaster, "", 1).Options...)
		c.Options = append(c.Options, engine.WithStart(engine.Start{Kept: led()}))
		if err := process.Master(t.Context(), c); !errors.Is(err, engine.ErrStoreUnreachable) {
			t.Fatalf("without its checkpoints: %v", err)
		}
		b.await("why it does not start", func(s cluster.RunStatus) bool {
			return s.Incarnation == incarnation && strings.Contains(s.Error, "no head")
		})
	}
	b.server.Stop()
	if led() {
		t.Error("the store is away, and nothing can be known")
	}
}
