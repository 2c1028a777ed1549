// Package link moves frames and messages between tasks of one process: bounded
// single-producer single-consumer rings, the bells that wake their readers, and
// mailboxes for control.
package link

import (
	"math/bits"
	"sync/atomic"

	"github.com/isobar-io/isobar/tuple"
)

// firstLimit is how many tuples a frame holds before the receiver's speed is known.
const firstLimit = 16

// ring is a bounded queue with one producer and one consumer.
type ring struct {
	head  atomic.Uint32 // next to read; written by the consumer
	_     [60]byte      // keep the two ends on different cache lines
	tail  atomic.Uint32 // next to write; written by the producer
	_     [60]byte
	slots []*tuple.Frame // a power of two of them
}

func (r *ring) slot(i uint32) **tuple.Frame { return &r.slots[i&uint32(len(r.slots)-1)] }

func (r *ring) push(f *tuple.Frame) bool {
	tail := r.tail.Load()
	if tail-r.head.Load() == uint32(len(r.slots)) {
		return false
	}
	*r.slot(tail) = f
	r.tail.Store(tail + 1)
	return true
}

func (r *ring) pop() *tuple.Frame {
	head := r.head.Load()
	if head == r.tail.Load() {
		return nil
	}
	f := *r.slot(head)
	r.head.Store(head + 1)
	return f
}

func (r *ring) len() int { return int(r.tail.Load() - r.head.Load()) }

// Channel carries frames from one task to another, in order, within one generation.
// A full channel is back-pressure: its sender waits. Frames that were read go back
// to the sender, so that nothing is allocated once a channel is warm.
type Channel struct {
	data, free ring

	generation tuple.Generation
	sourceTask int32
	done       <-chan struct{} // ends with the generation
	poison     bool

	seq     uint64        // frames sent; the sender's
	room    chan struct{} // tells a waiting sender that there is room
	waiting atomic.Bool   // the sender waits for room
	wait    func(bool)    // says when the sender waits
	bell    *Bell         // the receiver's
	limit   atomic.Int32  // tuples per frame, set by the receiver
	read    uint64        // frames received; the receiver's

	remote *remote // set if the sender is in another process
}

// Config describes a channel.
type Config struct {
	Generation tuple.Generation
	SourceTask int
	Receiver   *Bell
	// Frames is how many frames the channel holds, rounded up to a power of two. One
	// more is open at the sender and one in the hands of the receiver.
	Frames int
	Done   <-chan struct{} // closed when the generation ends
	Poison bool            // overwrite frames before they are used again
	// Waiting, if set, is called by the sender when it begins to wait for room, and
	// when it goes on.
	Waiting func(waits bool)
}

// NewChannel returns an empty channel.
func NewChannel(c Config) *Channel {
	ch := &Channel{
		generation: c.Generation,
		sourceTask: int32(c.SourceTask),
		done:       c.Done,
		poison:     c.Poison,
		room:       make(chan struct{}, 1),
		wait:       c.Waiting,
		bell:       c.Receiver,
	}
	frames := 1 << bits.Len(uint(max(c.Frames, 2)-1))
	ch.data.slots, ch.free.slots = make([]*tuple.Frame, frames), make([]*tuple.Frame, frames)
	if ch.wait == nil {
		ch.wait = func(bool) {}
	}
	ch.limit.Store(firstLimit)
	return ch
}

// NewFrame returns an empty frame of this channel's.
func (c *Channel) NewFrame() *tuple.Frame {
	return &tuple.Frame{Generation: c.generation, SourceTask: c.sourceTask}
}

// FrameLimit returns how many tuples a frame should hold now.
func (c *Channel) FrameLimit() int { return int(c.limit.Load()) }

// Send hands f to the receiver, waiting while the channel is full, and returns an
// empty frame and how many tuples it should hold. When the generation has ended,
// the frame is dropped: everything in it is void. Only the sending task calls it.
func (c *Channel) Send(f *tuple.Frame) (*tuple.Frame, int) {
	c.seq++
	f.Seq = c.seq
	if !c.data.push(f) && !c.pushWaiting(f) {
		f.Reset()
		return f, c.FrameLimit()
	}
	c.bell.Ring()
	next := c.free.pop()
	if next == nil {
		next = c.NewFrame()
	}
	return next, c.FrameLimit()
}

// pushWaiting waits for room for f; it returns false if the generation ended first.
func (c *Channel) pushWaiting(f *tuple.Frame) bool {
	c.wait(true)
	defer c.wait(false)
	for {
		c.waiting.Store(true)
		// The receiver may have made room between the push that failed and the store;
		// it sees waiting only from here on, so look once more before waiting.
		if c.data.push(f) {
			c.waiting.Store(false)
			return true
		}
		select {
		case <-c.room:
		case <-c.done:
			return false
		}
		if c.data.push(f) {
			return true
		}
	}
}

// Receive returns the next frame, or nil. Only the receiving task calls it, and it
// gives the frame back with Return. See Err for what cannot be read.
func (c *Channel) Receive() *tuple.Frame {
	if c.remote != nil {
		return c.receiveRemote()
	}
	f := c.data.pop()
	if f == nil {
		return nil
	}
	c.read++
	if c.waiting.Load() && c.waiting.CompareAndSwap(true, false) {
		select {
		case c.room <- struct{}{}:
		default:
		}
	}
	return f
}

// InOrder reports whether f is the frame that must follow those received before.
func (c *Channel) InOrder(f *tuple.Frame) bool {
	return f.Seq == c.read && f.Generation == c.generation
}

// Return gives a frame back for reuse.
func (c *Channel) Return(f *tuple.Frame) {
	if c.poison {
		f.Poison()
	}
	f.Reset()
	if c.remote != nil {
		c.returnRemote(f)
		return
	}
	c.free.push(f)
}

// SetFrameLimit tells the sender how many tuples to put into a frame.
func (c *Channel) SetFrameLimit(n int) {
	if int32(n) != c.limit.Load() {
		c.limit.Store(int32(n))
	}
}

// Source returns the topology-wide id of the sending task.
func (c *Channel) Source() int { return int(c.sourceTask) }

// Cap returns how many frames the channel holds.
func (c *Channel) Cap() int { return len(c.data.slots) }

// Len returns how many frames wait.
func (c *Channel) Len() int { return c.data.len() }

// Ready reports whether a frame waits.
func (c *Channel) Ready() bool { return c.data.len() > 0 }
