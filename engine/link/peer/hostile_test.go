package peer

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/tuple/wire"
)

// recording is a connection on which everything has come already.
type recording struct {
	net.Conn
	io.Reader
}

func (r recording) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// listening is a node with generation 5: it has a channel from task 1 to task 10 of the
// worker "a", and two to it, of which one has sent what is under way. Generation 3 is
// over. Nothing writes.
func listening(t testing.TB, said []byte) (*conn, *link.Channel) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	registry, err := wire.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		cfg:         Config{Worker: "b", Streams: []*tuple.Stream{words, pairs}, Registry: registry, Logger: slog.New(slog.DiscardHandler)},
		ctx:         context.Background(),
		changed:     make(chan struct{}),
		neighbours:  map[string]*neighbour{},
		generations: map[tuple.Generation]*Generation{},
	}
	g, err := n.Generation(5, map[string]Peer{"a": {"a", "a-1"}, "c": {"c", "c-1"}}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	in := g.Inbound("a", 10, link.Config{SourceTask: 1, Receiver: link.NewBell(), Frames: 4, Poison: true})
	g.Inbound("c", 10, link.Config{SourceTask: 2, Receiver: link.NewBell(), Frames: 4})
	out := g.Outbound("a", 1, link.Config{SourceTask: 10}, nil)
	c := newConn(n, "a", "a-1", 1, recording{here, bytes.NewReader(said)}, here)
	g.bind(c)
	f := out.NewFrame()
	one(f, tuple.String(strings.Repeat("x", 1000)))
	out.Send(f)
	return c, in
}

// encoded returns frame i of the channel from task 1 to task 10.
func encoded(i int, text string) []byte {
	registry, _ := wire.NewRegistry()
	f := &tuple.Frame{Generation: 5, SourceTask: 1, Seq: uint64(i)}
	one(f, tuple.String(text))
	b, err := wire.NewEncoder(registry, frameLimits()).Append(nil, f)
	if err != nil {
		panic(err)
	}
	return b
}

// pieces is a frame on channel 1, in pieces of at most so many bytes.
func pieces(frame []byte, most int) (all []byte) {
	for chunk := range slices.Chunk(frame, most) {
		all = append(record{kind: data, channel: 1, a: uint32(len(chunk)), b: uint32(len(frame))}.append(all), chunk...)
	}
	return all
}

var opening = record{kind: open, channel: 1, a: 1, b: 10, generation: 5}.append(nil)

func said(parts ...[]byte) []byte { return slices.Concat(parts...) }

