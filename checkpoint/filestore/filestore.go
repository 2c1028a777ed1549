// Package filestore keeps a topology's checkpoints in a directory.
//
// An object is a file under its own name. It is written under a temporary name,
// synced, and then linked to its name, so that it appears whole or not at all and
// never replaces another. Each head is a file of its own as well, the one with the highest
// number in the folder "heads".
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

const (
	putLockName = "put.lock"
	// tempPrefix is in no object name, because of the '~'.
	tempPrefix = ".tmp~"
	// tempAge is from when on a temporary file is nobody's any more.
	tempAge = time.Hour
)

// Store is a directory that holds the checkpoints of one topology. It implements
// checkpoint.Store. Several Stores, also of several processes, may share one.
type Store struct {
	dir  string
	hook func(step string)
	link func(oldname, newname string) error
	sys  system

	mu     sync.Mutex
	synced map[string]bool // directories whose entry in their parent is durable

	headMu  sync.Mutex
	durable uint64 // heads up to this number are known to be
	wrote   bool   // it has moved the head, or may have
}

var (
	_ checkpoint.Store       = (*Store)(nil)
	_ checkpoint.RangeReader = (*Store)(nil)
)

// Option changes how Open makes a Store.
type Option func(*Store)

// WithHook has hook called, on the goroutine of the caller, before and after each
// step that changes the store, the latter if it succeeded: sst.store.before and
// sst.store.after for objects below data/, manifest.before and .after for those
// below manifest/, object.before and .after for others, head.before and .after,
// delete.before and .after.
func WithHook(hook func(step string)) Option { return func(s *Store) { s.hook = hook } }

// Open opens the directory store at dir and creates dir if it is missing. It
// removes temporary files that are older than an hour.
func Open(dir string, opts ...Option) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint store %s: %w", dir, err)
	}
	s := &Store{dir: abs, hook: func(string) {}, link: os.Link, sys: osSystem{}, synced: map[string]bool{}}
	for _, o := range opts {
		o(s)
	}
	if err := s.makeDir(abs); err != nil {
		return nil, fmt.Errorf("open checkpoint store %s: %w", dir, err)
	}
	if err := s.removeStaleTemps(abs, time.Now().Add(-tempAge)); err != nil {
		return nil, fmt.Errorf("open checkpoint store %s: remove stale temporary files: %w", dir, err)
	}
	return s, nil
}

// String returns the directory, for messages.
func (s *Store) String() string { return s.dir }

// Close does nothing: a Store holds nothing between calls.
func (s *Store) Close() error { return nil }

// path returns where an object is kept.
func (s *Store) path(name string) (string, error) {
	if err := checkpoint.ValidName(name); err != nil {
		return "", err
	}
	if reserved(name) {
		return "", fmt.Errorf("object name %q is reserved", name)
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), nil
}

func reserved(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{putLockName, headsName, soleHeadName, headLockName}, top)
}

// Put implements checkpoint.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	path, err := s.path(name)
	if err != nil {
		return fmt.Errorf("put object: %w", err)
	}
	step := checkpoint.PutStep(name)
	s.hook(step + ".before")
	if err := s.put(ctx, path, body, size, crc); err != nil {
		return fmt.Errorf("put object %s: %w", name, err)
	}
	s.hook(step + ".after")
	return nil
}

func (s *Store) put(ctx context.Context, path string, body io.ReadSeeker, size int64, crc uint32) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	temp, err := s.createTemp(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = s.sys.Remove(temp.Name()) }() // it is stale soon, and removed then
	err = checkpoint.CopyVerified(temp, contextReader{ctx, body}, size, crc)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	switch err := s.linkNew(temp.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		same, err := s.sameContent(path, size, crc)
		if err != nil {
			return err
		}
		if !same {
			return checkpoint.ErrExists
		}
	case err != nil:
		return err
	}
	// Also when the object was there already: whoever put it may have died before
	// its name was durable.
	return s.sys.SyncDir(filepath.Dir(path))
}

// createTemp creates a temporary file in dir, and dir. Delete may remove an empty
// directory between the two, so it tries again.
func (s *Store) createTemp(dir string) (file, error) {
	const attempts = 10
	for attempt := 1; ; attempt++ {
		if err := s.makeDir(dir); err != nil {
			return nil, err
		}
		f, err := s.sys.CreateTemp(dir, tempPrefix)
		if err == nil || attempt == attempts || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		s.forgetDir(dir)
	}
}

// linkNew gives a file a name that must be new, or returns fs.ErrExist. Where the
// file system has no hard links, look and rename happen under a lock instead.
func (s *Store) linkNew(temp, path string) error {
	err := s.link(temp, path)
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	unlock, err := s.sys.Lock(filepath.Join(s.dir, putLockName))
	if err != nil {
		return err
	}
	_, err = s.sys.Lstat(path)
	switch {
	case err == nil:
		err = fs.ErrExist
	case errors.Is(err, fs.ErrNotExist):
		err = s.sys.Rename(temp, path)
	}
	return errors.Join(err, unlock())
}

func (s *Store) sameContent(path string, size int64, crc uint32) (bool, error) {
	f, err := s.sys.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = checkpoint.CopyVerified(io.Discard, f, size, crc)
	if errors.Is(err, checkpoint.ErrDamaged) {
		return false, nil
	}
	return err == nil, err
}

// Open implements checkpoint.Store.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	f, size, err := s.open(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{contextReader{ctx, f}, f}, size, nil
}

// ReadAt implements checkpoint.RangeReader.
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	f, _, err := s.open(ctx, name)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(p, off)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %d bytes of object %s from byte %d: %w", len(p), name, off, err)
	}
	return nil
}

func (s *Store) open(ctx context.Context, name string) (file, int64, error) {
	path, err := s.path(name)
	if err != nil {
		return nil, 0, fmt.Errorf("open object: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	f, err := s.sys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("open object %s in %s: %w", name, s.dir, checkpoint.ErrNotFound)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open object %s: %w", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open object %s: %w", name, err), f.Close())
	}
	return f, info.Size(), nil
}

// Delete implements checkpoint.Store. It also removes the directories that have
// become empty.
func (s *Store) Delete(ctx context.Context, name string) error {
	path, err := s.path(name)
	if err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.hook("delete.before")
	if err := s.sys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete object %s: %w", name, err)
	}
	for dir := filepath.Dir(path); dir != s.dir; dir = filepath.Dir(dir) {
		if s.sys.Remove(dir) != nil {
			break // not empty
		}
		s.forgetDir(dir)
	}
	s.hook("delete.after")
	return nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
