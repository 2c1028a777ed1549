package filestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/isobar-io/isobar/checkpoint"
)

const (
	headsName    = "heads"
	headDigits   = 20
	headsKept    = 64 // at least so many of the newest
	headTries    = 100
	soleHeadName = "head"
	headLockName = "head.lock"
)

// The heads of a store are numbered, and a swap links a new file to the number after the
// one that it has read. That fails if the number is taken, so that of all who have read one
// head a single one succeeds. No lock would do: who holds one and is frozen keeps it, and
// everybody else out, or loses it, as of a network file system, and does not know.
//
// Only the newest numbers are kept. Who was frozen for long may link one that others have
// used and removed by then. So whoever has linked one looks how many have come after it, and,
// as a list may lack what comes and goes meanwhile, whether the head that it has read is
// still there.
//
// A head that was replaced is emptied: if the newest is lost, the one before must not be
// taken for it.
//
// Earlier versions of Isobar had the sole head in a file "head", which counts as number 0,
// and a lock on "head.lock".

// numbered is a head and its number; 0 if there is none.
type numbered struct {
	n    uint64
	data []byte
}

func (s *Store) headPath(n uint64) string {
	if n == 0 {
		return filepath.Join(s.dir, soleHeadName)
	}
	return filepath.Join(s.dir, headsName, fmt.Sprintf("%0*d", headDigits, n))
}

// headNumbers returns the numbers of the heads that there are.
func (s *Store) headNumbers() ([]uint64, error) {
	entries, err := s.sys.ReadDir(filepath.Join(s.dir, headsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []uint64
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && len(e.Name()) == headDigits {
			all = append(all, n)
		}
	}
	return all, nil
}

func newest(numbers []uint64) (n uint64) {
	for _, k := range numbers {
		n = max(n, k)
	}
	return n
}

// ReadHead implements checkpoint.Store.
func (s *Store) ReadHead(ctx context.Context) ([]byte, checkpoint.Version, error) {
	h, err := s.readHead(ctx)
	if err != nil {
		return nil, "", err
	}
	return h.data, versionOf(h.data), nil
}

func (s *Store) readHead(ctx context.Context) (h numbered, err error) {
	fail := func(err error) (numbered, error) { return h, fmt.Errorf("read head: %w", err) }
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return h, err
		}
		numbers, err := s.headNumbers()
		if err != nil {
			return fail(err)
		}
		h.n = newest(numbers)
		path := s.headPath(h.n)
		h.data, err = s.readFile(path)
		switch missing := errors.Is(err, fs.ErrNotExist); {
		case missing && h.n == 0 && try > 1: // the first list may have been before the first number
			return h, fmt.Errorf("read head in %s: %w", s.dir, checkpoint.ErrNotFound)
		case err != nil && !missing:
			return fail(err)
		case len(h.data) > 0:
			if err := s.makeDurable(h.n); err != nil {
				return fail(err)
			}
			return h, nil
		case try == headTries: // it was not replaced only just now
			return fail(fmt.Errorf("there is no head: %s is missing, which has replaced %s: %w", s.headPath(h.n+1), path, checkpoint.ErrDamaged))
		}
	}
}

func (s *Store) readFile(path string) ([]byte, error) {
	f, err := s.sys.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}

// makeDurable makes a head that was read durable: whoever reads one believes it, so it must
// not be gone after a crash. Who may not write relies on those who may.
func (s *Store) makeDurable(n uint64) error {
	s.headMu.Lock()
	defer s.headMu.Unlock()
	if n <= s.durable {
		return nil
	}
	err := s.syncHeads(n)
	if !s.wrote && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return nil
	}
	return err
}

// syncHeads makes all heads durable, of which one has number n. The caller holds headMu.
func (s *Store) syncHeads(n uint64) error {
	err := s.sys.SyncDir(filepath.Join(s.dir, headsName))
	if err == nil {
		s.durable = max(s.durable, n)
	}
	return err
}

