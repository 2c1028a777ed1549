//go:build unix

package app_test

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

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

// One interrupt is enough where the checkpoint store does not answer.
func TestInterruptWhileTheStoreDoesNotAnswer(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "y")
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	w := &world{n: 10}
	ended := make(chan ran)
	go func() {
		ended <- run(w.build, "--data", t.TempDir(), "-c", "checkpoint.store=s3://bucket", "-c", "checkpoint.s3.endpoint=http://"+hole.Addr().String())
	}()
	asked, err := hole.Accept() // what it asks is never answered
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	begun := time.Now()
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := <-ended
	r.want(t, 1, "sum: stopping in order", "stopped while the checkpoint store was opened, nothing has run: open checkpoint store s3://bucket/sum")
	// A second, and some more on a busy machine; the store would be waited for a minute.
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if w.sum != 0 {
		t.Errorf("the sum is %d", w.sum)
	}
}
