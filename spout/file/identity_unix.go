//go:build unix

package file

import (
	"os"
	"syscall"
)

func identityOf(info os.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{true, uint64(s.Dev), uint64(s.Ino)} //nolint:unconvert // the types differ between systems
}
