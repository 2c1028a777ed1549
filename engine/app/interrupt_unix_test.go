//go:build unix

package app_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/isobar-io/isobar/engine"
)

func TestInterruptStopsWithALastCheckpoint(t *testing.T) {
	dir := t.TempDir()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		idle := make(chan struct{})
		w := &world{n: 10, open: make(chan struct{}), idle: idle}
		ended := make(chan ran)
		go func() { ended <- run(w.build, "--data", dir) }()
		<-idle
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Signal(sig); err != nil {
			t.Fatal(err)
		}
		r := <-ended
		r.want(t, 0, "sum: stopping in order; interrupt again to exit at once")
		if w.sum != 45 || len(w.results) != 1 || w.results[0].Outcome != engine.Stopped {
			t.Errorf("%v: sum %d, results %v", sig, w.sum, w.results)
		}
	}
	w := &world{n: 12}
	run(w.build, "--data", dir).want(t, 0)
	if w.sum != 66 || w.results[0].From == nil {
		t.Errorf("the next run: sum %d, results %v", w.sum, w.results)
	}
}