func TestWhatNoSenderSaysEndsTheLink(t *testing.T) {
	frame := encoded(1, "hello")
	large := make([]byte, windowMax/2+1)
	for _, c := range []struct {
		name string
		said []byte
		want string
	}{
		{"unknown kind", []byte{99, 0, 0}, "unknown kind 99"},
		{"second byte", seal(append([]byte{byte(pulse), 1}, make([]byte, 14)...), 0), "second byte is 1"},
		{"checksum", append(record{kind: pulse}.append(nil)[:19], 0), "checksum"},
		{"empty piece", record{kind: data, channel: 1, b: 10}.append(opening), "damaged record"},
		{"large piece", record{kind: data, channel: 1, a: chunkMax + 1, b: 1 << 20}.append(opening), "damaged record"},
		{"piece beyond its frame", record{kind: data, channel: 1, a: 11, b: 10}.append(opening), "damaged record"},
		{"large frame", record{kind: data, channel: 1, a: 1, b: frameBytesMax + 1}.append(opening), "damaged record"},
		{"not open", pieces(frame, 1000), "which is not open"},
		{"shut, not open", record{kind: shut, channel: 1}.append(nil), "which is not open"},
		{"shut", said(opening, record{kind: shut, channel: 1}.append(nil), pieces(frame, 1000)), "which is not open"},
		{"number", record{kind: open, channel: 2, a: 1, b: 10, generation: 5}.append(nil), "opened after 0"},
		{"number again", said(opening, opening), "opened after 1"},
		{"opened twice", record{kind: open, channel: 2, a: 1, b: 10, generation: 5}.append(opening), "opened twice"},
		{"no such channel", record{kind: open, channel: 1, a: 1, b: 11, generation: 5}.append(nil), "no such channel"},
		{"channel of another worker", record{kind: open, channel: 1, a: 2, b: 10, generation: 5}.append(nil), "no such channel"},
		{"task beyond all", record{kind: open, channel: 1, a: math.MaxUint32, b: 10, generation: 5}.append(nil), "no such channel"},
		{"later generation", record{kind: open, channel: 1, a: 1, b: 10, generation: 6}.append(nil), "opened before it is known"},
		{"beyond the window", said(opening, pieces(large, 1000), pieces(large, 1000)), "beyond the window"},
		{"beyond the frames", said(opening, bytes.Repeat(pieces(frame, 1000), 5)), "more than 4 frames"},
		{"length changes", said(opening, pieces(frame, 10)[:30], record{kind: data, channel: 1, a: 5, b: 6}.append(nil), frame), "goes on to byte"},
		{"length grows", said(opening, pieces(frame, 10)[:30], record{kind: data, channel: 1, a: 5, b: 1000}.append(nil), frame), "goes on to byte"},
		{"longer than said", said(opening, pieces(frame, len(frame)-1)[:20+len(frame)-1],
			record{kind: data, channel: 1, a: 2, b: uint32(len(frame))}.append(nil), frame), "goes on to byte"},
		{"credit for nothing", record{kind: credit, channel: 1, a: 5000, b: 1, limit: 1}.append(nil), "are under way"},
		{"credit of frames", record{kind: credit, channel: 1, a: 5, b: 2, limit: 1}.append(nil), "are under way"},
		{"credit of none", record{kind: credit, channel: 1, a: 0, b: 1, limit: 1}.append(nil), "damaged record"},
		{"no limit", record{kind: credit, channel: 1, a: 1, b: 1}.append(nil), "damaged record"},
		{"credit of no channel", record{kind: credit, channel: 7, a: 5, b: 1, limit: 1}.append(nil), "of 1 that were opened"},
		{"window shrinks", said(record{kind: window, channel: 1, a: 20000, b: 4, limit: 1}.append(nil),
			record{kind: window, channel: 1, a: windowMin, b: 4, limit: 1}.append(nil)), "shrinks"},
		{"small window", record{kind: window, channel: 1, a: windowMin - 1, b: 4, limit: 1}.append(nil), "damaged record"},
		{"long farewell", record{kind: bye, a: byeMax + 1}.append(nil), "damaged record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, _ := listening(t, c.said)
			conn.read()
			if conn.err == nil || !strings.Contains(conn.err.Error(), c.want) || !strings.Contains(conn.farewell, c.want) {
				t.Errorf("the link ended with %v, and told %q", conn.err, conn.farewell)
			}
		})
	}
}

// These are no mistakes of the other end's, and it is not told anything.
func TestWhatASenderMaySay(t *testing.T) {
	first, second := encoded(1, strings.Repeat("a", 3000)), encoded(2, "b")
	rest := said(pieces(second, 7), record{kind: pulse}.append(nil),
		record{kind: open, channel: 2, a: 1, b: 10, generation: 3}.append(nil))
	conn, in := listening(t, said(opening, pieces(first, 1000), rest,
		record{kind: credit, channel: 1, a: 1000, b: 1, limit: 99}.append(nil),
		record{kind: bye, a: 4}.append(nil), []byte("ciao")))
	conn.read()
	if conn.err == nil || !strings.Contains(conn.err.Error(), `it has ended the link: "ciao"`) || conn.farewell != "" {
		t.Errorf("the link ended with %v, and told %q", conn.err, conn.farewell)
	}
	for _, want := range []string{strings.Repeat("a", 3000), "b"} {
		f := in.Receive()
		if f == nil || !in.InOrder(f) {
			t.Fatal(f, in.Err())
		}
		var v tuple.Tuple
		if v.At(f, 0); v.Str(0) != want {
			t.Errorf("%.20s has come", v.Str(0))
		}
		in.Return(f)
	}
	if n := conn.node.Stats().Stale; n != 1 {
		t.Errorf("%d stale", n)
	}
}

