package filesink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// appendField appends a value as it stands in a line of fields.
func appendField(dst []byte, v tuple.Value) []byte {
	switch v.Kind() {
	case tuple.KindString, tuple.KindBytes:
		return appendEscaped(dst, v.Bytes())
	case tuple.KindAny:
		return appendEscaped(dst, fmt.Append(nil, v.Any()))
	default:
		return appendPlain(dst, v)
	}
}

// appendPlain appends a value as people write it.
func appendPlain(dst []byte, v tuple.Value) []byte {
	switch v.Kind() {
	case tuple.KindNil:
		return dst
	case tuple.KindString, tuple.KindBytes:
		return append(dst, v.Bytes()...)
	case tuple.KindBool:
		return strconv.AppendBool(dst, v.Bool())
	case tuple.KindInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case tuple.KindUint64:
		return strconv.AppendUint(dst, v.Uint64(), 10)
	case tuple.KindFloat64:
		return strconv.AppendFloat(dst, v.Float64(), 'g', -1, 64)
	case tuple.KindTime:
		return v.Time().AppendFormat(dst, time.RFC3339Nano)
	case tuple.KindAny:
	}
	return fmt.Append(dst, v.Any())
}

// appendEscaped appends text without the bytes that end fields and lines.
func appendEscaped(dst, text []byte) []byte {
	for {
		i := bytes.IndexAny(text, "\t\n\r\\")
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(append(dst, text[:i]...), '\\')
		switch text[i] {
		case '\t':
			dst = append(dst, 't')
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		default:
			dst = append(dst, '\\')
		}
		text = text[i+1:]
	}
}

var errDiffers = errors.New("the content differs")

// comparer is a writer that compares what is written with what is in a file.
type comparer struct {
	f   *bufio.Reader
	buf []byte
}

func (c *comparer) Write(p []byte) (int, error) {
	c.buf = append(c.buf[:0], p...)
	switch _, err := io.ReadFull(c.f, c.buf); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, errDiffers
	case err != nil:
		return 0, err
	}
	if !bytes.Equal(c.buf, p) {
		return 0, errDiffers
	}
	return len(p), nil
}

func (c *comparer) atEnd() bool {
	_, err := c.f.ReadByte()
	return errors.Is(err, io.EOF)
}
