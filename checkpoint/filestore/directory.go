package filestore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// makeDir creates a directory and its parents so that they are durable. A
// directory that is there may have been left by a process that died before it was
// durable, so its entry is synced too, once.
func (s *Store) makeDir(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.makeDirLocked(dir)
}

func (s *Store) makeDirLocked(dir string) error {
	if s.synced[dir] {
		return nil
	}
	parent := filepath.Dir(dir)
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := s.makeDirLocked(parent); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o777)
	}
	if err != nil {
		if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() {
			return err
		}
	}
	existed := err != nil
	// Where the store is may belong to others: an old directory of theirs is durable.
	if err := syncDir(parent); err != nil && (!existed || !errors.Is(err, fs.ErrPermission)) {
		return err
	}
	s.synced[dir] = true
	return nil
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
	entries, err := os.ReadDir(filepath.Join(s.dir, filepath.FromSlash(name)))
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

// removeStaleTemps removes the temporary files last written before a moment. Their
// writers have died: none writes one for so long.
func (s *Store) removeStaleTemps(before time.Time) error {
	return filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil && info.ModTime().Before(before) {
				err = os.Remove(path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