// A frame that says it is another one, or cannot be read, is an error of its channel.
func TestFrameThatDoesNotBelong(t *testing.T) {
	damaged := encoded(1, "hello")
	damaged[len(damaged)-6]++
	other := encoded(1, "hello")
	other[4], other = 2, other[:len(other)-checksumBytes] // its source
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{encoded(2, "x"), "it says that it is frame 2 of generation 5"},
		{damaged, "its checksum is wrong"},
		{seal(other, 0), "it comes from task 2"},
	} {
		conn, in := listening(t, said(opening, pieces(c.frame, 1000)))
		conn.read()
		f := in.Receive()
		if f == nil || in.InOrder(f) || f.Len() != 0 || in.Err() == nil || !strings.Contains(in.Err().Error(), c.want) ||
			!strings.Contains(in.Err().Error(), "frame 1 of generation 5 from task 1") {
			t.Errorf("want %s: %v", c.want, in.Err())
		}
	}
}

func FuzzReadLink(f *testing.F) {
	frame := encoded(1, "hello")
	f.Add(said(opening, pieces(frame, 1000), pieces(encoded(2, "x"), 9)))
	f.Add(said(opening, record{kind: credit, channel: 1, a: 1000, b: 1, limit: 99}.append(nil), record{kind: pulse}.append(nil)))
	f.Add(said(record{kind: open, channel: 1, a: 1, b: 10, generation: 3}.append(nil), pieces(frame, 1000), record{kind: shut, channel: 1}.append(nil)))
	f.Add(said(record{kind: window, channel: 1, a: 1 << 20, b: 100, limit: 1}.append(nil), record{kind: bye, a: 2}.append(nil), []byte("ok")))
	f.Fuzz(func(t *testing.T, said []byte) {
		// Checksums are made right, or nothing would come through.
		conn, in := listening(t, mend(said))
		conn.read()
		if conn.err == nil {
			t.Fatal("the link goes on after its end")
		}
		for n := 1; ; n++ {
			f := in.Receive()
			if f == nil {
				break
			}
			if !in.InOrder(f) && in.Err() == nil || in.InOrder(f) && (f.Seq != uint64(n) || f.SourceTask != 1) {
				t.Errorf("frame %d: %+v, %v", n, f, in.Err())
			}
			in.Return(f)
		}
		for _, o := range conn.lanes {
			if o.bytes < 0 || o.count < 0 || o.window < windowMin {
				t.Errorf("%d bytes and %d frames are under way", o.bytes, o.count)
			}
		}
	})
}

// mend gives all records in b their checksums, as far as there are records.
func mend(b []byte) []byte {
	b = slices.Clone(b)
	for at := 0; at < len(b); {
		k := kind(b[at])
		if k < data || k > bye || len(b)-at < k.size() {
			break
		}
		end := at + k.size() - checksumBytes
		copy(b[end:], seal(slices.Clone(b[at:end]), 0)[end-at:])
		r, err := readRecord(bufio.NewReader(bytes.NewReader(b[at:])))
		if err != nil {
			break
		}
		at = end + checksumBytes
		if k == data || k == bye {
			at += int(r.a)
		}
	}
	return b
}

func FuzzReadHello(f *testing.F) {
	f.Add(hello{topology: "run-1", worker: "a", from: hold{"a-1", 1}, to: "b", toLife: "b-1"}.append(nil))
	f.Add(answer{welcome, nil}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := readHello(bytes.NewReader(h.append(nil)))
		if err != nil || again != h {
			t.Errorf("%+v is read as %+v, %v", h, again, err)
		}
	})
}
