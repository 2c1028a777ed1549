package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// windowsBytes bounds the windows of all channels from one worker together, as long as
// each has more than the smallest.
const windowsBytes = 64 << 20

// Generation is the channels of one generation of a region to and from other workers.
// It is used by one goroutine: first all channels are made, then it is connected, and
// when all workers have done so the tasks may start. It is closed when they have ended.
type Generation struct {
	number   tuple.Generation
	node     *Node
	failed   func(error)
	once     sync.Once
	peers    map[string]Peer
	mistakes []error

	inbounds  map[pair]*inbound
	outbounds map[string][]*Outbound
	encoders  map[int]*encoder      // by sending task
	decoders  map[int]*wire.Decoder // by receiving task
	conns     map[string]*conn      // guarded by the node's lock
}

type pair struct{ from, to int32 }

// Generation registers a generation of a region, of which peers are the other workers,
// by their ids. A connection to another life of one of them than the newest generation
// names ends at once.
//
// failed is called at most once, on a goroutine of the Node's, when a connection breaks
// that channels of the generation use; its error names the worker and the cause. It must
// not wait, nor close the generation. It may be called until Close returns.
func (n *Node) Generation(number tuple.Generation, peers map[string]Peer, failed func(error)) (*Generation, error) {
	g := &Generation{
		number:    number,
		node:      n,
		failed:    failed,
		peers:     maps.Clone(peers),
		inbounds:  map[pair]*inbound{},
		outbounds: map[string][]*Outbound{},
		encoders:  map[int]*encoder{},
		decoders:  map[int]*wire.Decoder{},
		conns:     map[string]*conn{},
	}
	replaced, err := n.register(g)
	for _, c := range replaced {
		c.end(fmt.Errorf("incarnation %q was replaced by a newer one", c.incarnation), "")
	}
	if err != nil {
		return nil, fmt.Errorf("links of generation %d: %w", number, err)
	}
	return g, nil
}

// register notes a generation and which lives its workers have, and returns the
// connections to others.
func (n *Node) register(g *Generation) (replaced []*conn, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, errClosed
	case n.generations[g.number] != nil:
		return nil, errors.New("it is registered already")
	}
	for worker, p := range g.peers {
		nb := n.neighbours[worker]
		switch {
		case worker == n.cfg.Worker:
			return nil, fmt.Errorf("worker %q is this one", worker)
		case p.Incarnation == "":
			return nil, fmt.Errorf("worker %q has no incarnation", worker)
		case nb != nil && nb.since > g.number && nb.expected != p.Incarnation:
			return nil, fmt.Errorf("worker %q has incarnation %q since generation %d, not %q", worker, nb.expected, nb.since, p.Incarnation)
		}
	}
	for worker, p := range g.peers {
		nb := n.neighbour(worker)
		nb.expected, nb.since = p.Incarnation, max(nb.since, g.number)
		if nb.conn != nil && nb.conn.incarnation != p.Incarnation {
			replaced = append(replaced, nb.conn)
		}
	}
	n.generations[g.number] = g
	n.newest = max(n.newest, g.number)
	n.change()
	return replaced, nil
}

// Inbound makes the receiving end of the channel from the task c.SourceTask of a peer to
// the task to of this worker. The channel's frames are decoded when the task receives
// them. Its generation is this one; Done and Waiting mean nothing here. What is wrong with
// the arguments is told by Connect.
func (g *Generation) Inbound(peer string, to int, c link.Config) *link.Channel {
	c.Generation = g.number
	decoder := g.decoders[to]
	if decoder == nil {
		var err error
		if decoder, err = wire.NewDecoder(g.node.cfg.Streams, g.node.cfg.Registry, frameLimits()); err != nil {
			g.mistakes = append(g.mistakes, err)
		}
		g.decoders[to] = decoder
	}
	in := newInbound(g, peer, to, c, decoder.Decode)
	id := pair{int32(c.SourceTask), int32(to)}
	g.check(peer, id, g.inbounds[id] != nil)

	g.node.mu.Lock()
	defer g.node.mu.Unlock()
	g.inbounds[id] = in
	g.node.neighbour(peer).inbounds++
	return in.ch
}

// Outbound makes the sending end of the channel from the task c.SourceTask of this worker
// to the task to of a peer. Of the config it heeds Done and Waiting besides. failed is
// told of a frame that cannot be sent, on the goroutine of the sending task, at most
// once; see [Outbound.Send].
func (g *Generation) Outbound(peer string, to int, c link.Config, failed func(error)) *Outbound {
	e := g.encoders[c.SourceTask]
	if e == nil {
		e = newEncoder(g.node.cfg.Registry)
		g.encoders[c.SourceTask] = e
	}
	o := newOutbound(g.number, peer, to, c, e, failed)
	twice := false
	for _, other := range g.outbounds[peer] {
		twice = twice || other.from == o.from && other.to == o.to
	}
	g.check(peer, pair{o.from, o.to}, twice)
	g.outbounds[peer] = append(g.outbounds[peer], o)
	return o
}

