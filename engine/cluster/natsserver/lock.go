package natsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// errLocked: another open file holds the lock.
var errLocked = errors.New("locked")

const (
	// dying is how long a process that was killed may take to let go of its lock.
	dying    = 2 * time.Second
	tryEvery = 20 * time.Millisecond
)

// lockFolder makes this server the only user of a folder until free is called or the
// process ends. JetStream itself would let two servers write the same files.
func lockFolder(dir string) (free func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = lockPatiently(f)
	if errors.Is(err, errLocked) {
		err = fmt.Errorf("another server uses %s: stop that one, or use another folder", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

func lockPatiently(f *os.File) error {
	again := time.NewTicker(tryEvery)
	defer again.Stop()
	end := time.NewTimer(dying)
	defer end.Stop()
	for {
		err := lock(f)
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-again.C:
		case <-end.C:
			return err
		}
	}
}
