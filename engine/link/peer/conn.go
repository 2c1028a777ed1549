package peer

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is the connection to one life of another worker. Three goroutines belong to it:
// one reads, one writes, one sees whether the other end is alive. The node waits for
// all of them.
type conn struct {
	node        *Node
	peer        string
	incarnation string
	attempt     uint64   // orders the connections that one life of a worker has made
	sock        net.Conn // what bytes go through
	raw         net.Conn // what is below it, the same without TLS

	broken chan struct{} // closed by end
	reads  atomic.Uint64 // how often something came
	writes atomic.Uint64

	mu          sync.Mutex
	err         error // why it ended
	farewell    string
	generations map[*Generation]bool
	lanes       map[uint32]*Outbound // by number
	lastNumber  uint32
	ready       fifo          // of those that have frames to write
	records     []byte        // encoded, to be written before any frame
	idle        bool          // the writer waits for work
	work        chan struct{} // wakes it

	inbounds map[uint32]*inbound // by number; the reader's; nil for a generation that is over
	opened   uint32              // the last number that the other end has opened
}

func newConn(n *Node, peer, incarnation string, attempt uint64, sock, raw net.Conn) *conn {
	return &conn{
		node:        n,
		peer:        peer,
		incarnation: incarnation,
		attempt:     attempt,
		sock:        sock,
		raw:         raw,
		broken:      make(chan struct{}),
		generations: map[*Generation]bool{},
		lanes:       map[uint32]*Outbound{},
		work:        make(chan struct{}, 1),
		inbounds:    map[uint32]*inbound{},
	}
}

// start starts the goroutines. The caller is one that the node waits for, or holds up
// its end in another way.
func (c *conn) start() {
	c.node.running.Go(c.read)
	c.node.running.Go(c.write)
	c.node.running.Go(c.watch)
}

// errClosed is the cause of the end of a connection that this node has closed.
var errClosed = errors.New("this worker closes its links")

// end ends the connection for a reason, unless it has ended, and tells all generations
// that have channels on it. With a farewell the other end is told as well, if it
// listens. The node's lock must not be held.
func (c *conn) end(err error, farewell string) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("link to worker %q at %s: %w", c.peer, c.raw.RemoteAddr(), err)
	c.farewell = farewell
	generations := c.generations
	c.generations = nil
	c.mu.Unlock()
	close(c.broken)
	if farewell == "" {
		_ = c.raw.Close() // why it ends is known
	} else {
		now := time.Now()
		// Where these fail, so do reads and writes.
		_ = c.raw.SetReadDeadline(now)
		_ = c.raw.SetWriteDeadline(now.Add(farewellTime))
	}
	c.node.forget(c)
	if errors.Is(err, errClosed) {
		c.node.cfg.Logger.Debug("link closed", "peer", c.peer)
	} else {
		c.node.cfg.Logger.Warn("link broken", "peer", c.peer, "incarnation", c.incarnation, "err", err)
	}
	for g := range generations {
		g.fail(c.err)
	}
}

// farewellTime is how long the other end has to take the reason of an end.
const farewellTime = time.Second

// bind adds the channels of a generation; it returns false if the connection has ended.
func (c *conn) bind(g *Generation, outs []*Outbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.generations[g] = true
	for _, o := range outs {
		o.conn.Store(c)
		o.wake()
	}
	return true
}

// unbind removes the channels of a generation that is over: what they have queued is
// not written any more.
func (c *conn) unbind(g *Generation, outs []*Outbound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.generations, g)
	for _, o := range outs {
		o.closed, o.queue = true, nil
		if o.number != 0 {
			delete(c.lanes, o.number)
			c.put(record{kind: shut, channel: o.number})
		}
	}
}

// unused removes the generations of which no channel was opened, in either direction, and
// returns them. The node's lock is held.
func (c *conn) unused() (all []*Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.generations {
		if !g.opened(c.peer) {
			all = append(all, g)
			delete(c.generations, g)
			for _, o := range g.outbounds[c.peer] {
				o.conn.Store(nil)
			}
		}
	}
	return all
}

// post queues a frame if its channel has credit for it, and returns the window.
func (c *conn) post(o *Outbound, frame []byte) (windowBytes int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.conn.Load() != c { // it moves to another one, which wakes it
		return 0, false
	}
	if c.err != nil || o.closed || !o.admits(len(frame)) {
		o.waiting = true
		return 0, false
	}
	if o.number == 0 {
		c.lastNumber++
		o.number = c.lastNumber
		c.lanes[o.number] = o
		c.put(record{kind: open, channel: o.number, a: uint32(o.from), b: uint32(o.to), generation: o.generation})
	}
	o.bytes += len(frame)
	o.count++
	if len(o.queue) == 0 {
		c.ready.push(o)
	}
	o.queue = append(o.queue, queued{frame: frame})
	c.wake()
	return o.window, true
}

// control sends a record, before all frames that wait to be written.
func (c *conn) control(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(r)
}

// put queues a record; the lock is held. What is queued is bounded: there are a few
// records for each window and each channel, and a pulse now and then.
func (c *conn) put(r record) {
	if c.err == nil {
		c.records = r.append(c.records)
		c.wake()
	}
}

// wake wakes the writer; the lock is held.
func (c *conn) wake() {
	if c.idle {
		c.idle = false
		c.work <- struct{}{}
	}
}

// granted heeds the window or the credit that a receiver gives.
func (c *conn) granted(r record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.lanes[r.channel]
	switch {
	case r.channel == 0 || r.channel > c.lastNumber:
		return fmt.Errorf("credit for channel %d, of %d that were opened", r.channel, c.lastNumber)
	case o == nil: // shut meanwhile
		return nil
	case r.kind == window:
		if int(r.a) < o.window || int(r.b) < o.frames {
			return fmt.Errorf("the window of channel %d shrinks to %d bytes and %d frames", r.channel, r.a, r.b)
		}
		o.window, o.frames = int(r.a), int(r.b)
	case int64(r.a) > int64(o.bytes) || int64(r.b) > int64(o.count):
		return fmt.Errorf("credit of %d bytes and %d frames for channel %d, on which %d and %d are under way",
			r.a, r.b, r.channel, o.bytes, o.count)
	default:
		o.bytes -= int(r.a)
		o.count -= int(r.b)
	}
	o.limit.Store(int32(r.limit))
	if o.waiting {
		o.waiting = false
		o.wake()
	}
	return nil
}

// watch ends the connection when nothing has come for the lease time, and sees to it
// that the other end hears something in that time.
func (c *conn) watch() {
	lease := c.node.cfg.Lease
	tick := time.NewTicker(lease / leaseParts)
	defer tick.Stop()
	reads, writes, silent := c.reads.Load(), c.writes.Load(), 0
	for {
		select {
		case <-c.broken:
			return
		case <-tick.C:
		}
		if n := c.writes.Load(); n == writes {
			c.control(record{kind: pulse})
		} else {
			writes = n
		}
		if n := c.reads.Load(); n != reads {
			reads, silent = n, 0
		} else if silent++; silent >= leaseParts {
			c.end(fmt.Errorf("nothing came for %v", lease), "")
			return
		}
	}
}

// leaseParts is how often in a lease time a connection is looked at.
const leaseParts = 4

// fifo is a queue.
type fifo struct {
	items []*Outbound
	head  int
}

func (q *fifo) push(o *Outbound) { q.items = append(q.items, o) }

func (q *fifo) pop() *Outbound {
	if q.head == len(q.items) {
		return nil
	}
	o := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 64 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return o
}
