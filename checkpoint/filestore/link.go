package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/isobar-io/isobar/checkpoint"
)

var _ checkpoint.Linker = (*Store)(nil)

// Link implements checkpoint.Linker.
func (s *Store) Link(ctx context.Context, name, path string) error {
	object, err := s.path(name)
	if err != nil {
		return fmt.Errorf("link object: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.linkObject(object, path); err != nil {
		return fmt.Errorf("link object %s of %s to %s: %w", name, s.dir, path, err)
	}
	return nil
}

func (s *Store) linkObject(object, path string) error {
	info, err := s.sys.Lstat(object)
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.ErrNotFound
	}
	if err == nil && !info.Mode().IsRegular() {
		return errors.ErrUnsupported // a symbolic link would be linked itself
	}
	if err == nil {
		err = s.link(object, path)
	}
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Another file system, too many links, not allowed: it does not matter to who can
	// copy, and what is broken will show then.
	return errors.Join(errors.ErrUnsupported, err)
}
