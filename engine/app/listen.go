package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/metrics"
)

// server shows the run at an address.
type server struct {
	handler *metrics.Handler
	http    http.Server
	addr    net.Addr
	ended   chan error
}

// listenAddress returns where to listen. Without a host it is this machine's alone.
func listenAddress(flag string) (string, error) {
	host, port, err := net.SplitHostPort(flag)
	if err != nil {
		return "", fmt.Errorf("--listen %s: must be :PORT or HOST:PORT", flag)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// serve begins to serve at an address, through which c can be used.
func serve(addr string, c *engine.Control) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	s := &server{handler: metrics.NewHandler(), addr: l.Addr(), ended: make(chan error, 1)}
	s.http = http.Server{Handler: operate(c, s.handler), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.ended <- s.http.Serve(l) }()
	return s, nil
}

// lastRequests is how long requests under way may take when the run has ended.
const lastRequests = time.Second

// close ends the server and waits for it.
func (s *server) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastRequests)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // a profile is being taken; nobody will read it
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		log.Warn("served no metrics any more", "addr", s.addr, "err", err)
	}
}
