package file

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// position is where a file was read up to, and what was counted of it: the bytes
// before offset. It always lies behind a line feed, or at the end of the file. For a
// compressed file all of it is about the decompressed bytes. Its encoding, all numbers
// big endian:
//
//	1 byte   version, 1
//	1 byte   flags: 1 the file ended at offset, 2 device and inode are known
//	8 bytes  offset
//	8 bytes  device, 0 if not known
//	8 bytes  inode, 0 if not known
//	8 bytes  fingerprint: tuple.HashBytes of the first 1024 counted bytes, seed 0
//	4 bytes  for each block of 1 MiB that begins before offset: CRC-32C of its
//	         counted bytes
//
// Device, inode and fingerprint say which file it was, wherever it has moved; the
// checksums say what it held.
type position struct {
	offset   int64
	complete bool
	id       identity
	head     []byte // the first counted bytes, at most headBytes; nil if only decoded
	headHash uint64 // fingerprint of head, as decoded
	blocks   []uint32
	tail     []byte // the last counted bytes, as far as counted here; at most tailBytes
}

// identity names a file on this machine as long as it exists.
type identity struct {
	known         bool
	device, inode uint64
}

const (
	positionVersion = 1
	flagComplete    = 1
	flagIdentity    = 2
	positionHeader  = 1 + 1 + 8 + 8 + 8 + 8

	headBytes  = 1024
	tailBytes  = 64
	blockBytes = 1 << 20
)

// cure is what helps when the input is not what was counted.
const cure = "put it back as it was, or begin anew (--from empty)"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// count moves the position behind b.
func (p *position) count(b []byte) {
	p.head = append(p.head, b[:min(len(b), headBytes-len(p.head))]...)
	p.tail = append(p.tail, b[max(0, len(b)-tailBytes):]...)
	p.tail = append(p.tail[:0], p.tail[max(0, len(p.tail)-tailBytes):]...)
	for len(b) > 0 {
		in := int(p.offset % blockBytes)
		if in == 0 {
			p.blocks = append(p.blocks, 0)
		}
		n := min(len(b), blockBytes-in)
		last := &p.blocks[len(p.blocks)-1]
		*last = crc32.Update(*last, castagnoli, b[:n])
		p.offset += int64(n)
		b = b[n:]
	}
}

func (p *position) identify(info os.FileInfo) { p.id = identityOf(info) }

func (p *position) encode() []byte {
	flags := byte(0)
	if p.complete {
		flags |= flagComplete
	}
	if p.id.known {
		flags |= flagIdentity
	}
	b := make([]byte, 0, positionHeader+4*len(p.blocks))
	b = append(b, positionVersion, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(p.offset))
	b = binary.BigEndian.AppendUint64(b, p.id.device)
	b = binary.BigEndian.AppendUint64(b, p.id.inode)
	b = binary.BigEndian.AppendUint64(b, fingerprint(p.head))
	for _, c := range p.blocks {
		b = binary.BigEndian.AppendUint32(b, c)
	}
	return b
}

func fingerprint(head []byte) uint64 { return tuple.HashBytes(string(head), 0) }

func decodePosition(b []byte) (position, error) {
	if len(b) > 0 && b[0] == familyVersion {
		return position{}, errors.New("is of files that were followed: go on following them, or begin anew (--from empty)")
	}
	if len(b) > 0 && b[0] > positionVersion {
		return position{}, fmt.Errorf("is of version %d, this is a reader of version %d", b[0], positionVersion)
	}
	if len(b) < positionHeader || b[0] != positionVersion || b[1] > flagComplete|flagIdentity {
		return position{}, errors.New("is damaged")
	}
	word := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	p := position{
		offset:   int64(word(2)),
		complete: b[1]&flagComplete != 0,
		id:       identity{b[1]&flagIdentity != 0, word(10), word(18)},
		headHash: word(26),
	}
	rest := b[positionHeader:]
	blocks := p.offset / blockBytes
	if p.offset%blockBytes != 0 {
		blocks++
	}
	if p.offset < 0 || int64(len(rest)) != 4*blocks {
		return position{}, errors.New("is damaged")
	}
	for ; len(rest) > 0; rest = rest[4:] {
		p.blocks = append(p.blocks, binary.BigEndian.Uint32(rest))
	}
	return p, nil
}

