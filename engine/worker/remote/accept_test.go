package remote_test

import (
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/worker/remote"
)

// shaky cannot take connections at first, as when a process has too many files open.
type shaky struct {
	net.Listener
	failures atomic.Int32
}

func (s *shaky) Accept() (net.Conn, error) {
	if s.failures.Add(-1) >= 0 {
		return nil, syscall.EMFILE
	}
	return s.Listener.Accept()
}

// Case: an error of one moment was taken for the end of the connection, and nothing worked
// ever after. A topology master that could not take a worker takes the next one.
func TestWorkersAreTakenAfterAFailure(t *testing.T) {
	p, _, err := engine.Layout(topology(t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	crew := remote.NewCrew(remote.CrewConfig{Identity: identity(p), Plan: p, Lease: lease, Logger: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shaky{Listener: l}
	s.failures.Store(3)
	served := make(chan struct{})
	go func() { defer close(served); crew.Serve(s) }()
	if err := join(l.Addr().String(), identity(p), "w0", 1); err != nil {
		t.Errorf("a worker that comes after 3 failures: %v", err)
	}
	l.Close()
	<-served
	crew.Close(false)
}
