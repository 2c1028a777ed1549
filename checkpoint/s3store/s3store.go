// Package s3store keeps a topology's checkpoints in a bucket of an S3 server.
//
// An object is one PUT under its own name that must not exist yet (If-None-Match: *),
// and that names its checksum, so it appears whole or not at all and never replaces
// another. The head is the object "head"; it is replaced only if it still has the entity
// tag that was read (If-Match). Multipart uploads are not used: servers drop these
// conditions there.
package s3store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

const (
	headName = "head"
	// objectMax is the size of the largest single PUT.
	objectMax = 5 << 30
)

func reserved(name string) bool { return name == headName || name == probeName }

// Store is a prefix in a bucket that holds the checkpoints of one topology. It
// implements checkpoint.Store. Any number of Stores may share one.
type Store struct {
	client   *minio.Client
	bucket   string
	prefix   string // of all keys; ends with a slash if it is not empty
	patience time.Duration
	hook     func(step string)
}

var (
	_ checkpoint.Store       = (*Store)(nil)
	_ checkpoint.RangeReader = (*Store)(nil)
)

// Option changes how a Store is made.
type Option func(*Store)

// WithHook has hook called, on the goroutine of the caller, before and after each step
// that changes the store, the latter if it succeeded; the steps are those of the
// directory store.
func WithHook(hook func(step string)) Option { return func(s *Store) { s.hook = hook } }

// String returns the URL, for messages.
func (s *Store) String() string { return "s3://" + strings.TrimSuffix(s.bucket+"/"+s.prefix, "/") }

// Close does nothing: a Store holds nothing between calls.
func (s *Store) Close() error { return nil }

func (s *Store) key(name string) (string, error) {
	if err := checkpoint.ValidName(name); err != nil {
		return "", err
	}
	if reserved(name) {
		return "", fmt.Errorf("object name %q is reserved", name)
	}
	return s.prefix + name, nil
}

// Put implements checkpoint.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	key, err := s.key(name)
	if err != nil {
		return fmt.Errorf("put object: %w", err)
	}
	step := checkpoint.PutStep(name)
	s.hook(step + ".before")
	if err := s.put(ctx, key, body, size, crc); err != nil {
		return fmt.Errorf("put object %s: %w", name, err)
	}
	s.hook(step + ".after")
	return nil
}

func (s *Store) put(ctx context.Context, key string, body io.ReadSeeker, size int64, crc uint32) error {
	if size > objectMax {
		return txn.Fatal(fmt.Errorf("it has %d bytes, and an S3 object can have %d: change less in a batch", size, int64(objectMax)))
	}
	// The server would refuse it too, but could not say that it is no use to try again.
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := checkpoint.CopyVerified(io.Discard, contextReader{ctx, body}, size, crc); err != nil {
		return err
	}
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	return s.again(ctx, func() error {
		w := newWatch(ctx, s.patience)
		info, err := s.putOnce(w, key, body, size, crc, o)
		err = w.end(err)
		switch {
		case refused(err), err == nil && info.ChecksumCRC32C != encodeSum(crc):
			return s.sameContent(ctx, key, size, crc)
		case errors.Is(err, checkpoint.ErrNotFound): // the answer of something in between
			return errors.New("the server says that there is no such place")
		}
		return err
	})
}

// putOnce makes one PUT of size bytes, which the server refuses if their checksum is
// another.
func (s *Store) putOnce(w *watch, key string, body io.ReadSeeker, size int64, crc uint32, o minio.PutObjectOptions) (minio.UploadInfo, error) {
	o.UserMetadata = map[string]string{"x-amz-checksum-crc32c": encodeSum(crc)}
	o.DisableMultipart = true // conditions are dropped there
	o.DisableContentSha256 = true
	// The network may go on reading for a while after the request has failed.
	lent := &lent{body: body, watch: w}
	defer lent.takeBack()
	return s.client.PutObject(w.ctx, s.bucket, key, lent, size, o)
}

