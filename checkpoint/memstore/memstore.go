// Package memstore keeps checkpoints and keyed state in memory: for tests, and for
// runs that need not survive their process.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// Store holds objects and the head in memory. It implements checkpoint.Store; what
// it holds lives as long as it does, also after Close.
type Store struct {
	mu      sync.Mutex
	objects map[string]object
	head    []byte
	swaps   int // versions of the head so far
}

type object struct {
	data    []byte
	written time.Time
}

var _ checkpoint.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store { return &Store{objects: map[string]object{}} }

// Put implements checkpoint.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if err := cmp.Or(ctx.Err(), checkpoint.ValidName(name)); err != nil {
		return fmt.Errorf("put object %s: %w", name, err)
	}
	var buf bytes.Buffer
	_, err := body.Seek(0, io.SeekStart)
	if err == nil {
		err = checkpoint.CopyVerified(&buf, body, size, crc)
	}
	if err != nil {
		return fmt.Errorf("put object %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		if !bytes.Equal(o.data, buf.Bytes()) {
			return fmt.Errorf("put object %s: %w", name, checkpoint.ErrExists)
		}
		return nil
	}
	s.objects[name] = object{buf.Bytes(), time.Now()}
	return nil
}

// Open implements checkpoint.Store.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if !ok {
		return nil, 0, fmt.Errorf("open object %s: %w", name, checkpoint.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(o.data)), int64(len(o.data)), nil
}

// List implements checkpoint.Store. It yields what the store holds when the
// iteration begins.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.ObjectInfo, error] {
	return func(yield func(checkpoint.ObjectInfo, error) bool) {
		s.mu.Lock()
		objects := maps.Clone(s.objects)
		s.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if err := ctx.Err(); err != nil {
				yield(checkpoint.ObjectInfo{}, err)
				return
			}
			o := objects[name]
			info := checkpoint.ObjectInfo{Name: name, Size: int64(len(o.data)), UnixMilli: o.written.UnixMilli()}
			if strings.HasPrefix(name, prefix) && !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements checkpoint.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := cmp.Or(ctx.Err(), checkpoint.ValidName(name)); err != nil {
		return fmt.Errorf("delete object %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return nil
}

// ReadHead implements checkpoint.Store.
func (s *Store) ReadHead(ctx context.Context) ([]byte, checkpoint.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if s.swaps == 0 {
		return nil, "", fmt.Errorf("read head: %w", checkpoint.ErrNotFound)
	}
	return bytes.Clone(s.head), s.version(), nil
}

// SwapHead implements checkpoint.Store.
func (s *Store) SwapHead(ctx context.Context, old checkpoint.Version, data []byte) (checkpoint.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.version() != old {
		return "", fmt.Errorf("swap head: %w", checkpoint.ErrHeadMoved)
	}
	s.head = bytes.Clone(data)
	s.swaps++
	return s.version(), nil
}

func (s *Store) version() checkpoint.Version {
	if s.swaps == 0 {
		return ""
	}
	return checkpoint.Version(strconv.Itoa(s.swaps))
}

// Close implements checkpoint.Store.
func (s *Store) Close() error { return nil }
