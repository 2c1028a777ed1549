// Package filelock takes exclusive locks of the operating system on open files. Such a
// lock excludes every other open file, of this process too. It ends when its file is
// closed or its process ends, and is never broken otherwise. The content of a locked file
// stays readable to others.
//
// The file must never be replaced or removed while anybody may use it: a lock on a file
// that has lost its name excludes nobody.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLocked: another open file holds the lock.
var ErrLocked = errors.New("locked")

const (
	tryEvery = 20 * time.Millisecond
	// dying is how long a process that was killed may take to let go of its locks.
	dying = 2 * time.Second
)

// Lock waits for the lock, for ever if need be.
func Lock(f *os.File) error { return lock(f, true) }

// TryLock takes the lock, or returns an ErrLocked at once.
func TryLock(f *os.File) error { return lock(f, false) }

// Wait waits for the lock until ctx ends; the error is an ErrLocked then.
func Wait(ctx context.Context, f *os.File) error {
	again := time.NewTicker(tryEvery)
	defer again.Stop()
	for {
		err := TryLock(f)
		if !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// Claim takes a lock that its holder keeps as long as it lives: it waits only a little,
// for one that may just be dying, and returns an ErrLocked then.
func Claim(f *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	return Wait(ctx, f)
}
