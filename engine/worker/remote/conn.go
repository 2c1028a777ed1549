package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/engine/link"
)

// conn is one end of a connection between a topology master and a worker. Messages
// leave in the order of send, on a goroutine of its own, so that send never waits.
type conn struct {
	net   net.Conn
	in    *bufio.Reader
	lease time.Duration
	limit int // bytes of a message
	out   *link.Mailbox[message]

	once sync.Once
	done chan struct{} // closed when the connection is over
	err  error         // why; set before done is closed
	quit atomic.Bool   // the other end was told that the run is over
	sent sync.WaitGroup
}

func newConn(c net.Conn, lease time.Duration) *conn {
	return &conn{net: c, in: bufio.NewReaderSize(c, 64<<10), lease: lease, limit: maxMessage, out: link.NewMailbox[message](), done: make(chan struct{})}
}

// open lets messages flow, after the handshake.
func (c *conn) open() { c.sent.Go(c.write) }

// send has a message written; after the end of the connection it is dropped.
func (c *conn) send(m message) { c.out.Put(m) }

// end ends the connection. The first reason counts.
func (c *conn) end(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
		_ = c.net.Close() // why it ends is known
	})
}

// wait waits until nothing is being written any more.
func (c *conn) wait() { c.sent.Wait() }

// write writes what is sent, and a ping if nothing was for a third of the lease.
func (c *conn) write() {
	w := bufio.NewWriterSize(&steadily{c}, pieceBytes)
	ping := time.NewTimer(c.lease / 3)
	defer ping.Stop()
	for {
		var batch []message
		select {
		case <-c.out.Signal():
			batch = c.out.Take()
		case <-ping.C:
			batch = []message{{Kind: kindPing}}
		case <-c.done:
			return
		}
		if err := c.writeAll(w, batch); err != nil {
			c.end(fmt.Errorf("write: %w", err))
			return
		}
		ping.Reset(c.lease / 3)
	}
}

func (c *conn) writeAll(w *bufio.Writer, batch []message) error {
	for _, m := range batch {
		err := write(w, m, c.limit)
		if errors.Is(err, errTooLarge) && m.Event != nil {
			err = write(w, m.failed(err), c.limit) // the others on this worker go on
		}
		if err != nil {
			return err
		}
		if m.Kind == kindQuit {
			c.quit.Store(true) // before it is: the other end may go at once
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.quit.Load() {
		return errQuit
	}
	return nil
}

// errQuit is why a connection ends when the run is over, or the master is.
var errQuit = errors.New("the topology master has ended")

// read returns the next message that is no ping. That nothing has come for the lease is
// an error.
func (c *conn) read(limit int) (message, error) {
	for {
		if err := c.net.SetReadDeadline(time.Now().Add(c.lease)); err != nil {
			return message{}, err
		}
		m, err := read(&slowly{c}, limit)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return message{}, fmt.Errorf("nothing has come for %s", c.lease)
		case errors.Is(err, io.EOF):
			return message{}, errors.New("the other end has closed the connection")
		case err != nil:
			return message{}, err
		case m.Kind != kindPing:
			return m, nil
		}
	}
}

// slowly extends the lease with everything that comes: a large message takes a while.
type slowly struct{ c *conn }

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.c.in.Read(p)
	if n > 0 {
		if e := s.c.net.SetReadDeadline(time.Now().Add(s.c.lease)); err == nil {
			err = e
		}
	}
	return n, err
}

// pieceBytes is how much is written at a time.
const pieceBytes = 64 << 10

// steadily gives the other end the whole lease to take each piece: a large message takes a
// while.
type steadily struct{ c *conn }

func (s *steadily) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if err = s.c.net.SetWriteDeadline(time.Now().Add(s.c.lease)); err != nil {
			break
		}
		var wrote int
		wrote, err = s.c.net.Write(p[:min(len(p), pieceBytes)])
		n, p = n+wrote, p[wrote:]
	}
	return n, err
}

// reason returns why the connection is over.
func (c *conn) reason() error {
	select {
	case <-c.done:
		return c.err
	default:
		return errors.New("its connection is over")
	}
}
