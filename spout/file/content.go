package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// format is how the content of a file is packed.
type format struct {
	name   string
	suffix string
	magic  string
	open   func(r io.Reader) (io.ReadCloser, error)
}

var formats = []format{
	{"gzip", ".gz", "\x1f\x8b", func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{"zstd", ".zst", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.ReadCloser, error) {
		// One at a time: no goroutine that would outlive a failed task.
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}},
}

// formatOf returns how a file is packed, by its name, or else by its first bytes;
// nil if it is not.
func formatOf(name string, head []byte) *format {
	for i, f := range formats {
		if strings.HasSuffix(name, f.suffix) {
			return &formats[i]
		}
	}
	for i, f := range formats {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return &formats[i]
		}
	}
	return nil
}

// content reads the content of a file from its beginning, unpacked.
type content struct {
	f        *os.File
	packed   bool
	unpacker io.ReadCloser
}

func openContent(path string) (*content, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	c := &content{f: f}
	if format := formatOf(path, head[:n]); format != nil {
		c.packed = true
		if c.unpacker, err = format.open(f); err != nil {
			return nil, errors.Join(fmt.Errorf("unpacking %s: %w", format.name, err), f.Close())
		}
	}
	return c, nil
}

// Read reads unpacked bytes. Its error is io.EOF only at the end of the content: a
// file that ends within packed data is damaged.
func (c *content) Read(b []byte) (int, error) {
	if !c.packed {
		return c.f.Read(b)
	}
	n, err := c.unpacker.Read(b)
	if err != nil && err != io.EOF {
		err = &unpackError{err}
	}
	return n, err
}

// unpackError is an error of the packed data. It hides io.ErrUnexpectedEOF, which
// would read as an end of the content.
type unpackError struct{ err error }

func (e *unpackError) Error() string { return "unpacking: " + e.err.Error() }

// skip goes to an offset of the content from its beginning.
func (c *content) skip(offset int64) error {
	if !c.packed {
		_, err := c.f.Seek(offset, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, c, offset)
	return err
}

func (c *content) Close() error {
	var err error
	if c.packed {
		err = c.unpacker.Close()
	}
	return errors.Join(err, c.f.Close())
}
