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

// content reads an object as it was when Get was called. An error is final.
type content struct {
	ctx     context.Context
	objects *objects
	record  record

	hash hash.Hash
	next int // part
	size int64
	rest []byte // of the part before
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
	if c.next == c.record.Parts {
		is := hex.EncodeToString(c.hash.Sum(nil))
		switch {
		case c.size != c.record.Size:
			return fmt.Errorf("it is damaged: it has %d bytes, not %d", c.size, c.record.Size)
		case is != c.record.SHA256:
			return fmt.Errorf("it is damaged: its SHA-256 is %s, not %s", is, c.record.SHA256)
		}
		return io.EOF
	}
	m, err := c.objects.last(c.ctx, c.objects.shelf.data(c.record.Upload)+strconv.Itoa(c.next))
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return fmt.Errorf("part %d of %d is gone: it was replaced or deleted meanwhile, or is damaged", c.next+1, c.record.Parts)
	case err != nil:
		return err
	}
	c.hash.Write(m.Data)
	c.rest, c.next, c.size = m.Data, c.next+1, c.size+int64(len(m.Data))
	return nil
}

func (c *content) Close() error {
	if c.err == nil {
		c.err = errors.New("read after close")
	}
	c.rest = nil
	return nil
}
