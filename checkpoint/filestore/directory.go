package filestore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// makeDir creates a directory and its parents so that they are durable. Any of them that
// is there may have been left by a process that died before it was durable, so its entry
// is synced too, once.
func (s *Store) makeDir(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.makeDirLocked(dir)
}

func (s *Store) makeDirLocked(dir string) error {
	parent := filepath.Dir(dir)
	if s.synced[dir] || parent == dir {
		return nil
	}
	if err := s.makeDirLocked(parent); err != nil {
		return err
	}
	err := s.sys.Mkdir(dir)
	if err != nil {
		if info, statErr := s.sys.Stat(dir); statErr != nil || !info.IsDir() {
			return err
		}
	}
	existed := err != nil
	if err := s.sys.SyncDir(parent); err != nil && (!existed || !s.foreign(dir, err)) {
		return err
	}
	s.synced[dir] = true
	return nil
}

// foreign reports whether a directory that was there, and whose entry could not be made
// durable, may belong to others: then it is durable. Those in the store do not.
func (s *Store) foreign(dir string, err error) bool {
	if dir == s.dir {
		return errors.Is(err, fs.ErrPermission)
	}
	return len(dir) < len(s.dir) // above the store
}

func (s *Store) forgetDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := dir; d != s.dir && d != filepath.Dir(d); d = filepath.Dir(d) {
		delete(s.synced, d)
	}
}

// List implements checkpoint.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.ObjectInfo, error] {
	return func(yield func(checkpoint.ObjectInfo, error) bool) {
		s.listDir(ctx, "", prefix, yield)
	}
}

// listDir yields the objects below the directory name, which is empty or ends with
// a slash. It reports whether to go on.
func (s *Store) listDir(ctx context.Context, name, prefix string, yield func(checkpoint.ObjectInfo, error) bool) bool {
	fail := func(err error) bool { return yield(checkpoint.ObjectInfo{}, err) && false }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	entries, err := s.sys.ReadDir(filepath.Join(s.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return fail(err)
	}
	// A directory's objects come where its name with the slash does: "a-b" is
	// before "a/b".
	fullName := func(e fs.DirEntry) string {
		if e.IsDir() {
			return name + e.Name() + "/"
		}
		return name + e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(fullName(a), fullName(b)) })
	for _, e := range entries {
		full := fullName(e)
		if e.IsDir() {
			if strings.HasPrefix(full, prefix) || strings.HasPrefix(prefix, full) {
				if !s.listDir(ctx, full, prefix, yield) {
					return false
				}
			}
			continue
		}
		if !strings.HasPrefix(full, prefix) || reserved(full) || checkpoint.ValidName(full) != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		if !yield(checkpoint.ObjectInfo{Name: full, Size: info.Size(), UnixMilli: info.ModTime().UnixMilli()}, nil) {
			return false
		}
	}
	return true
}

// removeStaleTemps removes the temporary files below dir that were last written before a
// moment. Their writers have died: none writes one for so long.
func (s *Store) removeStaleTemps(dir string, before time.Time) error {
	fine := func(err error) bool {
		return err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	}
	entries, err := s.sys.ReadDir(dir)
	if !fine(err) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = s.removeStaleTemps(path, before)
		case strings.HasPrefix(e.Name(), tempPrefix):
			var info fs.FileInfo
			if info, err = e.Info(); err == nil && info.ModTime().Before(before) {
				err = s.sys.Remove(path)
			}
		}
		if !fine(err) {
			return err
		}
	}
	return nil
}