// verify compares what was counted with the file, and finds out whether there is
// more to read. The error is fatal if they differ.
func (p *position) verify(ctx context.Context, c *content) (os.FileInfo, error) {
	info, err := c.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", c.f.Name(), err)
	}
	if !c.packed && info.Size() < p.offset {
		return nil, p.tooShort(c, info, info.Size())
	}
	last, err := p.compare(ctx, c)
	var d *difference
	switch {
	case errors.As(err, &d) && d.short:
		return nil, p.tooShort(c, info, d.to)
	case errors.As(err, &d):
		return nil, txn.Fatal(fmt.Errorf("file %s was %s: it differs from what was counted, first between offsets %d and %d; %s",
			c.f.Name(), p.change(info, "changed"), d.from, d.to, cure))
	case err != nil:
		return nil, fmt.Errorf("comparing file %s: %w", c.f.Name(), err)
	}
	if !p.complete {
		return info, nil
	}
	next := make([]byte, 2)
	switch n, err := io.ReadFull(c, next); {
	case n > 0:
		p.complete = false
		if p.offset > 0 && last != '\n' {
			return info, p.endLine(c.f.Name(), next[:n], last)
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("file %s, offset %d: %w", c.f.Name(), p.offset, err)
	}
	return info, nil
}

func (p *position) tooShort(c *content, info os.FileInfo, size int64) error {
	return txn.Fatal(fmt.Errorf("file %s has only %d bytes, but %d were counted: it was %s; %s",
		c.f.Name(), size, p.offset, p.change(info, "cut"), cure))
}

// difference is the error of content that is not what was counted.
type difference struct {
	from, to int64 // where the first difference lies
	short    bool  // the content ends at to
}

func (d *difference) Error() string {
	return fmt.Sprintf("it differs between offsets %d and %d", d.from, d.to)
}

// compare reads what was counted from the beginning of r and compares all of it. It
// returns the last counted byte, or a *difference.
func (p *position) compare(ctx context.Context, r io.Reader) (last byte, err error) {
	buf := make([]byte, min(p.offset, blockBytes))
	for i, want := range p.blocks {
		if ctx != nil && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		from := int64(i) * blockBytes
		to := min(from+blockBytes, p.offset)
		b := buf[:to-from]
		switch n, err := io.ReadFull(r, b); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return 0, &difference{from, from + int64(n), true}
		case err != nil:
			return 0, fmt.Errorf("offset %d: %w", from, err)
		}
		if i == 0 {
			head := b[:min(len(b), headBytes)]
			if p.head != nil && !bytes.Equal(head, p.head) || p.head == nil && fingerprint(head) != p.headHash {
				return 0, &difference{from, int64(len(head)), false}
			}
			p.head = append([]byte(nil), head...)
		}
		if crc32.Checksum(b, castagnoli) != want {
			return 0, &difference{from, to, false}
		}
		last = b[len(b)-1]
		p.tail = append(p.tail[:0], b[max(0, len(b)-tailBytes):]...)
	}
	return last, nil
}

// change says what has become of the file: replaced by another one, or else word.
func (p *position) change(info os.FileInfo, word string) string {
	if now := identityOf(info); p.id.known && now.known && now != p.id {
		return "replaced by another file"
	}
	return word
}

// endLine handles a file that was counted to an end without a line feed and has
// grown by next and perhaps more. If a line feed comes first, the line that was
// counted was all of it; else it was only half of one.
func (p *position) endLine(name string, next []byte, last byte) error {
	switch {
	case next[0] == '\n':
		p.count(next[:1])
	case string(next) == "\r\n" && last != '\r':
		p.count(next)
	default:
		return txn.Fatal(fmt.Errorf("file %s has grown within its last line, at offset %d: the line had no line feed and was counted as it was; %s",
			name, p.offset, cure))
	}
	return nil
}
