package peer

import (
	"slices"
	"sync/atomic"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

const (
	// A channel begins with the smallest window; that of its receiver follows.
	windowMin = 16 << 10
	windowMax = 256 << 10
	framesMin = 2
	// firstLimit is how many tuples a frame holds before the receiver's speed is known.
	firstLimit = 16
	// tuplesMax bounds the same afterwards.
	tuplesMax = 1<<16 - 1

	// splitBytes is the most that a frame of several tuples may take.
	splitBytes = 1 << 20
)

// Outbound is the sending end of a channel to a task of another process. Only the
// sending task calls it, from when the generation has started.
type Outbound struct {
	generation tuple.Generation
	from, to   int32
	peer       string
	done       <-chan struct{}
	wait       func(bool)
	failed     func(error)

	conn    atomic.Pointer[conn] // set when the generation is connected
	encoder *encoder
	seq     uint64 // frames sent
	void    bool   // a frame could not be sent: nothing that follows counts
	size    int    // of the last frame, for the buffer of the next
	fit     int    // tuples of which two frames fill the window
	room    chan struct{}
	limit   atomic.Int32 // tuples per frame, set by the receiver

	lane // guarded by the lock of the connection
}

// encoder is what the channels of one sending task encode frames with.
type encoder struct {
	*wire.Encoder // of frames that are not too large
	registry      *wire.Registry
}

func newEncoder(r *wire.Registry) *encoder {
	limits := frameLimits()
	limits.FrameBytes = splitBytes
	return &encoder{wire.NewEncoder(r, limits), r}
}

// one encodes a frame of one tuple, which may be large. The memory that this takes is not
// kept.
func (e *encoder) one(dst []byte, f *tuple.Frame) ([]byte, error) {
	return wire.NewEncoder(e.registry, frameLimits()).Append(dst, f)
}

func newOutbound(g tuple.Generation, peer string, to int, c link.Config, e *encoder, failed func(error)) *Outbound {
	o := &Outbound{
		generation: g,
		from:       int32(c.SourceTask),
		to:         int32(to),
		peer:       peer,
		done:       c.Done,
		wait:       c.Waiting,
		failed:     failed,
		encoder:    e,
		fit:        tuplesMax,
		room:       make(chan struct{}, 1),
		lane:       lane{window: windowMin, frames: framesMin},
	}
	if o.wait == nil {
		o.wait = func(bool) {}
	}
	o.limit.Store(firstLimit)
	return o
}

// NewFrame returns an empty frame of this channel's.
func (o *Outbound) NewFrame() *tuple.Frame {
	return &tuple.Frame{Generation: o.generation, SourceTask: o.from}
}

// FrameLimit returns how many tuples a frame should hold now: what the receiver wants,
// but no more than half of the channel's window.
func (o *Outbound) FrameLimit() int { return min(int(o.limit.Load()), o.fit) }

// Send encodes f and hands it to the connection, waiting while the receiver has given
// no credit for it, and returns f, empty again, and how many tuples it should hold. It
// does not wait for the network. When the generation has ended, the frame is dropped:
// everything in it is void. On a connection that is broken it waits for that end.
//
// A frame of many large tuples is sent as several. One that cannot be sent, because a
// value is too large or an object has no codec, is reported to the failed function
// that the channel was made with, once; it and all that follow are dropped, and the
// connection goes on.
func (o *Outbound) Send(f *tuple.Frame) (*tuple.Frame, int) {
	if !o.void {
		if err := o.send(f); err != nil {
			o.void = true
			o.failed(err)
		}
	}
	f.Reset()
	return f, o.FrameLimit()
}

func (o *Outbound) send(f *tuple.Frame) error {
	f.Seq = o.seq + 1
	buf := bufferFor(o.size)
	out, err := o.encoder.Append(buf, f)
	if err != nil && f.Len() > 1 {
		release(buf)
		return o.split(f)
	}
	if err != nil {
		out, err = o.encoder.one(buf, f)
	}
	if err != nil {
		release(buf)
		return err
	}
	if cap(out) != cap(buf) {
		release(buf)
	}
	o.seq++
	o.size = min(len(out), 1<<bufferBitsMax)
	window := o.post(out)
	if n := f.Len(); n > 0 {
		o.fit = min(max(window/2*n/len(out), 1), tuplesMax)
	}
	return nil
}

// split sends f in two parts, of which the second has the mark.
func (o *Outbound) split(f *tuple.Frame) error {
	half := f.Len() / 2
	if err := o.send(part(f, 0, half)); err != nil {
		return err
	}
	rest := part(f, half, f.Len())
	rest.Mark = f.Mark
	return o.send(rest)
}

func part(f *tuple.Frame, from, to int) *tuple.Frame {
	p := &tuple.Frame{Generation: f.Generation, SourceTask: f.SourceTask}
	p.Begin(f.Stream, f.Keyed())
	vals, hashes := p.Extend(to - from)
	copy(vals, f.Values()[from*f.Width():])
	if f.Keyed() {
		copy(hashes, f.Hashes()[from:])
	}
	return p
}

// post queues an encoded frame as soon as there is credit for it, and returns the
// channel's window.
func (o *Outbound) post(frame []byte) (windowBytes int) {
	if n, ok := o.try(frame); ok {
		return n
	}
	o.wait(true)
	defer o.wait(false)
	for {
		select {
		case <-o.room:
		case <-o.done:
			release(frame)
			return windowMin
		}
		if n, ok := o.try(frame); ok {
			return n
		}
	}
}

func (o *Outbound) try(frame []byte) (windowBytes int, ok bool) {
	c := o.conn.Load()
	if c == nil {
		return 0, false
	}
	return c.post(o, frame)
}

// wake has the task try again if it waits.
func (o *Outbound) wake() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}

// lane is the part of an Outbound that its connection's lock guards.
type lane struct {
	number  uint32 // on the connection, 0 before the first frame
	window  int    // bytes that may be under way
	frames  int    // frames that may be
	bytes   int    // that are under way: sent, and not given back by the receiver
	count   int    // frames that are
	queue   []queued
	waiting bool // the task waits for credit
	closed  bool
}

// queued is a frame that waits to be written, or the rest of one.
type queued struct {
	frame []byte
	sent  int
}

// admits reports whether a frame may go now. One that is larger than the window goes
// when nothing is under way but what the receiver has given back and not told yet,
// which is less than a quarter of the window.
func (l *lane) admits(n int) bool {
	return l.count < l.frames && (l.bytes+n <= l.window || l.bytes*4 < l.window)
}

// next takes the next piece that is to be written, of which there is one.
func (l *lane) next() piece {
	q := &l.queue[0]
	p := piece{channel: l.number, total: len(q.frame)}
	p.chunk = q.frame[q.sent:min(q.sent+chunkMax, len(q.frame))]
	if q.sent += len(p.chunk); q.sent == len(q.frame) {
		p.done = q.frame
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	return p
}
