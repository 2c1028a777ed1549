package pebblestate

import (
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// localFS is the file system of a local store, which is rebuilt and never opened
// again. So nothing is made durable, and what only who opens a store reads is thrown
// away, Pebble's manifest above all: that it cannot be written, as on a full disk, would
// be the end of the process.
type localFS struct{ vfs.FS }

func (l *localFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := withoutSync(l.FS.Create(name, c))
	base := filepath.Base(name)
	if err == nil && (strings.HasPrefix(base, "MANIFEST-") || strings.HasSuffix(base, ".log")) {
		return discarding{f}, nil
	}
	return f, err
}

func (l *localFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return withoutSync(l.FS.OpenReadWrite(name, c, opts...))
}

func (l *localFS) OpenDir(name string) (vfs.File, error) { return withoutSync(l.FS.OpenDir(name)) }

func (l *localFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return withoutSync(l.FS.ReuseForWrite(oldname, newname, c))
}

func (l *localFS) Unwrap() vfs.FS { return l.FS }

// unsyncedFile is a file that is not made durable.
type unsyncedFile struct{ vfs.File }

func withoutSync(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsyncedFile) Sync() error                { return nil }
func (unsyncedFile) SyncData() error            { return nil }
func (unsyncedFile) SyncTo(int64) (bool, error) { return false, nil }

// discarding is a file that stays empty.
type discarding struct{ vfs.File }

func (discarding) Write(p []byte) (int, error)    { return len(p), nil }
func (discarding) Preallocate(int64, int64) error { return nil }
