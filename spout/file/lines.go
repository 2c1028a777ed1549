package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// bufferBytes is the size of the read buffer; it grows for longer lines.
const bufferBytes = 256 << 10

// lineReader reads the lines of one file after the other, through one buffer:
//
//	buf  ┌ counted ┬ emitted ┬ no line feed ┬ to be searched ┬ free ┐
//	     0     counted     start         scanned            end  len(buf)
type lineReader struct {
	r   io.ReadCloser // nil: no file is open
	pos *position
	// check is called behind every read, with the offset behind what was read and
	// whether that was the end of the file.
	check func(at int64, eof bool) error
	// open ended: what follows the last line feed is not a line yet.
	openEnded bool
	buf       []byte

	counted int // what lies before is part of pos
	start   int // of the next line
	scanned int
	end     int
	eof     bool
}

// open begins to read r, which stands at pos; the lineReader closes it.
func (r *lineReader) open(src io.ReadCloser, pos *position, openEnded bool, check func(at int64, eof bool) error) {
	if len(r.buf) == 0 || len(r.buf) > bufferBytes {
		r.buf = make([]byte, bufferBytes)
	}
	*r = lineReader{r: src, pos: pos, check: check, openEnded: openEnded, buf: r.buf}
}

// next returns the next line, valid until the next call; false at the end of the
// file.
func (r *lineReader) next() (line []byte, ok bool, err error) {
	for {
		if i := bytes.IndexByte(r.buf[r.scanned:r.end], '\n'); i >= 0 {
			line = r.buf[r.start : r.scanned+i]
			r.start = r.scanned + i + 1
			r.scanned = r.start
			return dropCR(line), true, nil
		}
		r.scanned = r.end
		if r.eof && r.openEnded {
			return nil, false, nil
		}
		if r.eof {
			line = r.buf[r.start:r.end]
			r.start = r.end
			r.count()
			// Together with the last line, so that no position between the two can be
			// taken for one behind a line feed.
			r.pos.complete = true
			return dropCR(line), len(line) > 0, nil
		}
		if err := r.fill(); err != nil {
			return nil, false, err
		}
	}
}

// buffered reports whether a whole line is in the buffer.
func (r *lineReader) buffered() bool { return bytes.IndexByte(r.buf[r.scanned:r.end], '\n') >= 0 }

// offset returns the offset up to which the file was read.
func (r *lineReader) offset() int64 { return r.pos.offset + int64(r.end-r.counted) }

func dropCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// count adds the lines that were emitted to the position.
func (r *lineReader) count() {
	if r.r != nil {
		r.pos.count(r.buf[r.counted:r.start])
		r.counted = r.start
	}
}

// fill reads more of the file.
func (r *lineReader) fill() error {
	r.count()
	if r.start > 0 {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.scanned -= r.start
		r.counted, r.start = 0, 0
	}
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.end += n
	at := r.pos.offset + int64(r.end)
	r.eof = errors.Is(err, io.EOF)
	if err != nil && !r.eof {
		return fmt.Errorf("offset %d: %w", at, err)
	}
	return r.check(at, r.eof)
}

// close closes the file, if one is open; what was emitted is counted.
func (r *lineReader) close() error {
	if r.r == nil {
		return nil
	}
	r.count()
	err := r.r.Close()
	r.r, r.pos = nil, nil
	return err
}
