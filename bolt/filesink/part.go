package filesink

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const (
	// pending hides a part until it is published; its name begins with a dot, too.
	pending = ".pending"
	// bufferBytes is how much of a part is gathered before it is written.
	bufferBytes = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// partRef names a part and what it holds, in a handle.
type partRef struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	CRC32C uint32 `json:"crc32c"`
}

// openRef is a part that will grow.
type openRef struct {
	partRef
	Batches int   `json:"batches"` // that it holds something of, or could
	Since   int64 `json:"since"`   // when it was begun, Unix milliseconds
}

// copiedRef is a part that was open with a batch from which the task went on with a copy.
// It stays as long as anybody may go back to that batch.
type copiedRef struct {
	Name  string      `json:"name"`
	Batch txn.BatchID `json:"batch"`
}

// handle is what Commit returns: the parts that are complete with a batch, the one that
// is not, and those that only older checkpoints need. Its encoding is JSON.
type handle struct {
	Version int         `json:"v"`
	Publish []partRef   `json:"publish,omitempty"`
	Open    *openRef    `json:"open,omitempty"`
	Copied  []copiedRef `json:"copied,omitempty"`
}

// keeps reports whether a hidden part is not to be discarded at a start from h.
func (h handle) keeps(name string) bool {
	return h.Open != nil && name == h.Open.Name ||
		slices.ContainsFunc(h.Copied, func(c copiedRef) bool { return c.Name == name })
}

const handleVersion = 1

func decodeHandle(h txn.Handle) (handle, error) {
	var d handle
	if err := json.Unmarshal(h.Data, &d); err != nil {
		return d, fmt.Errorf("handle of batch %d: %w", h.Batch, err)
	}
	if d.Version != handleVersion {
		return d, fmt.Errorf("handle of batch %d: is of version %d, this is version %d", h.Batch, d.Version, handleVersion)
	}
	return d, nil
}

// part is a file that is being written. It belongs to the task until it is handed
// over with a batch that completes it.
type part struct {
	ref     partRef
	f       *os.File
	buf     []byte
	stream  *tuple.Stream // of the last tuple
	fields  tuple.Fields  // of all tuples, with a header
	batches int
	since   time.Time
	closed  atomic.Bool
}

// createPart creates the hidden file of a part.
func createPart(dir, name string, now time.Time) (*part, error) {
	f, err := os.OpenFile(filepath.Join(dir, hidden(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &part{ref: partRef{Name: name}, f: f, since: now}, nil
}

func hidden(name string) string { return "." + name + pending }

// write adds b; what does not fit in the buffer is written.
func (p *part) write(b []byte) error {
	p.buf = append(p.buf, b...)
	p.ref.Bytes += int64(len(b))
	if len(p.buf) >= bufferBytes {
		return p.flush()
	}
	return nil
}

func (p *part) flush() error {
	p.ref.CRC32C = crc32.Update(p.ref.CRC32C, castagnoli, p.buf)
	_, err := p.f.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *part) open() openRef {
	return openRef{partRef: p.ref, Batches: p.batches, Since: p.since.UnixMilli()}
}

// seal makes a complete part durable and closes it.
func (p *part) seal(sync func(*os.File) error) error {
	if p.closed.Load() {
		return nil
	}
	if err := sync(p.f); err != nil {
		return err
	}
	p.closed.Store(true)
	return p.f.Close()
}

// abandon closes a part as it is.
func (p *part) abandon() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.f.Close()
}

// verifyPart compares the beginning of a file with a part, and copies it to w.
func verifyPart(path string, ref partRef, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	crc := crc32.New(castagnoli)
	n, err := io.Copy(io.MultiWriter(w, crc), io.LimitReader(bufio.NewReaderSize(f, bufferBytes), ref.Bytes))
	if err == nil && n < ref.Bytes {
		err = fmt.Errorf("has %d bytes, %d were committed", n, ref.Bytes)
	}
	if err == nil && crc.Sum32() != ref.CRC32C {
		err = fmt.Errorf("its first %d bytes are not those that were committed", ref.Bytes)
	}
	return err
}

// publishPart gives a part its name. A part that has it already, or that a consumer
// has taken away since, is left as it is.
func publishPart(dir string, ref partRef, rename func(from, to string) error) error {
	from, to := filepath.Join(dir, hidden(ref.Name)), filepath.Join(dir, ref.Name)
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() != ref.Bytes {
		return txn.Fatal(fmt.Errorf("file %s has %d bytes, %d were committed", from, info.Size(), ref.Bytes))
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return txn.Fatal(fmt.Errorf("file %s is there already: it is not of this run", to))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return rename(from, to)
}

// syncFolder makes what was created, renamed and removed in dir durable.
func syncFolder(dir string, sync func(*os.File) error) error {
	if runtime.GOOS == "windows" { // cannot, and need not
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(sync(d), d.Close())
}

// sameFields reports whether a part that has a header may get tuples of s.
func (p *part) sameFields(s *tuple.Stream) bool {
	if p.fields == nil {
		p.fields = s.Fields
	}
	return slices.Equal(p.fields, s.Fields)
}
