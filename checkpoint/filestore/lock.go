package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/internal/filelock"
)

// lockFile waits for the exclusive OS lock on a file, which it creates if need be.
// The lock ends with unlock or with the process, and is never broken otherwise.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

// LockFolder makes this process the only user of a data folder until release is
// called or the process ends. It creates the folder if it is missing. The lock is
// an OS lock on the file "lock" in it, which also tells the pid of its holder; it
// is never broken by age. If another process holds it and does not let go within
// two seconds, as one that was killed does, the error names the folder and that pid.
func LockFolder(dir string) (release func() error, err error) {
	fail := func(err error) (func() error, error) {
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	if err := makeFolder(dir); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return fail(err)
	}
	err = filelock.Claim(f)
	if errors.Is(err, filelock.ErrLocked) {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0)
		err = fmt.Errorf("it is in use by process %s: stop that one, or use another folder", strings.TrimSpace(string(holder[:n])))
	} else if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
	}
	if err != nil {
		return fail(errors.Join(err, f.Close()))
	}
	return f.Close, nil
}

// makeFolder creates a folder so that it is durable.
func makeFolder(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s := &Store{dir: abs, sys: osSystem{}, synced: map[string]bool{}}
	return s.makeDir(abs)
}
