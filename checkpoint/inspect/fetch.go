package inspect

import (
	"context"
	"errors"
	"os"

	"github.com/isobar-io/isobar/checkpoint"
)

// Fetched is a verified copy of an object in a temporary file. Where the system allows it
// the file has no name once there is anything in it, so that a process that is killed
// leaves at most an empty one behind.
type Fetched struct {
	File  *os.File
	named bool
}

// Fetch reads an object. The caller closes it. The error names the object; see
// [checkpoint.CopyObject].
func Fetch(ctx context.Context, s checkpoint.Store, o checkpoint.FileRef) (*Fetched, error) {
	file, err := os.CreateTemp("", "isobar-object-")
	if err != nil {
		return nil, err
	}
	f := &Fetched{File: file, named: os.Remove(file.Name()) != nil}
	if err := checkpoint.CopyObject(ctx, s, file, o.Name, o.Size, o.CRC32C); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close removes the file.
func (f *Fetched) Close() error {
	err := f.File.Close()
	if f.named {
		err = errors.Join(err, os.Remove(f.File.Name()))
	}
	return err
}

// ReadAt implements checkpoint.RangeReader for the one object.
func (f *Fetched) ReadAt(_ context.Context, _ string, p []byte, off int64) error {
	_, err := f.File.ReadAt(p, off)
	return err
}
