package natscluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"

	"github.com/isobar-io/isobar/engine/cluster"
)

func (o *objects) Get(ctx context.Context, name string) (io.ReadCloser, cluster.Object, error) {
	r, _, err := o.find(ctx, name)
	if err != nil {
		return nil, cluster.Object{}, o.attempt("get", name, err)
	}
	return &content{ctx: ctx, objects: o, record: r, hash: sha256.New()}, r.object(), nil
}

func (o *objects) GetFrom(ctx context.Context, name string, offset int64) (io.ReadCloser, cluster.Object, error) {
	r, _, err := o.find(ctx, name)
	if err == nil && (offset < 0 || offset > r.Size) {
		err = fmt.Errorf("it has %d bytes, so none from %d on", r.Size, offset)
	}
	if err != nil {
		return nil, cluster.Object{}, o.attempt("get", name, err)
	}
	return &content{ctx: ctx, objects: o, record: r, next: offset / r.PartBytes, skip: offset % r.PartBytes}, r.object(), nil
}

// content reads an object as it was when it was got. An error is final.
type content struct {
	ctx     context.Context
	objects *objects
	record  record

	hash hash.Hash // nil: not all is read
	next int64     // part
	skip int64     // bytes of it
	rest []byte    // of the part before
	err  error
}

func (c *content) Read(p []byte) (int, error) {
	for len(c.rest) == 0 && c.err == nil && len(p) > 0 {
		if err := c.fetch(); err != nil {
			c.err = err
			if !errors.Is(err, io.EOF) {
				c.err = c.objects.attempt("read", c.record.Name, err)
			}
		}
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, c.err
}

// fetch reads the next part, or checks what all of them were.
func (c *content) fetch() error {
	size := c.record.sizeOf(c.next)
	if size == 0 {
		return c.end()
	}
	m, err := c.objects.last(c.ctx, c.objects.shelf.data(c.record.Upload)+strconv.FormatInt(c.next, 10))
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return fmt.Errorf("part %d is gone: it was replaced or deleted meanwhile, or is damaged", c.next+1)
	case err != nil:
		return err
	case int64(len(m.Data)) != size:
		return fmt.Errorf("it is damaged: part %d has %d bytes, not %d", c.next+1, len(m.Data), size)
	}
	if c.hash != nil {
		c.hash.Write(m.Data)
	}
	c.rest, c.next, c.skip = m.Data[c.skip:], c.next+1, 0
	return nil
}

func (c *content) end() error {
	if c.hash == nil {
		return io.EOF
	}
	if is := hex.EncodeToString(c.hash.Sum(nil)); is != c.record.SHA256 {
		return fmt.Errorf("it is damaged: its SHA-256 is %s, not %s", is, c.record.SHA256)
	}
	return io.EOF
}

func (c *content) Close() error {
	if c.err == nil {
		c.err = errors.New("read after close")
	}
	c.rest = nil
	return nil
}
