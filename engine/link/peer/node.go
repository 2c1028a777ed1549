// Package peer carries the channels between two tasks of different processes. All
// channels of a pair of workers, in both directions, share one connection, each with a
// window of its own, so that one that is not read never holds up another.
// docs/format/link.md describes what travels on it.
//
// A [Node] is this worker's end of all its links. The tasks of one generation get their
// channels from a [Generation]: the receiving ends are those of package link, the sending
// ends are [Outbound]s. Nothing is sent again: when a connection breaks, every generation
// with channels on it fails, and the next one connects anew.
package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// What a frame between processes may hold. Both ends have the same limits.
const (
	// ValueBytesMax is how long a string, bytes or an encoded object may be.
	ValueBytesMax = 64 << 20
	frameBytesMax = 256 << 20
)

func frameLimits() wire.Limits {
	return wire.Limits{FrameBytes: frameBytesMax, ValueBytes: ValueBytesMax}
}

// Config describes this worker's end.
type Config struct {
	Topology string // id of the run; links between different ones are refused
	Worker   string // id of this worker
	// Incarnation tells this life of the worker from all others.
	Incarnation string

	// Listener accepts connections; the Node closes it.
	Listener net.Listener
	// Dial opens a connection to the address of a Peer; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS, if set, is used at both ends, as server and as client, from version 1.3 on.
	// It says who must prove what to whom.
	TLS *tls.Config
	// Lease is how long an end may be silent before it counts as dead; 0: 10 s.
	Lease time.Duration

	Streams  []*tuple.Stream // all that may come
	Registry *wire.Registry  // nil: tuples hold no objects
	Logger   *slog.Logger    // nil: slog.Default
}

const defaultLease = 10 * time.Second

// Peer is another worker as a generation knows it.
type Peer struct {
	Addr        string
	Incarnation string
}

// Stats counts what a Node has moved.
type Stats struct {
	SentBytes, ReceivedBytes uint64
	// Stale is how many channels and pieces of frames have come for generations that
	// were over here.
	Stale uint64
}

// Node is a worker's end of its links to all others.
type Node struct {
	cfg      Config
	running  sync.WaitGroup
	ctx      context.Context // ends with the node
	cancel   context.CancelFunc
	attempts atomic.Uint64 // to connect
	stats    struct{ sent, received, stale atomic.Uint64 }

	mu          sync.Mutex
	closed      bool
	changed     chan struct{} // closed and made anew when something below changes
	neighbours  map[string]*neighbour
	generations map[tuple.Generation]*Generation
	newest      tuple.Generation // that there has been
}

// neighbour is what a Node knows of another worker.
type neighbour struct {
	expected string           // its life that counts
	since    tuple.Generation // which generation has said so
	conn     *conn            // nil: none
	dialing  bool
	inbounds int // channels from it
	// The newest connection it has tried to make and that is held until it is expected.
	held hold
}

type hold struct {
	incarnation string
	attempt     uint64
}

// NewNode returns a Node that accepts connections. It closes the listener, also on an
// error, which joins all that is wrong with the Config.
func NewNode(cfg Config) (*Node, error) {
	if cfg.Registry == nil {
		cfg.Registry, _ = wire.NewRegistry()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	if err := cfg.check(); err != nil {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close() // nobody was let in
		}
		return nil, fmt.Errorf("make the links of worker %q: %w", cfg.Worker, err)
	}
	n := &Node{
		cfg:         cfg,
		changed:     make(chan struct{}),
		neighbours:  map[string]*neighbour{},
		generations: map[tuple.Generation]*Generation{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.running.Go(n.accept)
	return n, nil
}

func (c *Config) check() error {
	var errs []error
	name := func(what, s string) {
		if s == "" || len(s) > nameMax {
			errs = append(errs, fmt.Errorf("%s %.20q has %d bytes, not 1 to %d", what, s, len(s), nameMax))
		}
	}
	name("topology", c.Topology)
	name("worker", c.Worker)
	name("incarnation", c.Incarnation)
	if c.Listener == nil {
		errs = append(errs, errors.New("it has no listener"))
	}
	if c.Lease < 0 {
		errs = append(errs, fmt.Errorf("lease of %v", c.Lease))
	}
	_, err := wire.NewDecoder(c.Streams, c.Registry, frameLimits())
	return errors.Join(append(errs, err)...)
}

// Stats returns what was moved so far.
func (n *Node) Stats() Stats {
	return Stats{n.stats.sent.Load(), n.stats.received.Load(), n.stats.stale.Load()}
}

// Close ends all links, which fails their generations, and waits for the goroutines.
func (n *Node) Close() error {
	n.mu.Lock()
	var conns []*conn
	n.closed = true
	for _, nb := range n.neighbours {
		if nb.conn != nil {
			conns = append(conns, nb.conn)
		}
	}
	n.change()
	n.mu.Unlock()
	n.cancel()
	err := n.cfg.Listener.Close()
	for _, c := range conns {
		c.end(errClosed, fmt.Sprintf("worker %q stops", n.cfg.Worker))
	}
	n.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// change wakes all that wait for a change; the lock is held.
func (n *Node) change() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// neighbour returns what is known of a worker; the lock is held.
func (n *Node) neighbour(worker string) *neighbour {
	nb := n.neighbours[worker]
	if nb == nil {
		nb = &neighbour{}
		n.neighbours[worker] = nb
	}
	return nb
}

// install makes c the connection to its worker; the caller starts it. An older one ends,
// but generations that have not used it go on with c: the other end may have lost it, and
// got the generation, before this one knew.
func (n *Node) install(c *conn) error {
	n.mu.Lock()
	nb := n.neighbour(c.peer)
	older := nb.conn
	if err := n.refuses(c.peer, hold{c.incarnation, c.attempt}); err != nil {
		n.mu.Unlock()
		return err
	}
	nb.conn = c
	if older != nil && older.incarnation == c.incarnation {
		for _, g := range older.unused() {
			g.bind(c)
		}
	}
	n.change()
	n.mu.Unlock()
	if older != nil {
		older.end(errors.New("it has connected anew"), "")
	}
	n.cfg.Logger.Debug("link up", "peer", c.peer, "incarnation", c.incarnation)
	return nil
}

// refuses returns why a connection to a worker must not become the one that is used;
// the lock is held.
func (n *Node) refuses(worker string, h hold) error {
	nb := n.neighbour(worker)
	switch {
	case n.closed:
		return errClosed
	case nb.expected != h.incarnation:
		return fmt.Errorf("worker %q is expected in incarnation %q, not %q", worker, nb.expected, h.incarnation)
	case nb.held.incarnation == h.incarnation && nb.held.attempt > h.attempt,
		nb.conn != nil && nb.conn.incarnation == h.incarnation && nb.conn.attempt > h.attempt:
		return fmt.Errorf("worker %q has connected anew meanwhile", worker)
	}
	return nil
}

// forget removes a connection that has ended.
func (n *Node) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if nb := n.neighbour(c.peer); nb.conn == c {
		nb.conn = nil
	}
	n.change()
}
