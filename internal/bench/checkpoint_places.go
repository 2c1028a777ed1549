package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/memstore"
)

// Where checkpoints are kept.
const (
	keptNowhere = "none"
	keptInFiles = "files"
	keptOnS3    = "s3"
)

// place has a store in each folder.
type place interface {
	open(ctx context.Context, folder string) (checkpoint.Store, error)
	remove(folder string) error
}

// nowherePlace lets files of state go, and keeps the rest in memory.
type nowherePlace struct{}

func (nowherePlace) open(context.Context, string) (checkpoint.Store, error) {
	return forgetful{memstore.New()}, nil
}

func (nowherePlace) remove(string) error { return nil }

// forgetful is a store that costs nothing.
type forgetful struct{ *memstore.Store }

// Put keeps what is small.
func (f forgetful) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if isState(name) {
		return nil
	}
	return f.Store.Put(ctx, name, body, size, crc)
}

// isState reports whether an object is a file of state.
func isState(name string) bool { return strings.HasPrefix(name, "data/") }

// filesPlace is a directory of directory stores.
type filesPlace struct{ dir string }

func (p filesPlace) path(folder string) string { return filepath.Join(p.dir, "files", folder) }

func (p filesPlace) open(_ context.Context, folder string) (checkpoint.Store, error) {
	return filestore.Open(p.path(folder))
}

func (p filesPlace) remove(folder string) error { return os.RemoveAll(p.path(folder)) }

// original is the checkpoint that runs begin with.
type original struct {
	store    checkpoint.Store // it is read only
	head     []byte
	manifest *checkpoint.Manifest
	objects  map[string]bool
}

func newOriginal(ctx context.Context, store checkpoint.Store) (*original, error) {
	o := &original{store: store, objects: map[string]bool{}}
	var err error
	if o.head, _, err = store.ReadHead(ctx); err != nil {
		return nil, err
	}
	if o.manifest, err = currentManifest(ctx, store); err != nil {
		return nil, err
	}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		o.objects[info.Name] = true
	}
	return o, nil
}

// copyTo copies objects into an empty store, and the head.
func (o *original) copyTo(ctx context.Context, to checkpoint.Store, which func(name string) bool) error {
	for name := range o.objects {
		if !which(name) {
			continue
		}
		body, _, err := o.store.Open(ctx, name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
		if err := to.Put(ctx, name, bytes.NewReader(data), int64(len(data)), checkpoint.CRC(data)); err != nil {
			return err
		}
	}
	_, err := to.SwapHead(ctx, "", o.head)
	return err
}

// begin makes the original the checkpoint of an empty store, without copying its files of
// state.
func (o *original) begin(ctx context.Context, store checkpoint.Store) (checkpoint.Store, error) {
	return begun{store, o}, o.copyTo(ctx, store, func(name string) bool { return !isState(name) })
}

// begun is a store whose first checkpoint lies in another, where it stays.
type begun struct {
	checkpoint.Store
	from *original
}

func (b begun) inherited(name string) bool { return isState(name) && b.from.objects[name] }

// Open opens an object.
func (b begun) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if b.inherited(name) {
		return b.from.store.Open(ctx, name)
	}
	return b.Store.Open(ctx, name)
}

// Link links an object.
func (b begun) Link(ctx context.Context, name, path string) error {
	if b.inherited(name) {
		return link(ctx, b.from.store, name, path)
	}
	return link(ctx, b.Store, name, path)
}

// Delete deletes an object that is its own.
func (b begun) Delete(ctx context.Context, name string) error {
	if b.inherited(name) {
		return nil
	}
	return b.Store.Delete(ctx, name)
}

// link links an object of a store whose objects are files.
func link(ctx context.Context, s checkpoint.Store, name, path string) error {
	if l, ok := s.(checkpoint.Linker); ok {
		return l.Link(ctx, name, path)
	}
	return fmt.Errorf("link object %s: %w", name, errors.ErrUnsupported)
}
