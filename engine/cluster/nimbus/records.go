package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// record is a value with the revision that it has in the store.
type record[T any] struct {
	value    T
	revision uint64
	doubted  bool // a write was refused since: the store has another one
}

// records are the values in a bucket, as the leader has last read or written them. Its
// goroutine owns them.
type records[T any] struct {
	bucket  cluster.Bucket
	fence   fence
	kept    map[string]record[T]
	others  []string          // keys that hold something else
	damaged map[string]damage // keys whose values cannot be read; they are left alone
}

// damage is why a value cannot be read, and its revision.
type damage struct {
	error
	revision uint64
}

// fence guards writes. It returns a context that ends with the lease, or an error if that is
// over.
type fence func(ctx context.Context) (context.Context, context.CancelFunc, error)

// errMoved: a record was written by somebody else. The leader looks whether it still is one,
// and reads everything again.
var errMoved = errors.New("another nimbus has written this record")

func openRecords[T any](ctx context.Context, store cluster.Store, name string, f fence, others ...string) (*records[T], error) {
	b, err := store.Bucket(ctx, name, true)
	if err != nil {
		return nil, err
	}
	r := &records[T]{bucket: b, fence: f, others: others}
	return r, r.load(ctx)
}

// load reads all of the bucket. A list may come from a server that is behind: what is known
// to be newer stays, so that a command that was acknowledged is not forgotten, unless a write
// was refused: the store may have been put back to an older copy.
func (r *records[T]) load(ctx context.Context) error {
	entries, err := r.bucket.List(ctx)
	if err != nil {
		return err
	}
	known := r.kept
	r.kept, r.damaged = map[string]record[T]{}, map[string]damage{}
	for _, e := range entries {
		if old, ok := known[e.Key]; ok && old.revision > e.Revision && !old.doubted {
			r.kept[e.Key] = old
		} else {
			r.see(e)
		}
	}
	return nil
}

// more takes in what is new in the bucket, such as what an earlier leader has made late.
func (r *records[T]) more(ctx context.Context) error {
	entries, err := r.bucket.List(ctx)
	if err != nil {
		return err
	}
	r.damaged = map[string]damage{}
	for _, e := range entries {
		r.see(e)
	}
	return nil
}

// see takes in what the store says of a key. It returns false if that was known.
func (r *records[T]) see(e cluster.Entry) (changed bool) {
	if slices.Contains(r.others, e.Key) {
		return false
	}
	old, was := r.kept[e.Key]
	if was && old.revision >= e.Revision { // a watch may be behind what was written here
		return false
	}
	if e.Value == nil {
		delete(r.kept, e.Key)
		delete(r.damaged, e.Key)
		return was
	}
	var v T
	if err := json.Unmarshal(e.Value, &v); err != nil {
		delete(r.kept, e.Key)
		r.damaged[e.Key] = damage{fmt.Errorf("the record %q cannot be read: %w", e.Key, err), e.Revision}
		return true
	}
	delete(r.damaged, e.Key)
	r.kept[e.Key] = record[T]{value: v, revision: e.Revision}
	return true
}

// claim writes every record as it is, so that whatever an earlier leader still has under way
// is refused.
func (r *records[T]) claim(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(r.kept)) {
		if err := r.set(ctx, key, r.kept[key].value); err != nil {
			return err
		}
	}
	return nil
}

func (r *records[T]) get(key string) (T, bool) {
	e, ok := r.kept[key]
	return e.value, ok
}

// all yields the records in the order of their keys.
func (r *records[T]) all() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, key := range slices.Sorted(maps.Keys(r.kept)) {
			if !yield(key, r.kept[key].value) {
				return
			}
		}
	}
}

// create keeps a value under a key that must be free: cluster.ErrExists.
func (r *records[T]) create(ctx context.Context, key string, value T) error {
	return r.write(ctx, key, &value, func(ctx context.Context, text []byte) (uint64, error) {
		return r.bucket.Create(ctx, key, text)
	})
}

// set replaces what was last seen under a key: errMoved if it has changed since.
func (r *records[T]) set(ctx context.Context, key string, value T) error {
	old, ok := r.kept[key]
	if !ok {
		return r.create(ctx, key, value)
	}
	return r.write(ctx, key, &value, func(ctx context.Context, text []byte) (uint64, error) {
		return r.bucket.Update(ctx, key, text, old.revision)
	})
}

// mend replaces a value that cannot be read.
func (r *records[T]) mend(ctx context.Context, key string, value T) error {
	err := r.write(ctx, key, &value, func(ctx context.Context, text []byte) (uint64, error) {
		return r.bucket.Update(ctx, key, text, r.damaged[key].revision)
	})
	if err == nil {
		delete(r.damaged, key)
	}
	return err
}

func (r *records[T]) write(ctx context.Context, key string, value *T, do func(context.Context, []byte) (uint64, error)) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("writing the record %q: %w", key, err)
	}
	ctx, done, err := r.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	revision, err := do(ctx, text)
	if err != nil {
		return r.moved(key, err)
	}
	r.kept[key] = record[T]{value: *value, revision: revision}
	return nil
}

// remove deletes a key that was seen.
func (r *records[T]) remove(ctx context.Context, key string) error {
	old, ok := r.kept[key]
	if !ok {
		return nil
	}
	ctx, done, err := r.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := r.bucket.Delete(ctx, key, old.revision); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return r.moved(key, err)
	}
	delete(r.kept, key)
	return nil
}

// moved looks at why a key could not be written.
func (r *records[T]) moved(key string, err error) error {
	if !errors.Is(err, cluster.ErrMoved) {
		return err
	}
	if e, ok := r.kept[key]; ok {
		e.doubted = true
		r.kept[key] = e
	}
	return fmt.Errorf("%w: %w", errMoved, err)
}
