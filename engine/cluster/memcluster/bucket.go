package memcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
)

// bucket is guarded by the server's mutex.
type bucket struct {
	entries  map[string]cluster.Entry
	revision uint64
}

// sorted returns the entries in the order in which they were written.
func (b *bucket) sorted() []cluster.Entry {
	return slices.SortedFunc(maps.Values(b.entries), func(x, y cluster.Entry) int {
		return cmp.Compare(x.Revision, y.Revision)
	})
}

// handle is a client's bucket: a name, as a bucket may be deleted and made again.
type handle struct {
	store *Store
	name  string
}

func (h *handle) attempt(verb, key string) string {
	return fmt.Sprintf("%s %q in bucket %q", verb, key, h.name)
}

var errNoKey = errors.New("a key has a name")

// valueBytesMax is how large a value may be, as on NATS.
const valueBytesMax = 1 << 20

// change does f on the bucket, and tells watches of the entry that it returns.
func (h *handle) change(ctx context.Context, verb, key string, f func(b *bucket, now cluster.Entry, exists bool) (cluster.Entry, error)) (uint64, error) {
	var revision uint64
	err := h.store.write(ctx, h.attempt(verb, key), func() error {
		b := h.store.server.buckets[h.name]
		if b == nil {
			return fmt.Errorf("bucket: %w", cluster.ErrNotFound)
		}
		if key == "" {
			return errNoKey
		}
		now, exists := b.entries[key]
		e, err := f(b, now, exists)
		if err == nil && len(e.Value) > valueBytesMax {
			err = fmt.Errorf("the value has %d bytes, more than the %d that a value may have", len(e.Value), valueBytesMax)
		}
		if err != nil {
			return err
		}
		b.revision++
		e.Key, e.Revision, revision = key, b.revision, b.revision
		if e.Value == nil {
			delete(b.entries, key)
		} else {
			b.entries[key] = e
		}
		if e.Value != nil || exists {
			h.store.server.announce(h.name, e)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

// entry holds a copy of value, which is never nil.
func entry(value []byte) cluster.Entry {
	return cluster.Entry{Value: append([]byte{}, value...)}
}

func (h *handle) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return h.change(ctx, "create", key, func(_ *bucket, _ cluster.Entry, exists bool) (cluster.Entry, error) {
		if exists {
			return cluster.Entry{}, cluster.ErrExists
		}
		return entry(value), nil
	})
}

func (h *handle) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return h.change(ctx, "update", key, func(_ *bucket, now cluster.Entry, exists bool) (cluster.Entry, error) {
		if !exists || now.Revision != revision {
			return cluster.Entry{}, cluster.ErrMoved
		}
		return entry(value), nil
	})
}

func (h *handle) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return h.change(ctx, "put", key, func(*bucket, cluster.Entry, bool) (cluster.Entry, error) {
		return entry(value), nil
	})
}

func (h *handle) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := h.change(ctx, "delete", key, func(_ *bucket, now cluster.Entry, exists bool) (cluster.Entry, error) {
		if revision != 0 && (!exists || now.Revision != revision) {
			return cluster.Entry{}, cluster.ErrMoved
		}
		return cluster.Entry{}, nil
	})
	return err
}

func (h *handle) Get(ctx context.Context, key string) (cluster.Entry, error) {
	var e cluster.Entry
	err := h.store.read(ctx, h.attempt("get", key), func() error {
		b := h.store.server.buckets[h.name]
		if b == nil {
			return fmt.Errorf("bucket: %w", cluster.ErrNotFound)
		}
		found, ok := b.entries[key]
		if !ok {
			return cluster.ErrNotFound
		}
		e = clone(found)
		return nil
	})
	return e, err
}

// List returns the entries in the order of their keys.
func (h *handle) List(ctx context.Context) ([]cluster.Entry, error) {
	var list []cluster.Entry
	err := h.store.read(ctx, fmt.Sprintf("list bucket %q", h.name), func() error {
		b := h.store.server.buckets[h.name]
		if b == nil {
			return cluster.ErrNotFound
		}
		for _, key := range slices.Sorted(maps.Keys(b.entries)) {
			list = append(list, clone(b.entries[key]))
		}
		return nil
	})
	return list, err
}

func clone(e cluster.Entry) cluster.Entry {
	e.Value = bytes.Clone(e.Value)
	return e
}

func (h *handle) Watch(ctx context.Context, prefix string) (<-chan cluster.Entry, error) {
	w := &watch{
		store:  h.store,
		bucket: h.name,
		prefix: prefix,
		known:  map[string]bool{},
		bell:   make(chan struct{}, 1),
	}
	err := h.store.read(ctx, fmt.Sprintf("watch %q of bucket %q", prefix, h.name), func() error {
		if h.store.server.buckets[h.name] == nil {
			return cluster.ErrNotFound
		}
		h.store.watches[w] = true
		w.resync()
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make(chan cluster.Entry)
	go w.run(ctx, out)
	return out, nil
}

// watch sends the changes of a bucket. Its goroutine ends with the watch's context. What
// has no comment of its own is guarded by the server's mutex.
type watch struct {
	store          *Store        // constant
	bucket, prefix string        // constant
	bell           chan struct{} // rings when something is queued
	queue          []cluster.Entry
	known          map[string]bool // keys that exist for all that was sent
}

// announce tells all watches that reach the server of a change.
func (s *Server) announce(bucket string, e cluster.Entry) {
	for c := range s.stores {
		if !c.isConnected {
			continue
		}
		for w := range c.watches {
			if w.bucket == bucket {
				w.add(e)
			}
		}
	}
}

// add queues a change, in the place of an older one of the same key that is not sent yet.
// What is queued before an entry without a key stays: it is part of what there was.
func (w *watch) add(e cluster.Entry) {
	if !strings.HasPrefix(e.Key, w.prefix) {
		return
	}
	for i := len(w.queue) - 1; i >= 0 && w.queue[i].Key != ""; i-- {
		if w.queue[i].Key == e.Key {
			w.queue = slices.Delete(w.queue, i, i+1)
			break
		}
	}
	w.queue = append(w.queue, e)
	ring(w.bell)
}

// resync queues all that there is, and that what else was sent is gone.
func (w *watch) resync() {
	w.queue = nil
	b := w.store.server.buckets[w.bucket]
	if b == nil {
		b = &bucket{}
	}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if _, there := b.entries[key]; !there {
			w.queue = append(w.queue, cluster.Entry{Key: key, Revision: b.revision})
		}
	}
	for _, e := range b.sorted() {
		if strings.HasPrefix(e.Key, w.prefix) {
			w.queue = append(w.queue, e)
		}
	}
	w.queue = append(w.queue, cluster.Entry{})
	ring(w.bell)
}

// next takes the next entry to send.
func (w *watch) next() (cluster.Entry, bool) {
	w.store.server.mu.Lock()
	defer w.store.server.mu.Unlock()
	if len(w.queue) == 0 {
		return cluster.Entry{}, false
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	switch {
	case e.Key == "":
	case e.Value == nil:
		delete(w.known, e.Key)
	default:
		w.known[e.Key] = true
	}
	return clone(e), true
}

func (w *watch) run(ctx context.Context, out chan<- cluster.Entry) {
	defer close(out)
	defer func() {
		w.store.server.mu.Lock()
		defer w.store.server.mu.Unlock()
		delete(w.store.watches, w)
	}()
	for {
		e, ok := w.next()
		if !ok {
			select {
			case <-w.bell:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- e:
		case <-ctx.Done():
			return
		}
	}
}
