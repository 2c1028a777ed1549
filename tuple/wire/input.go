package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/isobar-io/isobar/tuple"
)

// input is what is left to read of a frame, and the first thing that was wrong with
// it; from then on there is nothing left.
type input struct {
	rest []byte
	err  error
}

func damaged(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }

func (in *input) fail(what string) {
	if in.err == nil {
		in.err = damaged(what)
	}
	in.rest = nil
}

// close returns what was wrong; anything left is wrong too.
func (in *input) close() error {
	if in.err == nil && len(in.rest) > 0 {
		in.fail("there is something behind its tuples")
	}
	return in.err
}

func (in *input) uvarint() uint64 {
	if len(in.rest) > 0 && in.rest[0] < 0x80 {
		v := in.rest[0]
		in.rest = in.rest[1:]
		return uint64(v)
	}
	return in.longUvarint()
}

func (in *input) longUvarint() uint64 {
	v, n := binary.Uvarint(in.rest)
	if n <= 0 || n > 1 && in.rest[n-1] == 0 { // no number, or one written too long
		in.fail("it has a wrong number")
		return 0
	}
	in.rest = in.rest[n:]
	return v
}

func (in *input) varint() int64 {
	v := in.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (in *input) atMost(most uint64) uint64 {
	v := in.uvarint()
	if v > most {
		in.fail("it has a wrong number")
		return 0
	}
	return v
}

func (in *input) byte() byte {
	b := in.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (in *input) bool() byte {
	b := in.byte()
	if b > 1 {
		in.fail("it has a bool that is neither")
		return 0
	}
	return b
}

// take returns the next n bytes, or nil if there are not as many.
func (in *input) take(n uint64) []byte {
	if n > uint64(len(in.rest)) {
		in.fail("it is too short")
		return nil
	}
	b := in.rest[:n]
	in.rest = in.rest[n:]
	return b
}

func (in *input) text() []byte { return in.take(in.uvarint()) }

// section is the text and the bytes of a frame: the values take their parts in turn.
type section struct {
	text string
	raw  []byte
}

func (s *section) take(kind tuple.Kind, n uint64) (tuple.Value, error) {
	if kind == tuple.KindString && n <= uint64(len(s.text)) {
		v := tuple.String(s.text[:n])
		s.text = s.text[n:]
		return v, nil
	}
	if kind == tuple.KindBytes && n <= uint64(len(s.raw)) {
		v := tuple.Bytes(s.raw[:n:n])
		s.raw = s.raw[n:]
		return v, nil
	}
	return tuple.Value{}, damaged("its text is too short")
}
