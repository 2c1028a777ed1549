package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
)

// readerBytes is how much is read from a connection at a time.
const readerBytes = 128 << 10

// counting counts how often and how much is read.
type counting struct{ *conn }

func (r counting) Read(b []byte) (int, error) {
	n, err := r.sock.Read(b)
	if n > 0 {
		r.reads.Add(1)
		r.node.stats.received.Add(uint64(n))
	}
	return n, err
}

// read is the goroutine that reads: it moves frames, still encoded, into their
// channels, and never waits for anything but the network.
func (c *conn) read() {
	in := bufio.NewReaderSize(counting{c}, readerBytes)
	for {
		r, err := readRecord(in)
		if err == nil {
			err = c.heed(r, in)
		}
		if err == nil {
			continue
		}
		var network net.Error
		switch {
		case errors.Is(err, io.EOF):
			c.end(fmt.Errorf("it has closed the connection: %w", err), "")
		case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errBye):
			c.end(err, "")
		default:
			c.end(err, fmt.Sprintf("worker %q: %v", c.node.cfg.Worker, err))
		}
		return
	}
}

// errBye is wrapped by the error for a connection that the other end has ended.
var errBye = errors.New("it has ended the link")

// heed does what a record says, and takes what follows it from in.
func (c *conn) heed(r record, in *bufio.Reader) error {
	switch r.kind {
	case data:
		return c.arrive(r, in)
	case open:
		return c.openInbound(r)
	case window, credit:
		return c.granted(r)
	case shut:
		if _, ok := c.inbounds[r.channel]; !ok {
			return fmt.Errorf("channel %d is shut, which is not open", r.channel)
		}
		delete(c.inbounds, r.channel)
	case pulse: // it has come, which is all it says
	case bye:
		reason := make([]byte, r.a)
		if _, err := io.ReadFull(in, reason); err != nil {
			return err
		}
		return fmt.Errorf("%w: %q", errBye, reason)
	}
	return nil
}

// arrive takes a piece of a frame.
func (c *conn) arrive(r record, in *bufio.Reader) error {
	ch, ok := c.inbounds[r.channel]
	if !ok {
		return fmt.Errorf("a frame on channel %d, which is not open", r.channel)
	}
	if ch == nil || ch.closed.Load() {
		c.node.stats.stale.Add(1)
		_, err := in.Discard(int(r.a))
		return err
	}
	room, err := ch.room(r)
	if err == nil {
		_, err = io.ReadFull(in, room)
	}
	if err == nil {
		err = ch.arrived()
	}
	if err != nil {
		return fmt.Errorf("channel from task %d to task %d: %w", ch.ch.Source(), ch.to, err)
	}
	return nil
}

// openInbound lets a number stand for a channel and tells its sender the window.
func (c *conn) openInbound(r record) error {
	if r.channel != c.opened+1 || len(c.inbounds) >= channelsMax {
		return fmt.Errorf("channel %d is opened after %d, with %d open", r.channel, c.opened, len(c.inbounds))
	}
	c.opened++
	in, err := c.node.inbound(c, r)
	if err != nil {
		return fmt.Errorf("channel from task %d to task %d of generation %d: %w", r.a, r.b, r.generation, err)
	}
	c.inbounds[r.channel] = in
	if in == nil {
		return nil
	}
	c.control(record{
		kind: window, limit: tuples(in.ch.FrameLimit()), channel: r.channel, a: uint32(in.window), b: uint32(in.ch.Cap()),
	})
	return nil
}
