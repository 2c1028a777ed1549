package peer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
)

// network is pipes in memory, for bubbles; what goes through it can be disturbed.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	// disturb, if set, wraps the dialer's end of each connection.
	disturb func(net.Conn) net.Conn
}

func newNetwork() *network { return &network{listeners: map[string]*listener{}} }

// config is the change that lets a node use the network.
func (w *network) config(t testing.TB) func(c *Config) {
	return func(c *Config) {
		c.Listener.Close()
		c.Listener = w.listen(c.Worker)
		c.Dial = w.dial
	}
}

func (w *network) listen(addr string) net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &listener{addr: addr, incoming: make(chan net.Conn), closed: make(chan struct{})}
	w.listeners[addr] = l
	return l
}

func (w *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[addr]
	w.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", addr)
	}
	here, there := net.Pipe()
	select {
	case l.incoming <- there:
		if w.disturb != nil {
			return w.disturb(here), nil
		}
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type listener struct {
	addr     string
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error    { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr  { return l }
func (l *listener) Network() string { return "pipe" }
func (l *listener) String() string  { return l.addr }

// frozen lets nothing be written and nothing be read, once it is frozen.
type frozen struct {
	net.Conn
	from chan struct{}
	shut chan struct{}
	once sync.Once
}

func (f *frozen) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.from:
		<-f.shut
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (f *frozen) Write(b []byte) (int, error) {
	select {
	case <-f.from:
		<-f.shut
		return 0, net.ErrClosed
	default:
		return f.Conn.Write(b)
	}
}

func (f *frozen) Close() error {
	f.once.Do(func() { close(f.shut) })
	return f.Conn.Close()
}

// faulty does something to the byte at a place of what is written.
type faulty struct {
	net.Conn
	at  int
	cut bool // close there, instead of changing it
}

func (f *faulty) Write(b []byte) (int, error) {
	at := f.at
	f.at -= len(b)
	if at < 0 || at >= len(b) {
		return f.Conn.Write(b)
	}
	if f.cut {
		n, _ := f.Conn.Write(b[:at])
		f.Conn.Close()
		return n, net.ErrClosed
	}
	changed := append([]byte(nil), b...)
	changed[at] ^= 0x40
	return f.Conn.Write(changed)
}

// newGatedDial returns a Dial over TCP whose connections write only while the gate is
// open.
func newGatedDial(gate *sync.RWMutex) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return gated{c, gate}, err
	}
}
