// Package atomicfile replaces a file as a whole: a reader, and a machine that comes
// up after a crash, sees the old content or the new, never a part.
package atomicfile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const suffix = ".isobar-tmp"

// Write replaces the content of path with what render writes. When it returns nil
// the new content is durable. After an error the old content is still there, or the
// new content is if only the folder could not be synced.
func Write(path string, render func(w io.Writer) error) error {
	return Replace(path, render, os.Rename)
}

// Replace is Write with a step of the caller's own that replaces the file: it is given the
// new content under a name of its own, durable, and renames it, or returns an error.
func Replace(path string, render func(w io.Writer) error, rename func(from, to string) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	dir, name := filepath.Split(path)
	tmp := dir + "." + name + "." + rand.Text() + suffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err := fill(f, path, render); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncFolder(dir)
}

// fill writes, syncs and closes f, with the permissions of the file it replaces.
func fill(f *os.File, path string, render func(w io.Writer) error) error {
	w := bufio.NewWriterSize(f, 64<<10)
	err := render(w)
	if err == nil {
		err = w.Flush()
	}
	if old, statErr := os.Stat(path); err == nil && statErr == nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFolder makes a rename in dir durable. Windows cannot sync folders and does not
// need to.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Clean removes what a Write of path left behind when its process was killed. The
// caller must know that no other is writing path.
func Clean(path string) error {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cleaning up beside %s: %w", path, err)
	}
	var errs []error
	for _, e := range entries {
		middle, ok := strings.CutPrefix(e.Name(), "."+name+".")
		if !ok || !strings.HasSuffix(middle, suffix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
