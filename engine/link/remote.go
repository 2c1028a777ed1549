package link

import (
	"fmt"
	"sync/atomic"

	"github.com/isobar-io/isobar/tuple"
)

// Remote is what a channel needs whose sender is in another process: its frames come
// as bytes, which the receiving task decodes when it takes them. All functions but
// those of the Feed are called on the goroutine of that task.
type Remote struct {
	// Decode makes f, which is empty, the frame that data encodes; f shares nothing
	// with data.
	Decode func(data []byte, f *tuple.Frame) error
	// Decoded gets data back when it has been decoded.
	Decoded func(data []byte)
	// Returned is called when the task has given back a frame that came as so many
	// bytes; limit is how many tuples the task wants in a frame.
	Returned func(bytes, limit int)
}

// remote is the receiving end of a channel from another process.
type remote struct {
	Remote
	data     [][]byte // what each slot of the data ring is to be decoded from
	sizes    []int    // how long that was, until the frame is given back
	returned atomic.Uint32
	err      error
}

// Feed is the end of a channel that the reader of a connection puts frames into.
type Feed struct{ c *Channel }

// NewRemote returns an empty channel whose sender is in another process, and its Feed.
// The channel holds Cap frames, including those that the task has not given back.
// Done and Waiting of the Config are the sender's and mean nothing here.
func NewRemote(c Config, r Remote) (*Channel, *Feed) {
	ch := NewChannel(c)
	ch.remote = &remote{Remote: r, data: make([][]byte, ch.Cap()), sizes: make([]int, ch.Cap())}
	return ch, &Feed{ch}
}

// Push adds a frame, which the channel owns from then on, and wakes the receiver. It
// never waits: it returns false if the channel is full, which a sender that heeds its
// credit never makes it. One goroutine at a time may call it.
func (d *Feed) Push(data []byte) bool {
	c, r := d.c, d.c.remote
	tail := c.data.tail.Load()
	// The slot is free once its last frame has been given back, not only taken: until
	// then its size is needed.
	if tail-r.returned.Load() == uint32(len(r.data)) {
		return false
	}
	f := c.free.pop()
	if f == nil {
		f = c.NewFrame()
	}
	at := tail & uint32(len(r.data)-1)
	r.data[at], r.sizes[at] = data, len(data)
	c.data.push(f)
	c.bell.Ring()
	return true
}

// receiveRemote takes the next frame and decodes it. One that cannot be decoded, or is
// not what its place in the channel says, comes back empty and out of order.
func (c *Channel) receiveRemote() *tuple.Frame {
	r := c.remote
	head := c.data.head.Load()
	if head == c.data.tail.Load() {
		return nil
	}
	at := head & uint32(len(r.data)-1)
	f, data := *c.data.slot(head), r.data[at]
	r.data[at] = nil
	c.data.head.Store(head + 1)
	c.read++
	err := r.Decode(data, f)
	r.Decoded(data)
	if err == nil {
		err = c.belongs(f)
	}
	if err != nil {
		f.Reset()
		f.Generation, f.SourceTask, f.Seq = c.generation, c.sourceTask, 0
		if r.err == nil {
			r.err = fmt.Errorf("frame %d of generation %d from task %d: %w", c.read, c.generation, c.sourceTask, err)
		}
	}
	return f
}

// belongs checks that f is the next frame of this channel.
func (c *Channel) belongs(f *tuple.Frame) error {
	switch {
	case f.SourceTask != c.sourceTask:
		return fmt.Errorf("it comes from task %d", f.SourceTask)
	case !c.InOrder(f):
		return fmt.Errorf("it says that it is frame %d of generation %d", f.Seq, f.Generation)
	}
	return nil
}

// recycledMax is how large a frame may have been that is used again: its memory is kept.
const recycledMax = 1 << 20

func (c *Channel) returnRemote(f *tuple.Frame) {
	r := c.remote
	n := r.returned.Load()
	size := r.sizes[n&uint32(len(r.sizes)-1)]
	if size <= recycledMax {
		c.free.push(f)
	}
	r.returned.Store(n + 1)
	r.Returned(size, c.FrameLimit())
}

// Err returns what was wrong with the first frame from another process that could not
// be read; that frame is empty and not InOrder. The generation cannot go on.
func (c *Channel) Err() error {
	if c.remote == nil {
		return nil
	}
	return c.remote.err
}
