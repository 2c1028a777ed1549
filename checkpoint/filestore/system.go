package filestore

import (
	"io"
	"io/fs"
	"os"
)

// system is what a Store asks of the operating system, but for links. Tests give it
// one that fails and crashes.
type system interface {
	Open(path string) (file, error)
	CreateTemp(dir, prefix string) (file, error) // under a name that is not in use
	Rename(oldname, newname string) error
	Remove(path string) error // a file, or an empty directory
	Stat(path string) (fs.FileInfo, error)
	Lstat(path string) (fs.FileInfo, error) // of a symbolic link itself
	Mkdir(dir string) error
	ReadDir(dir string) ([]fs.DirEntry, error)
	SyncDir(dir string) error // makes its entries durable
	// Lock waits for the exclusive lock on a file, which it creates if need be.
	Lock(path string) (unlock func() error, err error)
}

// file is an open file.
type file interface {
	io.ReadWriteCloser
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
	Sync() error
}

// osSystem is the operating system.
type osSystem struct{}

func (osSystem) Open(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // not a nil *os.File
	}
	return f, nil
}

func (osSystem) CreateTemp(dir, prefix string) (file, error) {
	f, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osSystem) Rename(oldname, newname string) error              { return os.Rename(oldname, newname) }
func (osSystem) Remove(path string) error                          { return os.Remove(path) }
func (osSystem) Stat(path string) (fs.FileInfo, error)             { return os.Stat(path) }
func (osSystem) Lstat(path string) (fs.FileInfo, error)            { return os.Lstat(path) }
func (osSystem) Mkdir(dir string) error                            { return os.Mkdir(dir, 0o777) }
func (osSystem) ReadDir(dir string) ([]fs.DirEntry, error)         { return os.ReadDir(dir) }
func (osSystem) SyncDir(dir string) error                          { return syncDir(dir) }
func (osSystem) Lock(path string) (unlock func() error, err error) { return lockFile(path) }
