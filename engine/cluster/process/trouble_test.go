package process_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Case: an executor crashed, reporting that failed, and the process lived on without it. Here
// counters panic while the coordination store is away, with texts that are larger than any
// record of it: they are restarted all the same, nothing is lost, and it is told later.
func TestPanicsWhileTheCoordinationStoreIsAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400_000, 40_000)
	var all sync.WaitGroup
	b.run(&all)
	b.await("that it has committed", func(s cluster.RunStatus) bool { return s.Committed > 0 })
	b.server.Stop()
	var left atomic.Int32
	left.Store(2)
	fail := func() {
		if left.Add(-1) >= 0 {
			panic(strings.Repeat("no! ", 1<<19))
		}
	}
	b.executing.Store(&fail)
	before := b.commits()
	b.until("the panics, and commits after them", func() bool { return left.Load() < 0 && b.commits() >= before+3 })
	b.server.Start()
	s := b.await("that it has finished", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseFinished })
	all.Wait()
	b.check()
	if len(s.Errors) == 0 || s.Restarts == 0 {
		t.Fatalf("nothing is told of the panics: %+v", s)
	}
	for _, e := range s.Errors {
		if len(e.Error) > 8<<10 {
			t.Errorf("an error of %d bytes is told", len(e.Error))
		}
	}
	if e := s.Errors[0]; e.Component != "count" || !strings.Contains(e.Error, "no! no! ") || !strings.Contains(e.Error, "the log has all") {
		t.Errorf("the first error is of %s: %.300q", e.Component, e.Error)
	}
}

// Case: slow launches blocked the heartbeat, and healthy workers were restarted. Components
// may take much longer than the lease to open.
func TestSlowComponentsCostNoWorker(t *testing.T) {
	b := newBench(t, 20_000, 0)
	b.lease = 400e6
	open := make(chan struct{})
	wait := func() { <-open }
	b.opening.Store(&wait)
	var all sync.WaitGroup
	b.run(&all)
	var since int64
	b.await("for many leases that it starts, with both workers", func(s cluster.RunStatus) bool {
		switch {
		case len(s.Workers) == 2 && since == 0:
			since = s.UptimeSecs + 1
		case len(s.Workers) < 2 && since > 0:
			t.Errorf("workers %q are left", s.Workers)
		}
		return since > 0 && s.UptimeSecs >= since+3
	})
	close(open)
	s := b.await("that it has finished", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseFinished })
	all.Wait()
	b.check()
	if s.Restarts != 0 {
		t.Errorf("it was restarted %d times", s.Restarts)
	}
}
