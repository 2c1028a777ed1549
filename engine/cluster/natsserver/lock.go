package natsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/internal/filelock"
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
	err = filelock.Claim(f)
	if errors.Is(err, filelock.ErrLocked) {
		err = fmt.Errorf("another server uses %s: stop that one, or use another folder", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
