package peer

import (
	"crypto/tls"
	"net"
)

const (
	batchBytes = 256 << 10 // what one write takes at most, or little more
	// gatherBytes is the memory that heads and small frames are copied into.
	gatherBytes = 64 << 10
	// copyMax is how long a piece may be that is copied there; with TLS all are.
	copyMax = 2 << 10
)

// piece is what is written of a frame in one turn.
type piece struct {
	channel uint32
	chunk   []byte
	total   int
	done    []byte // the whole frame, if this was the rest of it
}

// writer is what the goroutine that writes works with.
type writer struct {
	*conn
	below   *batched // with TLS
	copyMax int
	pieces  []piece
	taken   []byte // records
	gather  []byte
	vec     [][]byte
	from    int // where in gather the next element of vec begins
}

// write is the goroutine that writes: records first, then frames, of each channel one
// piece in turn. What gathers while it writes goes with the next write.
func (c *conn) write() {
	defer c.raw.Close()
	w := &writer{conn: c, copyMax: copyMax, gather: make([]byte, 0, gatherBytes)}
	if secure, ok := c.sock.(*tls.Conn); ok {
		w.below, _ = secure.NetConn().(*batched)
		w.copyMax, w.gather = chunkMax, make([]byte, 0, gatherBytes+chunkMax)
	}
	for w.collect() {
		if err := w.flush(); err != nil {
			c.end(err, "")
			return
		}
	}
	if c.farewell != "" {
		text := c.farewell[:min(len(c.farewell), byeMax)]
		w.vec = append(w.vec[:0], append(record{kind: bye, a: uint32(len(text))}.append(nil), text...))
		w.gather, w.from = w.gather[:0], 0
		_ = w.send() // whether or not it arrives, the connection is closed
	}
}

// collect waits until there is something to write and takes it; it returns false when
// the connection has ended.
func (w *writer) collect() bool {
	for {
		w.mu.Lock()
		if w.err != nil {
			w.mu.Unlock()
			return false
		}
		w.records, w.taken = w.taken[:0], w.records
		for n := 0; n < batchBytes && len(w.pieces) < gatherBytes/64; {
			o := w.ready.pop()
			if o == nil {
				break
			}
			if len(o.queue) == 0 { // its generation is over
				continue
			}
			p := o.next()
			w.pieces = append(w.pieces, p)
			n += len(p.chunk)
			if len(o.queue) > 0 {
				w.ready.push(o)
			}
		}
		if len(w.taken)+len(w.pieces) > 0 {
			w.mu.Unlock()
			return true
		}
		w.idle = true
		w.mu.Unlock()
		select {
		case <-w.work:
		case <-w.broken:
			return false
		}
	}
}

// flush writes what was collected.
func (w *writer) flush() error {
	defer func() {
		for _, p := range w.pieces {
			release(p.done)
		}
		clear(w.pieces)
		w.pieces = w.pieces[:0]
	}()
	w.vec, w.gather, w.from = w.vec[:0], w.gather[:0], 0
	if len(w.taken) > 0 {
		w.vec = append(w.vec, w.taken)
	}
	for _, p := range w.pieces {
		if err := w.piece(p); err != nil {
			return err
		}
	}
	return w.send()
}

// piece adds a piece to what is to be written.
func (w *writer) piece(p piece) error {
	small := len(p.chunk) <= w.copyMax
	need := headBytes + checksumBytes
	if small {
		need += len(p.chunk)
	}
	if cap(w.gather)-len(w.gather) < need {
		if err := w.send(); err != nil {
			return err
		}
	}
	w.gather = record{kind: data, channel: p.channel, a: uint32(len(p.chunk)), b: uint32(p.total)}.append(w.gather)
	if small {
		w.gather = append(w.gather, p.chunk...)
		return nil
	}
	w.cut()
	w.vec = append(w.vec, p.chunk)
	return nil
}

// cut makes what was gathered since the last cut an element of what is to be written.
func (w *writer) cut() {
	if n := len(w.gather); n > w.from {
		w.vec = append(w.vec, w.gather[w.from:n:n])
		w.from = n
	}
}

// send writes what was added so far.
func (w *writer) send() error {
	w.cut()
	bufs := net.Buffers(w.vec)
	n, err := bufs.WriteTo(w.sock)
	if w.below != nil && err == nil {
		err = w.below.flush()
	}
	w.writes.Add(1)
	w.node.stats.sent.Add(uint64(n))
	clear(w.vec)
	w.vec, w.gather, w.from = w.vec[:0], w.gather[:0], 0
	return err
}