// versionOf names a version of the head by its bytes, which never repeat.
func versionOf(data []byte) checkpoint.Version {
	sum := sha256.Sum256(data)
	return checkpoint.Version(hex.EncodeToString(sum[:]))
}

// SwapHead implements checkpoint.Store.
func (s *Store) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	s.hook("head.before")
	if err := s.swapHead(ctx, old, data); err != nil {
		return "", fmt.Errorf("swap head: %w", err)
	}
	s.hook("head.after")
	return versionOf(data), nil
}

func (s *Store) swapHead(ctx context.Context, old checkpoint.Version, data []byte) error {
	var current checkpoint.Version
	h, err := s.readHead(ctx)
	switch {
	case err == nil:
		current = versionOf(h.data)
	case !errors.Is(err, checkpoint.ErrNotFound):
		return err
	}
	if current != old {
		return checkpoint.ErrHeadMoved
	}
	n := h.n + 1
	if err := s.writeHead(n, data); err != nil {
		return err
	}
	numbers, err := s.headNumbers()
	if err == nil && h.n > 0 {
		_, err = s.sys.Lstat(s.headPath(h.n))
	}
	overtaken := errors.Is(err, fs.ErrNotExist)
	if err != nil && !overtaken {
		return err
	}
	if overtaken || newest(numbers) >= n+headsKept {
		_ = s.sys.Remove(s.headPath(n)) // others remove it otherwise
		return checkpoint.ErrHeadMoved
	}
	s.replaced(numbers, n)
	return nil
}

// writeHead makes a file the head with a number, durably.
func (s *Store) writeHead(n uint64, data []byte) error {
	s.headMu.Lock()
	defer s.headMu.Unlock()
	s.wrote = true
	if err := s.linkHead(n, data); err != nil {
		return err
	}
	return s.syncHeads(n)
}

// linkHead makes a file the head with a number.
func (s *Store) linkHead(n uint64, data []byte) error {
	path := s.headPath(n)
	if err := s.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	temp, err := s.createTemp(s.dir) // the list of heads stays short
	if err != nil {
		return err
	}
	defer func() { _ = s.sys.Remove(temp.Name()) }() // it is stale soon, and removed then
	_, err = io.Copy(temp, bytes.NewReader(data))
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	err = s.linkNew(temp.Name(), path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A network file system may say so of what it has just linked, if its answer was lost.
	there, err := s.readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !bytes.Equal(there, data):
		return checkpoint.ErrHeadMoved
	}
	return err
}

// replaced cleans up after head n has taken the place of the one before, with these numbers
// in use. What fails is harmless: later ones remove it.
func (s *Store) replaced(numbers []uint64, n uint64) {
	if n == 1 {
		_ = s.sys.Remove(s.headPath(0))
	} else if empty, err := s.sys.CreateTemp(s.dir, tempPrefix); err == nil {
		if empty.Close() != nil || s.sys.Rename(empty.Name(), s.headPath(n-1)) != nil {
			_ = s.sys.Remove(empty.Name())
		}
	}
	last := newest(numbers)
	for _, k := range numbers {
		if last >= k+headsKept {
			_ = s.sys.Remove(s.headPath(k))
		}
	}
}

// HeadName returns the slash-separated path of the head in the folder, for messages.
func (s *Store) HeadName() string {
	path, err := HeadFile(s.dir)
	if err != nil {
		return soleHeadName
	}
	return filepath.ToSlash(strings.TrimPrefix(path, s.dir+string(filepath.Separator)))
}

// HeadFile returns the path of the file that is the head of the store in a folder. If there
// is none, its error wraps checkpoint.ErrNotFound.
func HeadFile(dir string) (string, error) {
	s := &Store{dir: dir, sys: osSystem{}}
	for range 2 { // the first list may have been before the first number; see readHead
		numbers, err := s.headNumbers()
		if err != nil {
			return "", err
		}
		path := s.headPath(newest(numbers))
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
	}
	return "", fmt.Errorf("head in %s: %w", dir, checkpoint.ErrNotFound)
}
