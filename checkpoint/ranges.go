package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Ranges returns s if it reads parts of objects, or a reader that does so by reading
// everything before them too.
func Ranges(s Store) RangeReader {
	if r, ok := s.(RangeReader); ok {
		return r
	}
	return fromBegin{s}
}

type fromBegin struct{ store Store }

func (b fromBegin) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	body, _, err := b.store.Open(ctx, name)
	if err != nil {
		return err
	}
	if _, err = io.CopyN(io.Discard, body, off); err == nil {
		_, err = io.ReadFull(body, p)
	}
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("read %d bytes of object %s from byte %d: %w", len(p), name, off, err)
	}
	return nil
}
