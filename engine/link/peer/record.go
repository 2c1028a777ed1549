package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/isobar-io/isobar/tuple"
)

// What travels on a connection once both ends have said who they are: records, as
// docs/format/link.md describes them byte by byte.
type kind byte

const (
	data   kind = 1 // a piece of a frame follows
	open   kind = 2 // from now on this number stands for this channel
	window kind = 3 // how much may be under way on a channel
	credit kind = 4 // so much of it has been given back
	shut   kind = 5 // nothing more comes on the channel
	pulse  kind = 6 // this end is alive
	bye    kind = 7 // this end is about to close the connection; its reason follows
)

const (
	headBytes     = 16
	checksumBytes = 4
	openBytes     = 8 // more than the others

	// chunkMax is how much of one frame goes before another channel has its turn.
	chunkMax = 64 << 10
	byeMax   = 1 << 10
	// channelsMax bounds the channels that one end may have open at a time.
	channelsMax = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is everything of a record but the bytes that follow it.
type record struct {
	kind    kind
	limit   uint16 // window, credit: how many tuples the receiver wants in a frame
	channel uint32 // number of the channel, from 1
	// data: bytes that follow, and bytes of the whole frame; open: the sending and the
	// receiving task; window, credit: bytes and frames; bye: bytes that follow, and 0.
	a, b       uint32
	generation tuple.Generation // open
}

func (k kind) size() int {
	if k == open {
		return headBytes + openBytes + checksumBytes
	}
	return headBytes + checksumBytes
}

// append appends the encoding of r to dst.
func (r record) append(dst []byte) []byte {
	begin := len(dst)
	dst = append(dst, byte(r.kind), 0)
	dst = binary.LittleEndian.AppendUint16(dst, r.limit)
	dst = binary.LittleEndian.AppendUint32(dst, r.channel)
	dst = binary.LittleEndian.AppendUint32(dst, r.a)
	dst = binary.LittleEndian.AppendUint32(dst, r.b)
	if r.kind == open {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.generation))
	}
	return seal(dst, begin)
}

// seal appends the checksum of all from begin on.
func seal(b []byte, begin int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
}

// errRecord is wrapped by errors for bytes that are no record.
var errRecord = errors.New("damaged record")

// readRecord reads the next record, without what follows it. io.EOF means that the
// connection ended before its first byte.
func readRecord(in *bufio.Reader) (record, error) {
	first, err := in.Peek(1)
	if err != nil {
		return record{}, err
	}
	k := kind(first[0])
	if k < data || k > bye {
		return record{}, fmt.Errorf("%w: it is of the unknown kind %d", errRecord, k)
	}
	b, err := in.Peek(k.size())
	if err != nil {
		return record{}, fmt.Errorf("in the middle of a record: %w", err)
	}
	end := len(b) - checksumBytes
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return record{}, fmt.Errorf("%w: its checksum is wrong", errRecord)
	}
	r := record{
		kind:    k,
		limit:   binary.LittleEndian.Uint16(b[2:]),
		channel: binary.LittleEndian.Uint32(b[4:]),
		a:       binary.LittleEndian.Uint32(b[8:]),
		b:       binary.LittleEndian.Uint32(b[12:]),
	}
	if k == open {
		r.generation = tuple.Generation(binary.LittleEndian.Uint64(b[headBytes:]))
	}
	if b[1] != 0 {
		return record{}, fmt.Errorf("%w: its second byte is %d, not 0", errRecord, b[1])
	}
	if _, err := in.Discard(k.size()); err != nil {
		return record{}, err
	}
	return r, r.check()
}

// check reports what no sender would write, whatever it has in mind.
func (r record) check() error {
	wrong := false
	switch r.kind {
	case data:
		wrong = r.a == 0 || r.a > chunkMax || r.a > r.b || r.b > frameBytesMax
	case window:
		wrong = r.a < windowMin || r.b < framesMin || r.limit == 0
	case credit:
		wrong = r.a == 0 || r.b == 0 || r.limit == 0
	case bye:
		wrong = r.a > byeMax
	case open, shut, pulse: // no bounds are set here
	}
	if wrong {
		return fmt.Errorf("%w: kind %d says %d and %d", errRecord, r.kind, r.a, r.b)
	}
	return nil
}
