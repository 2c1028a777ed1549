package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
)

var (
	words = &tuple.Stream{Component: "split", ID: tuple.DefaultStream, Fields: tuple.Fields{"word"}}
	pairs = &tuple.Stream{Component: "pair", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "count"}}
)

// ends are two nodes, of which a dials, with a generation in each.
type ends struct {
	a, b   *Node
	ga, gb *Generation
	done   chan struct{}
	failed chan error // of either generation
}

// config returns the Config of a worker; change may be nil.
func config(t testing.TB, worker string, change func(*Config)) Config {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Topology:    "run-1",
		Worker:      worker,
		Incarnation: worker + "-1",
		Listener:    l,
		Streams:     []*tuple.Stream{words, pairs},
		Logger:      slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	return c
}

func node(t testing.TB, c Config) *Node {
	t.Helper()
	n, err := NewNode(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// as is the Peer that others know a node by.
func as(n *Node) Peer { return Peer{n.cfg.Listener.Addr().String(), n.cfg.Incarnation} }

// newEnds makes two nodes with a generation, which is not yet connected.
func newEnds(t testing.TB, number tuple.Generation, change func(*Config)) *ends {
	t.Helper()
	e := &ends{a: node(t, config(t, "a", change)), b: node(t, config(t, "b", change)), failed: make(chan error, 16)}
	e.generation(t, number)
	return e
}

// generation begins a generation in both.
func (e *ends) generation(t testing.TB, number tuple.Generation) {
	t.Helper()
	e.done = make(chan struct{})
	failed := func(err error) { e.failed <- err }
	var err error
	if e.ga, err = e.a.Generation(number, map[string]Peer{"b": as(e.b)}, failed); err != nil {
		t.Fatal(err)
	}
	if e.gb, err = e.b.Generation(number, map[string]Peer{"a": as(e.a)}, failed); err != nil {
		t.Fatal(err)
	}
}

// connect connects the generation in both.
func (e *ends) connect(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	connected := make(chan error)
	go func() { connected <- e.gb.Connect(ctx) }()
	err := e.ga.Connect(ctx)
	if other := <-connected; err != nil || other != nil {
		t.Fatal(err, other)
	}
}

// channel is both ends of one channel from a to b.
type channel struct {
	out  *Outbound
	in   *link.Channel
	bell *link.Bell
	done chan struct{}
}

func (e *ends) channel(from, to, frames int) *channel {
	c := &channel{bell: link.NewBell(), done: e.done}
	c.in = e.gb.Inbound("a", to, link.Config{SourceTask: from, Receiver: c.bell, Frames: frames, Poison: true})
	c.out = e.ga.Outbound("b", to, link.Config{SourceTask: from, Done: e.done}, func(err error) { e.failed <- err })
	return c
}

// next receives the next frame, sleeping on the bell as tasks do; nil when done.
func (c *channel) next() *tuple.Frame {
	for {
		if f := c.in.Receive(); f != nil {
			return f
		}
		c.bell.Arm()
		if !c.in.Ready() {
			select {
			case <-c.bell.C():
			case <-c.done:
				return nil
			}
		}
		c.bell.Disarm()
	}
}

// fill puts tuples of the numbers from begin on into a frame.
func fill(f *tuple.Frame, begin, n int) {
	f.Begin(pairs, true)
	for i := range n {
		if f.Full() {
			f.Grow(n)
		}
		f.Append2(tuple.String(fmt.Sprint("word", begin+i)), tuple.Int64(int64(begin+i)), uint64(begin+i))
	}
}

func TestFramesArriveInOrder(t *testing.T) {
	e := newEnds(t, 7, nil)
	c := e.channel(3, 9, 16)
	e.connect(t)
	const frames, n = 10_000, 50
	go func() {
		f := c.out.NewFrame()
		for i := range frames {
			fill(f, i*n, n)
			f.Mark.Count, f.Mark.Kind = uint64(i), tuple.MarkBarrier
			f, _ = c.out.Send(f)
		}
	}()
	for i := range frames {
		f := c.next()
		if !c.in.InOrder(f) || c.in.Err() != nil || f.Mark.Count != uint64(i) || f.SourceTask != 3 || f.Len() != n {
			t.Fatalf("frame %d: %+v, %v", i, f, c.in.Err())
		}
		var v tuple.Tuple
		for r := range n {
			v.At(f, r)
			if v.Str(0) != fmt.Sprint("word", i*n+r) || v.Int64(1) != int64(i*n+r) || f.Hashes()[r] != uint64(i*n+r) {
				t.Fatalf("frame %d: tuple %s", i, &v)
			}
		}
		c.in.Return(f)
	}
}
