package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// bufferBytes is the size of the read buffer; it grows for longer lines.
const bufferBytes = 256 << 10

// lineReader reads the lines of one file after the other, through one buffer:
//
//	buf  ┌ counted ┬ emitted ┬ no line feed ┬ to be searched ┬ free ┐
//	     0     counted     start         scanned            end  len(buf)
type lineReader struct {
	f   *os.File
	in  *input
	buf []byte

	counted int // what lies before is part of in.pos
	start   int // of the next line
	scanned int
	end     int
	eof     bool
}

// open opens a file and goes to its position.
func (r *lineReader) open(in *input) error {
	f, err := os.Open(in.path())
	if err != nil {
		return fmt.Errorf("file %s: %w", in.path(), err)
	}
	info, err := f.Stat()
	if err == nil && in.seen != nil && !os.SameFile(in.seen, info) {
		err = errors.New("was replaced while it was to be read")
	}
	if err == nil {
		_, err = f.Seek(in.pos.offset, io.SeekStart)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("file %s, offset %d: %w", in.path(), in.pos.offset, err), f.Close())
	}
	in.pos.identify(info)
	if len(r.buf) == 0 || len(r.buf) > bufferBytes {
		r.buf = make([]byte, bufferBytes)
	}
	*r = lineReader{f: f, in: in, buf: r.buf}
	return nil
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
		if r.eof {
			line = r.buf[r.start:r.end]
			r.start = r.end
			r.count()
			// Together with the last line, so that no position between the two can be
			// taken for one behind a line feed.
			r.in.pos.complete = true
			return dropCR(line), len(line) > 0, nil
		}
		if err := r.fill(); err != nil {
			return nil, false, err
		}
	}
}

func dropCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// count adds the lines that were emitted to the position.
func (r *lineReader) count() {
	if r.f != nil {
		r.in.pos.count(r.buf[r.counted:r.start])
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
	n, err := r.f.Read(r.buf[r.end:])
	r.end += n
	at := r.in.pos.offset + int64(r.end)
	switch {
	case errors.Is(err, io.EOF):
		r.eof = true
	case err != nil:
		return fmt.Errorf("file %s, offset %d: %w", r.in.path(), at, err)
	default:
		return nil
	}
	info, err := r.f.Stat()
	if err != nil {
		return fmt.Errorf("file %s: %w", r.in.path(), err)
	}
	if info.Size() < at {
		return fmt.Errorf("file %s was cut to %d bytes after it had been read up to offset %d", r.in.path(), info.Size(), at)
	}
	return nil
}

// close closes the file, if one is open; what was emitted is counted.
func (r *lineReader) close() error {
	if r.f == nil {
		return nil
	}
	r.count()
	err := r.f.Close()
	r.f, r.in = nil, nil
	return err
}
