package peer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
)

// gated lets nothing be written while its gate is closed.
type gated struct {
	net.Conn
	gate *sync.RWMutex
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Conn.Write(b)
}

// A small frame that is sent behind a very large one of another channel comes long
// before that one is complete.
func TestLargeFramesLetOthersGoBetween(t *testing.T) {
	var gate sync.RWMutex
	e := newEnds(t, 1, func(c *Config) {
		c.Dial = newGatedDial(&gate)
	})
	large, small := e.channel(1, 10, 16), e.channel(2, 11, 16)
	e.connect(t)
	gate.Lock()
	f := large.out.NewFrame()
	one(f, tuple.String(strings.Repeat("x", 32<<20)))
	large.out.Send(f)
	f = small.out.NewFrame()
	one(f, tuple.String("small"))
	small.out.Send(f)
	c := large.in
	gate.Unlock()
	small.next()
	if c.Ready() || e.b.Stats().ReceivedBytes > 16<<20 {
		t.Errorf("the small frame came after %d bytes", e.b.Stats().ReceivedBytes)
	}
	if f := large.next(); !c.InOrder(f) {
		t.Error(c.Err())
	}
}

// written lets the writer of c write once, and returns the kinds and channels of what it
// wrote.
func written(t *testing.T, c *conn) (all []record) {
	t.Helper()
	var out bytes.Buffer
	c.sock = recordingWriter{c.raw, &out}
	w := &writer{conn: c, copyMax: copyMax, gather: make([]byte, 0, gatherBytes)}
	if !w.collect() {
		t.Fatal(c.err)
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewReader(&out); ; {
		r, err := readRecord(in)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err == nil && r.kind == data {
			_, err = in.Discard(int(r.a))
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

type recordingWriter struct {
	net.Conn
	io.Writer
}

func (r recordingWriter) Write(b []byte) (int, error) { return r.Writer.Write(b) }

func TestCreditGoesBeforeFrames(t *testing.T) {
	c, _ := listening(t, nil)
	c.control(record{kind: credit, channel: 3, a: 1, b: 1, limit: 1})
	got := written(t, c)
	if len(got) != 3 || got[0].kind != open || got[1].kind != credit || got[2].kind != data {
		t.Errorf("written: %+v", got)
	}
}

// What waits of a generation that is closed is not written; the other end is told.
func TestClosedGenerationIsNotWritten(t *testing.T) {
	c, _ := listening(t, nil)
	c.node.generations[5].Close()
	got := written(t, c)
	if len(got) != 2 || got[0].kind != open || got[1].kind != shut {
		t.Errorf("written: %+v", got)
	}
	if len(c.generations) != 0 || c.node.neighbour("a").inbounds != 0 {
		t.Error("something is left of it")
	}
}

func TestWindowsShareTheirMemory(t *testing.T) {
	for _, x := range []struct{ channels, want int }{
		{1, windowMax}, {windowsBytes / windowMax, windowMax}, {1000, windowsBytes / 1000}, {5000, windowMin},
	} {
		c, _ := listening(t, nil)
		g := c.node.generations[5]
		for i := 1; i < x.channels; i++ {
			g.Inbound("a", 10, link.Config{SourceTask: 10 + i, Receiver: link.NewBell(), Frames: 2})
		}
		in, err := c.node.inbound(c, record{kind: open, channel: 1, a: 1, b: 10, generation: 5})
		if err != nil || in.window != x.want {
			t.Errorf("%d channels: %v, window %d", x.channels, err, in.window)
		}
	}
}

// Memory is not taken because somebody says that much will come.
func TestMemoryIsTakenAsBytesCome(t *testing.T) {
	c, _ := listening(t, said(opening, record{kind: data, channel: 1, a: 5, b: frameBytesMax}.append(nil), []byte("hello")))
	c.read()
	if n := cap(c.inbounds[1].part); n < 5 || n > eagerBytes {
		t.Errorf("%d bytes are taken", n)
	}
}

func TestLittleIsAllocatedForAFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocations of the whole process")
	}
	e := newEnds(t, 1, nil)
	c := e.channel(1, 10, 16)
	e.connect(t)
	f := c.out.NewFrame()
	text := tuple.String(strings.Repeat("x", 100))
	frame := func() {
		f.Begin(words, true)
		for range 64 {
			if f.Full() {
				f.Grow(64)
			}
			f.Append1(text, 0)
		}
		f, _ = c.out.Send(f)
		got := c.next()
		if !c.in.InOrder(got) {
			t.Fatal(c.in.Err())
		}
		c.in.Return(got)
	}
	for range 100 {
		frame()
	}
	if n := testing.AllocsPerRun(500, frame); n > 6 {
		t.Errorf("%v allocations for a frame", n)
	}
}
