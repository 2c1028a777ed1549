package clustertest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy passes TCP connections on to another address, until it is cut.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// NewProxy returns a proxy to target, host:port, which may be away at times. It is closed
// when the test ends.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut breaks all connections, and closes new ones at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close() // it may be closed already
	}
}

// Heal ends Cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.pass(client) })
	}
}

// pass joins a connection with one to the target until either ends.
func (p *Proxy) pass(client net.Conn) {
	defer p.forget(client)
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.keep(server) {
		return
	}
	p.running.Go(func() {
		_, _ = io.Copy(server, client) // ends with either of them
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
}

// keep reports whether the connection may stay.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.cut
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // it may be closed already
}
