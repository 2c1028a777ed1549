// Package wire encodes frames for the links between processes, as
// docs/format/frame.md describes byte by byte. Each frame can be read by itself, so
// that a link starts with its first frame, and each has exactly one encoding.
//
// It starts no goroutine and keeps nothing between frames but memory.
package wire

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/isobar-io/isobar/tuple"
)

const version = 1

// The flags of a frame.
const (
	flagKeyed  = 1 << 0
	flagStream = 1 << 1
	flagMark   = 1 << 2
	flagsKnown = flagKeyed | flagStream | flagMark
)

// mixed stands in the place of the kind of a column whose values are not all of one.
const mixed = 0xff

const checksumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is wrapped by the error for bytes that are not a frame as it was sent.
var ErrDamaged = errors.New("damaged")

// Limits bound what one frame may hold. Both ends of a link need the same ones. A
// limit of 0 stands for that of [DefaultLimits].
type Limits struct {
	FrameBytes int // encoded
	Values     int // tuples times fields, and tuples
	ValueBytes int // of one string, bytes or encoded object
}

// DefaultLimits returns the limits that are meant for every link: a frame of the
// most tuples, 1024, may have 1024 fields, and any value that belongs in a tuple.
func DefaultLimits() Limits {
	return Limits{FrameBytes: 64 << 20, Values: 1 << 20, ValueBytes: 16 << 20}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	if l.FrameBytes > 0 {
		d.FrameBytes = l.FrameBytes
	}
	if l.Values > 0 {
		d.Values = l.Values
	}
	if l.ValueBytes > 0 {
		d.ValueBytes = l.ValueBytes
	}
	return d
}

// values checks the size of a frame of n tuples.
func (l Limits) values(n, width uint64) error {
	if most := uint64(l.Values); n > most || n*max(width, 1) > most {
		return fmt.Errorf("%d tuples of %d fields: a frame holds at most %d values", n, width, l.Values)
	}
	return nil
}

func (l Limits) value(n uint64) error {
	if n > uint64(l.ValueBytes) {
		return fmt.Errorf("a value of %d bytes: at most %d are allowed", n, l.ValueBytes)
	}
	return nil
}

func (l Limits) frame(n int) error {
	if n > l.FrameBytes {
		return fmt.Errorf("a frame of %d bytes: at most %d are allowed", n, l.FrameBytes)
	}
	return nil
}

func streamName(s *tuple.Stream) string {
	if s == nil {
		return "no stream"
	}
	return s.Component + "/" + s.ID
}