func (g *Generation) check(peer string, id pair, twice bool) {
	if _, known := g.peers[peer]; !known {
		g.mistakes = append(g.mistakes, fmt.Errorf("channel from task %d to task %d: worker %q is no peer of the generation", id.from, id.to, peer))
	}
	if twice {
		g.mistakes = append(g.mistakes, fmt.Errorf("channel from task %d to task %d is made twice", id.from, id.to))
	}
}

// Connect returns when there is a connection to every worker that a channel goes to or
// comes from, or with the reason why there is none when ctx ends or a worker refuses for
// good. Of two workers, the one with the smaller id dials, again and again; the other one
// waits.
func (g *Generation) Connect(ctx context.Context) error {
	err := errors.Join(g.mistakes...)
	if err == nil {
		var connecting sync.WaitGroup
		var mu sync.Mutex
		for worker := range g.used() {
			connecting.Go(func() {
				if e := g.node.connect(ctx, g, worker); e != nil {
					mu.Lock()
					defer mu.Unlock()
					err = errors.Join(err, e)
				}
			})
		}
		connecting.Wait()
	}
	if err != nil {
		return fmt.Errorf("connect generation %d: %w", g.number, err)
	}
	return nil
}

// used returns the workers that a channel goes to or comes from.
func (g *Generation) used() map[string]bool {
	used := map[string]bool{}
	for _, in := range g.inbounds {
		used[in.peer] = true
	}
	for peer := range g.outbounds {
		used[peer] = true
	}
	return used
}

// Unlinked returns the workers that Connect waits for, in order. It may be called, on any
// goroutine, from when Connect may be.
func (g *Generation) Unlinked() []string {
	g.node.mu.Lock()
	defer g.node.mu.Unlock()
	var waits []string
	if g.conns != nil { // not closed
		for worker := range g.used() {
			if g.conns[worker] == nil {
				waits = append(waits, worker)
			}
		}
	}
	slices.Sort(waits)
	return waits
}

// bind makes c carry the channels of g; it returns false if it has ended, or g is closed.
// The node's lock is held.
func (g *Generation) bind(c *conn) bool {
	if g.conns == nil || !c.bind(g, g.outbounds[c.peer]) {
		return false
	}
	g.conns[c.peer] = c
	return true
}

// opened reports whether a channel to or from a worker has been used. The locks of the
// node and of the connection to the worker are held.
func (g *Generation) opened(worker string) bool {
	for _, o := range g.outbounds[worker] {
		if o.number != 0 {
			return true
		}
	}
	for _, in := range g.inbounds {
		if in.peer == worker && in.conn != nil {
			return true
		}
	}
	return false
}

func (g *Generation) fail(err error) { g.once.Do(func() { g.failed(err) }) }

// Close ends the channels: what they have queued is dropped, and what still comes. It
// may be called again.
func (g *Generation) Close() {
	n := g.node
	n.mu.Lock()
	if n.generations[g.number] != g {
		n.mu.Unlock()
		return
	}
	delete(n.generations, g.number)
	for _, in := range g.inbounds {
		in.closed.Store(true)
		n.neighbour(in.peer).inbounds--
	}
	conns := g.conns
	g.conns = nil
	n.mu.Unlock()
	for worker, c := range conns {
		c.unbind(g, g.outbounds[worker])
	}
	g.once.Do(func() {}) // waits for a call of failed that is under way
}

// inbound returns the channel that a worker opens, nil if its generation is over.
func (n *Node) inbound(c *conn, r record) (*inbound, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.generations[r.generation]
	if g == nil && r.generation > n.newest {
		return nil, fmt.Errorf("it is opened before it is known here; the newest generation is %d", n.newest)
	}
	if g == nil {
		n.stats.stale.Add(1)
		return nil, nil
	}
	in := g.inbounds[pair{int32(r.a), int32(r.b)}]
	switch {
	case in == nil || in.peer != c.peer:
		return nil, fmt.Errorf("worker %q has no such channel to this one", c.peer)
	case g.conns[c.peer] == nil:
		return nil, errors.New("it is opened before it is connected here")
	case g.conns[c.peer] != c: // that one has ended, and the generation with it
		n.stats.stale.Add(1)
		return nil, nil
	case in.conn != nil:
		return nil, errors.New("it is opened twice")
	}
	in.conn, in.number = c, r.channel
	in.window = min(max(windowsBytes/max(n.neighbour(c.peer).inbounds, 1), windowMin), windowMax)
	return in, nil
}