// encodeSum returns a checksum as S3 writes it.
func encodeSum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// sameContent succeeds if the server has the object that is to be put: an earlier attempt
// whose reply was lost may have stored it. A reply that does not tell the checksum of what
// was stored may be of something in between, which has stored nothing.
func (s *Store) sameContent(ctx context.Context, key string, size int64, crc uint32) error {
	r, err := s.openKey(ctx, key)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return errors.New("the server said that it has the object, and does not find it")
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if r.sum != "" {
		if r.size != size || r.sum != encodeSum(crc) {
			return checkpoint.ErrExists
		}
		return nil
	}
	err = checkpoint.CopyVerified(io.Discard, r, size, crc)
	if errors.Is(err, checkpoint.ErrDamaged) {
		return checkpoint.ErrExists
	}
	return err
}

// List implements checkpoint.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.ObjectInfo, error] {
	return func(yield func(checkpoint.ObjectInfo, error) bool) {
		after := ""
		for {
			page, more, err := s.listPage(ctx, s.prefix+prefix, after, pageKeys)
			if err != nil {
				yield(checkpoint.ObjectInfo{}, fmt.Errorf("list objects %q: %w", prefix, err))
				return
			}
			for _, o := range page {
				after = o.Key
				name := strings.TrimPrefix(o.Key, s.prefix)
				if reserved(name) || checkpoint.ValidName(name) != nil {
					continue
				}
				if !yield(checkpoint.ObjectInfo{Name: name, Size: o.Size, UnixMilli: o.LastModified.UnixMilli()}, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// pageKeys is how many objects are listed at once.
const pageKeys = 1000

// listPage lists at most so many objects after one, and tells whether there may be more.
func (s *Store) listPage(ctx context.Context, prefix, after string, keys int) (page []minio.ObjectInfo, more bool, err error) {
	o := minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: keys}
	err = s.try(ctx, func(w *watch) error {
		page = nil
		for o := range s.client.ListObjectsIter(w.ctx, s.bucket, o) {
			if o.Err != nil {
				return o.Err
			}
			if page = append(page, o); len(page) == keys {
				break
			}
		}
		return w.ctx.Err()
	})
	return page, len(page) == keys, err
}

// Delete implements checkpoint.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	s.hook("delete.before")
	err = s.try(ctx, func(w *watch) error {
		return s.client.RemoveObject(w.ctx, s.bucket, key, minio.RemoveObjectOptions{})
	})
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return fmt.Errorf("delete object %s: %w", name, err)
	}
	s.hook("delete.after")
	return nil
}

// ReadHead implements checkpoint.Store.
func (s *Store) ReadHead(ctx context.Context) (data []byte, v checkpoint.Version, err error) {
	err = s.again(ctx, func() error {
		r, err := s.openKey(ctx, s.prefix+headName)
		if err != nil {
			return err
		}
		defer r.Close()
		data, err = io.ReadAll(r)
		if errors.Is(err, errReplaced) {
			return errReplaced // from the beginning, then
		}
		if err == nil && r.sum != "" && r.sum != encodeSum(checkpoint.CRC(data)) {
			err = errors.New("it was altered on the way")
		}
		v = checkpoint.Version(r.etag)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the head in %s: %w", s, err)
	}
	return data, v, nil
}

// SwapHead implements checkpoint.Store. It makes one attempt: whether one without a
// reply has succeeded can only be told by reading the head.
func (s *Store) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	var o minio.PutObjectOptions
	if old == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(string(old))
	}
	s.hook("head.before")
	w := newWatch(ctx, s.patience)
	info, err := s.putOnce(w, s.prefix+headName, bytes.NewReader(data), int64(len(data)), checkpoint.CRC(data), o)
	err = w.end(err)
	if err == nil && info.ETag == "" {
		err = errors.New("the server did not tell the entity tag")
	}
	switch {
	case refused(err), errors.Is(err, checkpoint.ErrNotFound):
		return "", fmt.Errorf("swap the head: %w", checkpoint.ErrHeadMoved)
	case err != nil:
		return "", fmt.Errorf("swap the head: %w", err)
	}
	s.hook("head.after")
	return checkpoint.Version(info.ETag), nil
}
