//go:build unix

package natsserver

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the exclusive lock that belongs to the open file f, and so ends with it.
func lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}
