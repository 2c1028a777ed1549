// Package filesink holds bolts that write files.
package filesink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/isobar-io/isobar/internal/atomicfile"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// pauseMin is the least time between two writes that are not forced.
const pauseMin = time.Second

// Latest keeps, in its keyed state, the latest value of each key, and shows all of
// them as one file. See [NewLatest].
type Latest struct {
	path   string // of the regular file itself, symbolic links followed
	state  *txn.State
	values *txn.Value[[]byte]
	line   []byte // scratch
	fence  *fence

	// Used by Publish only.
	rename  func(from, to string) error
	now     func() time.Time
	written time.Time // when the file was last written or found unchanged; zero: not yet
}

// NewLatest returns a bolt that keeps the latest tuple of each key, which is the
// first field, and writes them to the file at path, in the order of the keys' bytes:
//
//	key TAB second field TAB third field … LF
//
// Numbers are in decimal, booleans true or false, times as RFC 3339, nil is empty.
// Within texts a tab is written as \t, a line feed as \n, a carriage return as \r,
// and a backslash as \\.
//
// The file shows a committed batch as a whole: it is replaced in one step, and only
// when its content differs. It is written at most once a second: a batch that is
// committed within a second of the last write is shown a little later. The first
// batch after a start and the last before a stop are shown at once.
//
// The bolt must run as a single task, so give it GlobalGrouping. The file that it
// replaces need not be one of its own.
//
// The file is fenced: a process of an older generation that was stopped, even in the middle
// of replacing it, never puts old content over newer. For that a hidden file stays beside
// it, .NAME.fence, which says whose it is, and is locked while the file is replaced. A
// process that is stopped just then holds up the next generation until it goes on or is
// killed. On a file system that several machines share, the fence is as good as the locks
// there. A topology with another run id, as a copy has, takes the file over from whoever
// had it, and the other one fails when it writes next. So two topologies must still not
// write the same file: they would take it from each other again and again.
func NewLatest(path string) *Latest {
	return &Latest{path: path, now: time.Now, rename: os.Rename}
}

// KeyFields returns none: whatever the first field is called, it is the key, and
// Execute sets it.
func (l *Latest) KeyFields() []string { return []string{} }

// Open checks that the file can be replaced, and makes this generation the only one that may.
func (l *Latest) Open(ctx *txn.Context, s *txn.State) error {
	if ctx.TaskCount != 1 {
		return txn.Fatal(fmt.Errorf("file sink %q: has %d tasks, but one file needs exactly 1", ctx.Component, ctx.TaskCount))
	}
	path, err := target(l.path)
	if err == nil {
		l.path = path
		l.fence = newFence(filepath.Dir(path), filepath.Base(path), ctx, (*os.File).Sync)
		err = l.fence.raise(ctx.Context())
	}
	if err == nil {
		err = l.fence.guard(ctx.Context(), func() error { return atomicfile.Clean(path) })
	}
	if err != nil {
		return fmt.Errorf("file sink %q: %w", ctx.Component, err)
	}
	l.state = s
	l.values = txn.NewValue(s, "latest", txn.BytesCodec())
	return nil
}

// target returns the absolute path of the file behind path.
func target(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, os.ErrNotExist) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
		if err != nil {
			return "", txn.Fatal(fmt.Errorf("no folder for %s: %w", path, err))
		}
		return filepath.Join(dir, filepath.Base(abs)), nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", txn.Fatal(fmt.Errorf("%s is not a regular file, so it cannot be replaced", path))
	}
	return resolved, nil
}

// Execute makes the tuple the latest of its key.
func (l *Latest) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if t.Len() == 0 {
		return fmt.Errorf("file sink: tuple %s has no field to be the key", t)
	}
	if err := l.state.SetKey(t.Value(0)); err != nil {
		return err
	}
	line := l.line[:0]
	for _, v := range t.Values()[1:] {
		line = appendField(append(line, '\t'), v)
	}
	l.line = line
	return l.values.Set(line)
}

// Publish writes the file.
func (l *Latest) Publish(ctx context.Context, _ txn.BatchID, view txn.View, last bool) error {
	if !last && !l.written.IsZero() && l.now().Sub(l.written) < pauseMin {
		return txn.ErrPostponed
	}
	var rows rows
	if err := l.values.Scan(view, rows.add); err != nil {
		return fmt.Errorf("reading the state for %s: %w", l.path, err)
	}
	rows.sort()
	same, err := rows.equal(l.path)
	if err != nil {
		return err
	}
	if !same {
		replace := func(from, to string) error {
			return l.fence.guard(ctx, func() error { return l.rename(from, to) })
		}
		if err := atomicfile.Replace(l.path, rows.render, replace); err != nil {
			return err
		}
	}
	l.written = l.now()
	return nil
}

// rows are the lines of the file: key and rest of each, in one piece of memory.
type rows struct {
	text  []byte
	index []row
}

type row struct {
	at   int // of the key in text; the rest follows it, and then the next row
	key  int // length of the key, which is not escaped yet
	rest int // length of the rest, which is
}

func (r *rows) add(key []tuple.Value, rest []byte) error {
	if len(key) != 1 {
		return fmt.Errorf("a key of %d values where one was expected", len(key))
	}
	at := len(r.text)
	if text, ok := key[0].Text(); ok {
		r.text = append(r.text, text...)
	} else {
		r.text = appendField(r.text, key[0])
	}
	keyLen := len(r.text) - at
	r.text = append(r.text, rest...)
	r.index = append(r.index, row{at, keyLen, len(rest)})
	return nil
}

func (r *rows) key(w row) []byte  { return r.text[w.at : w.at+w.key] }
func (r *rows) rest(w row) []byte { return r.text[w.at+w.key : w.at+w.key+w.rest] }

func (r *rows) sort() {
	slices.SortFunc(r.index, func(a, b row) int { return bytes.Compare(r.key(a), r.key(b)) })
}

func (r *rows) render(w io.Writer) error {
	var line []byte
	for _, row := range r.index {
		line = appendEscaped(line[:0], r.key(row))
		line = append(append(line, r.rest(row)...), '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// equal reports whether the file at path already has the content of r.
func (r *rows) equal(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c := comparer{f: bufio.NewReaderSize(f, 64<<10)}
	err = r.render(&c)
	if err == nil && !c.atEnd() {
		err = errDiffers
	}
	if errors.Is(err, errDiffers) {
		return false, f.Close()
	}
	return err == nil, errors.Join(err, f.Close())
}
