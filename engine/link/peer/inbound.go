package peer

import (
	"fmt"
	"sync/atomic"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
)

// eagerBytes is how much memory a frame gets before its bytes have come.
const eagerBytes = 1 << 20

// inbound is the receiving end of a channel: what the reader of the connection keeps of
// it, and what it has given back to the sender.
type inbound struct {
	generation *Generation
	peer       string
	to         int
	ch         *link.Channel
	feed       *link.Feed
	closed     atomic.Bool // its generation is

	// Set when the sender opens the channel; the task reads them once it has a frame.
	conn   *conn
	number uint32
	window int

	// The reader's.
	part     []byte // of a frame, as far as it has come
	total    int    // how long that will be
	received uint64 // bytes of frames

	returned atomic.Uint64 // bytes of frames
	// The task's: given back, and not told yet.
	freed, freedFrames int
}

func newInbound(g *Generation, peer string, to int, c link.Config, decode func([]byte, *tuple.Frame) error) *inbound {
	in := &inbound{generation: g, peer: peer, to: to}
	in.ch, in.feed = link.NewRemote(c, link.Remote{Decode: decode, Decoded: release, Returned: in.giveBack})
	return in
}

// giveBack is called by the task for each frame that it has done with. It tells the
// sender when that is a quarter of the window.
func (in *inbound) giveBack(n, limit int) {
	in.returned.Add(uint64(n))
	in.freed += n
	in.freedFrames++
	if in.freed*4 >= in.window || in.freedFrames*4 >= in.ch.Cap() {
		in.conn.control(record{kind: credit, limit: tuples(limit), channel: in.number, a: uint32(in.freed), b: uint32(in.freedFrames)})
		in.freed, in.freedFrames = 0, 0
	}
}

func tuples(limit int) uint16 { return uint16(min(max(limit, 1), tuplesMax)) }

// room gets ready for a piece of a frame and returns where to put it.
func (in *inbound) room(r record) ([]byte, error) {
	total, at := int(r.b), len(in.part)
	if at == 0 {
		if held := int(in.received - in.returned.Load()); held+total > in.window && held*4 >= in.window {
			return nil, fmt.Errorf("frame of %d bytes beyond the window of %d, of which %d are taken", total, in.window, held)
		}
		in.part, in.total = bufferFor(min(total, eagerBytes)), total
		in.received += uint64(total)
	}
	end := at + int(r.a)
	if total != in.total || end > total {
		return nil, fmt.Errorf("frame of %d bytes goes on to byte %d of %d", in.total, end, total)
	}
	for cap(in.part) < end {
		in.part = append(make([]byte, 0, min(2*cap(in.part), total)), in.part...)
	}
	in.part = in.part[:end]
	return in.part[at:], nil
}

// arrived hands a frame that is complete to the task.
func (in *inbound) arrived() error {
	if len(in.part) < in.total {
		return nil
	}
	frame := in.part
	in.part = nil
	if !in.feed.Push(frame) {
		return fmt.Errorf("more than %d frames are under way", in.ch.Cap())
	}
	return nil
}
