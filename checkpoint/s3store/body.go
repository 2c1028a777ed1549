package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/isobar-io/isobar/checkpoint"
)

// lent is a body that is lent to one request. After it was taken back nobody reads it.
type lent struct {
	watch *watch

	mu   sync.Mutex
	body io.ReadSeeker // nil when it was taken back
}

var errTakenBack = errors.New("the request has ended")

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		return 0, errTakenBack
	}
	l.watch.alive()
	return l.body.Read(p)
}

func (l *lent) Seek(offset int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		return 0, errTakenBack
	}
	return l.body.Seek(offset, whence)
}

func (l *lent) takeBack() {
	l.mu.Lock()
	l.body = nil
	l.mu.Unlock()
}

// Open implements checkpoint.Store.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, 0, fmt.Errorf("open object: %w", err)
	}
	r, err := s.openKey(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("open object %s in %s: %w", name, s, err)
	}
	return r, r.size, nil
}

func (s *Store) openKey(ctx context.Context, key string) (*reader, error) {
	r := &reader{store: s, ctx: ctx, key: key}
	if err := s.again(ctx, r.connect); err != nil {
		return nil, err
	}
	return r, nil
}

// ReadAt implements checkpoint.RangeReader.
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	key, err := s.key(name)
	if err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	if len(p) == 0 {
		return nil
	}
	err = s.again(ctx, func() error {
		r := &reader{store: s, ctx: ctx, key: key, at: off, size: off + int64(len(p))}
		if err := r.connect(); err != nil {
			return err
		}
		defer r.Close()
		_, err := io.ReadFull(r, p)
		return err
	})
	if err != nil {
		return fmt.Errorf("read %d bytes of object %s in %s from byte %d: %w", len(p), name, s, off, err)
	}
	return nil
}

// missing makes sure that an object is not there. Something between here and the server
// that has lost its way, and answers "not found", must not look like an empty place.
func (s *Store) missing(ctx context.Context, key string) error {
	page, _, err := s.listPage(ctx, key, "", 1)
	switch {
	case err != nil:
		return fmt.Errorf("it was not found, and to list it: %w", err)
	case len(page) > 0 && page[0].Key == key:
		return errors.New("the server lists it, and does not find it")
	}
	return checkpoint.ErrNotFound
}

// errReplaced: what was read so far is of another object.
var errReplaced = errors.New("it was replaced while it was read")

// little is what a connection brings that is no better than none: 64 KB.
const little = 64 << 10

// reader reads an object, or a part of it, and goes on where a connection broke.
type reader struct {
	store *Store
	ctx   context.Context
	key   string

	body   io.ReadCloser
	watch  *watch
	etag   string // empty until the first reply
	sum    string // of the whole object as the server has it, if it tells: see encodeSum
	at     int64
	size   int64 // where to stop; 0: at the end, which the first reply tells
	from   int64 // where this connection began
	broken int   // connections in a row that brought little
}

// connect asks for the object from where the reader is.
func (r *reader) connect() error {
	w := newWatch(r.ctx, r.store.patience)
	err := r.request(w)
	if err == nil {
		r.watch = w
		w.pause()
		return nil
	}
	err = w.end(err)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return r.store.missing(r.ctx, r.key)
	case refused(err):
		return fmt.Errorf("%w: %w", errReplaced, errFinal)
	}
	return err
}

func (r *reader) request(w *watch) error {
	var o minio.GetObjectOptions
	part := r.at > 0 || r.size > 0
	if part {
		if err := o.SetRange(r.at, max(r.size-1, 0)); err != nil {
			return err
		}
	} else {
		o.Set("x-amz-checksum-mode", "ENABLED")
	}
	if r.etag != "" {
		if err := o.SetMatchETag(r.etag); err != nil {
			return err
		}
	}
	body, info, header, err := minio.Core{Client: r.store.client}.GetObject(w.ctx, r.store.bucket, r.key, o)
	if err != nil {
		return err
	}
	if part && !strings.HasPrefix(header.Get("Content-Range"), fmt.Sprintf("bytes %d-", r.at)) {
		return errors.Join(errors.New("the server does not send the part that was asked for"), body.Close())
	}
	if !part && info.Size < 0 { // or it would look empty
		return errors.Join(errors.New("the server does not tell how long the object is"), body.Close())
	}
	if !part {
		r.size, r.sum = info.Size, info.ChecksumCRC32C
	}
	r.body, r.etag, r.from = body, info.ETag, r.at
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for r.at < r.size {
		if r.body == nil {
			if err := r.store.again(r.ctx, r.connect); err != nil {
				return 0, r.fail(err)
			}
		}
		r.watch.alive()
		n, err := r.body.Read(p[:min(int64(len(p)), r.size-r.at)])
		r.watch.pause()
		r.at += int64(n)
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		err = r.disconnect(err)
		if r.at-r.from >= little {
			r.broken = 0
		}
		if r.broken++; r.broken == attempts || r.ctx.Err() != nil {
			return 0, r.fail(err)
		}
	}
	return 0, io.EOF
}

func (r *reader) fail(err error) error {
	return fmt.Errorf("read %s from byte %d: %w", r.key, r.at, err)
}

func (r *reader) disconnect(err error) error {
	if r.body == nil {
		return err
	}
	_ = r.body.Close() // what it has to say has been said by Read
	r.body = nil
	return r.watch.end(err)
}

// Close implements io.Closer.
func (r *reader) Close() error { return r.disconnect(nil) }

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
