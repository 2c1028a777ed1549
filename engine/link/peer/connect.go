package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	redialMin = 10 * time.Millisecond
	redialMax = time.Second
	// handshakesMax bounds the connections whose other end has not been let in.
	handshakesMax = 256
)

// connect gets a generation the connection to one of its workers.
func (n *Node) connect(ctx context.Context, g *Generation, worker string) error {
	p := g.peers[worker]
	pause := redialMin
	var cause error
	again := time.NewTimer(pause)
	again.Stop() // until a dial has failed
	defer again.Stop()
	for {
		n.mu.Lock()
		nb := n.neighbour(worker)
		switch {
		case n.closed:
			n.mu.Unlock()
			return errClosed
		case nb.expected != p.Incarnation:
			n.mu.Unlock()
			return fmt.Errorf("worker %q has incarnation %q since generation %d, not %q", worker, nb.expected, nb.since, p.Incarnation)
		case nb.conn != nil && nb.conn.incarnation == p.Incarnation && g.bind(nb.conn):
			n.mu.Unlock()
			return nil
		}
		changed := n.changed
		dials := n.cfg.Worker < worker && !nb.dialing
		if dials {
			nb.dialing = true
			n.running.Add(1)
		}
		n.mu.Unlock()

		if dials {
			err := n.dial(ctx, worker, p)
			n.mu.Lock()
			nb.dialing = false
			n.change()
			n.mu.Unlock()
			n.running.Done()
			if err == nil {
				continue
			}
			if errors.Is(err, errRefused) {
				return fmt.Errorf("worker %q at %s: %w", worker, p.Addr, err)
			}
			cause = err
			again.Reset(pause)
			pause = min(2*pause, redialMax)
			changed = nil
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			if cause == nil {
				cause = errors.New("it has not connected")
			}
			return fmt.Errorf("worker %q at %s: %w: %w", worker, p.Addr, context.Cause(ctx), cause)
		}
	}
}

// dial opens a connection to a worker and installs it.
func (n *Node) dial(ctx context.Context, worker string, p Peer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.Lease)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	raw, err := n.cfg.Dial(ctx, p.Addr)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	h := hello{
		topology: n.cfg.Topology,
		from:     hold{n.cfg.Incarnation, n.attempts.Add(1)},
		worker:   n.cfg.Worker,
		to:       worker,
		toLife:   p.Incarnation,
	}
	sock, err := n.greet(ctx, raw, p.Addr, h)
	c := newConn(n, worker, p.Incarnation, h.from.attempt, sock, raw)
	if err == nil {
		err = n.install(c)
	}
	if err != nil {
		_ = raw.Close() // err tells more
		return err
	}
	c.start()
	return nil
}

// greet says who this is and waits until the other end lets it in.
func (n *Node) greet(ctx context.Context, raw net.Conn, addr string, h hello) (net.Conn, error) {
	tune(raw, n.cfg.Lease)
	sock := raw
	if n.cfg.TLS != nil {
		c := n.cfg.TLS.Clone()
		c.MinVersion = tls.VersionTLS13
		if c.ServerName == "" && !c.InsecureSkipVerify {
			c.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(&batched{Conn: raw}, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("handshake of TLS: %w", err)
		}
		sock = secure
	}
	if _, err := sock.Write(h.append(nil)); err != nil {
		return nil, fmt.Errorf("say who this is: %w", err)
	}
	if err := readAnswer(sock); err != nil {
		return nil, err
	}
	return sock, nil
}

// accept is the goroutine that accepts connections.
func (n *Node) accept() {
	places := make(chan struct{}, handshakesMax)
	pause := redialMin
	for n.ctx.Err() == nil {
		raw, err := n.cfg.Listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			n.cfg.Logger.Warn("accept a link", "err", err)
			again := time.NewTimer(pause)
			select {
			case <-again.C:
			case <-n.ctx.Done():
			}
			again.Stop()
			pause = min(2*pause, redialMax)
			continue
		}
		pause = redialMin
		select {
		case places <- struct{}{}:
		default:
			n.cfg.Logger.Warn("too many links at a time", "from", raw.RemoteAddr())
			_ = raw.Close() // no word was said on it
			continue
		}
		n.running.Go(func() {
			defer func() { <-places }()
			if err := n.admit(raw); err != nil {
				_ = raw.Close() // it may be closed already
				n.cfg.Logger.Warn("link refused", "from", raw.RemoteAddr(), "err", err)
			}
		})
	}
}

// admit lets the other end of a connection in, if it is one that is expected.
func (n *Node) admit(raw net.Conn) error {
	tune(raw, n.cfg.Lease)
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.Lease)
	defer cancel()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	sock := raw
	if n.cfg.TLS != nil {
		c := n.cfg.TLS.Clone()
		c.MinVersion = tls.VersionTLS13
		secure := tls.Server(&batched{Conn: raw}, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("handshake of TLS: %w", err)
		}
		sock = secure
	}
	h, err := readHello(sock)
	if err == nil {
		err = n.accepts(h)
	}
	verdict := refused
	if err == nil {
		verdict = later
		err = n.await(ctx, h)
	}
	c := newConn(n, h.worker, h.from.incarnation, h.from.attempt, sock, raw)
	if err == nil {
		// Before the answer, so that the generation is on it when the other end is ready.
		err = n.install(c)
	}
	if err == nil {
		verdict = welcome
	}
	_, answered := sock.Write(answer{verdict, err}.append(nil))
	if err != nil {
		return err
	}
	if answered != nil {
		c.end(fmt.Errorf("answer: %w", answered), "")
		return nil
	}
	c.start()
	return nil
}

// accepts checks what never changes about who connects.
func (n *Node) accepts(h hello) error {
	c := &n.cfg
	switch {
	case h.topology != c.Topology:
		return fmt.Errorf("this is a worker of topology %q, not %q", c.Topology, h.topology)
	case h.to != c.Worker || h.toLife != c.Incarnation:
		return fmt.Errorf("this is worker %q incarnation %q, not %q incarnation %q", c.Worker, c.Incarnation, h.to, h.toLife)
	case h.worker >= c.Worker:
		return fmt.Errorf("worker %q waits for worker %q to connect, not the other way round", h.worker, c.Worker)
	}
	return nil
}

// await waits until a generation expects the worker that connects, in this life: the
// other worker may hear of a generation first.
func (n *Node) await(ctx context.Context, h hello) error {
	// What is held longer is refused, before the context ends and closes the connection.
	timeout := time.NewTimer(n.cfg.Lease / 2)
	defer timeout.Stop()
	for {
		n.mu.Lock()
		nb := n.neighbours[h.worker]
		if nb != nil && (nb.held.incarnation != h.from.incarnation || nb.held.attempt < h.from.attempt) {
			nb.held = h.from
		}
		var err error
		if nb == nil {
			err = fmt.Errorf("worker %q is not expected", h.worker)
		} else {
			err = n.refuses(h.worker, h.from)
		}
		changed := n.changed
		n.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return err
		case <-ctx.Done():
			return errors.Join(errClosed, err)
		}
	}
}
