package checkpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC-32C (Castagnoli) of b: the checksum of everything a
// checkpoint consists of.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// CRCReader counts and checksums what is read through it.
type CRCReader struct {
	r    io.Reader
	sum  uint32
	size int64
}

// NewCRCReader returns a CRCReader that reads from r.
func NewCRCReader(r io.Reader) *CRCReader { return &CRCReader{r: r} }

// Read reads from the underlying reader.
func (c *CRCReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.sum = crc32.Update(c.sum, castagnoli, p[:n])
	c.size += int64(n)
	return n, err
}

// Sum returns the CRC-32C of the bytes read so far.
func (c *CRCReader) Sum() uint32 { return c.sum }

// Size returns how many bytes have been read so far.
func (c *CRCReader) Size() int64 { return c.size }

// CopyVerified copies size bytes with a CRC-32C of crc from r to w. r must end
// there. If it holds anything else the error wraps ErrDamaged and gives both
// numbers; w has then been written to all the same.
func CopyVerified(w io.Writer, r io.Reader, size int64, crc uint32) error {
	c := NewCRCReader(io.LimitReader(r, size+1))
	if _, err := io.Copy(w, c); err != nil {
		return err
	}
	switch {
	case c.size > size:
		return fmt.Errorf("%w: more than the recorded %d bytes", ErrDamaged, size)
	case c.size < size:
		return fmt.Errorf("%w: %d bytes, recorded are %d", ErrDamaged, c.size, size)
	case c.sum != crc:
		return fmt.Errorf("%w: crc32c is %08x, recorded is %08x", ErrDamaged, c.sum, crc)
	}
	return nil
}

// CopyObject copies an object to w while verifying its size and CRC-32C. The error
// names the object; it wraps ErrNotFound if there is none and ErrDamaged if it is
// not what was recorded. w has then been written to all the same.
func CopyObject(ctx context.Context, s Store, w io.Writer, name string, size int64, crc uint32) error {
	body, _, err := s.Open(ctx, name)
	if err != nil {
		return fmt.Errorf("open object %s: %w", name, err)
	}
	defer body.Close()
	if err := CopyVerified(w, body, size, crc); err != nil {
		return fmt.Errorf("read object %s: %w", name, err)
	}
	return nil
}

// ValidName reports, as an error, why name cannot name an object: names are
// slash-separated, relative, and made of letters, digits, '.', '-' and '_'.
func ValidName(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("object name %q has a part that is empty or made of dots", name)
		}
		for i := range len(part) {
			if c := part[i]; !isNameByte(c) {
				return fmt.Errorf("object name %q contains %q; letters, digits, '.', '-' and '_' are allowed", name, c)
			}
		}
	}
	return nil
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' || c == '-' || c == '_'
}

// PutStep returns the name under which the hooks of stores know the writing of an
// object: "sst.store" for those below data/, "manifest" for those below manifest/, and
// "object" for others.
func PutStep(name string) string {
	switch top, _, _ := strings.Cut(name, "/"); top {
	case "data":
		return "sst.store"
	case "manifest":
		return "manifest"
	}
	return "object"
}
