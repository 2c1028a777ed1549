package main

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// keeper is a way to keep a number for each key. One goroutine uses it.
type keeper interface {
	// update increases the numbers of some keys by one.
	update(keys []hashedWord) error
	// barrier ends a batch, and between goes on with what that involves when some more
	// keys were updated. They return how long they have held the caller up.
	barrier() (time.Duration, error)
	between() (time.Duration, error)
	// settle waits until every batch that has ended is durable.
	settle() error
	close() error
}

// blockBytes is the size of Pebble's block cache under a state: its default.
const blockBytes = 64 << 20

func newKeeper(name string, cacheBytes int64) (keeper, error) {
	switch name {
	case "map":
		return &mapKeeper{numbers: map[string]int64{}}, nil
	case "pebble":
		return openPebbleKeeper(cacheBytes + blockBytes)
	case "aggregate":
		return openStateKeeper(cacheBytes, func(s *txn.State) func() error {
			a := txn.NewAggregate(s, "number", txn.Sum())
			return func() error { return a.Add(1) }
		})
	}
	return openStateKeeper(cacheBytes, func(s *txn.State) func() error {
		v := txn.NewValue(s, "number", txn.Int64Codec())
		return func() error {
			n, _, err := v.Get()
			if err != nil {
				return err
			}
			return v.Set(n + 1)
		}
	})
}

// unbatched is of keepers that know no barriers.
type unbatched struct{}

func (unbatched) barrier() (time.Duration, error) { return 0, nil }
func (unbatched) between() (time.Duration, error) { return 0, nil }
func (unbatched) settle() error                   { return nil }

// mapKeeper keeps numbers in memory and nowhere else.
type mapKeeper struct {
	unbatched
	numbers map[string]int64
}

func (k *mapKeeper) update(keys []hashedWord) error {
	for _, key := range keys {
		k.numbers[key.text]++
	}
	return nil
}

func (k *mapKeeper) close() error { return nil }

// pebbleKeeper reads and writes every number.
type pebbleKeeper struct {
	unbatched
	dir    string
	db     *pebble.DB
	blocks *pebble.Cache
}

// openPebbleKeeper opens a Pebble as a state's is, with a cache as large as all that a
// state keeps in memory.
func openPebbleKeeper(cacheBytes int64) (*pebbleKeeper, error) {
	dir, err := os.MkdirTemp("", "isobar-bench-")
	if err != nil {
		return nil, err
	}
	k := &pebbleKeeper{dir: dir, blocks: pebble.NewCache(cacheBytes)}
	options := &pebble.Options{
		Cache:              k.blocks,
		DisableWAL:         true,
		FormatMajorVersion: pebble.FormatValueSeparation,
		MemTableSize:       4 << 20,
		Logger:             silent{},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if k.db, err = pebble.Open(dir, options); err != nil {
		k.blocks.Unref()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return k, nil
}

// silent drops what Pebble has to say about its work.
type silent struct{}

func (silent) Infof(string, ...any)         {}
func (silent) Errorf(string, ...any)        {}
func (silent) Fatalf(text string, _ ...any) { panic("pebble: " + text) }

func (k *pebbleKeeper) update(keys []hashedWord) error {
	var text [keyBytes]byte
	var number [8]byte
	for _, key := range keys {
		copy(text[:], key.text)
		old, closer, err := k.db.Get(text[:])
		n := uint64(0)
		if err == nil {
			n = binary.BigEndian.Uint64(old)
			err = closer.Close()
		} else if errors.Is(err, pebble.ErrNotFound) {
			err = nil
		}
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(number[:], n+1)
		if err := k.db.Set(text[:], number[:], pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

func (k *pebbleKeeper) close() error {
	err := k.db.Close()
	k.blocks.Unref()
	return errors.Join(err, os.RemoveAll(k.dir))
}

// stateKeeper is the state of a keyed task: the caller is its goroutine, and another
// applies what was cut, as a committer does.
type stateKeeper struct {
	dir    string
	opener *pebblestate.Opener
	store  checkpoint.StateStore
	state  *txn.State
	add    func() error // increases the number of the current key

	batch    txn.BatchID
	marked   chan *txn.Marked // batches to be applied
	applied  atomic.Uint64    // the newest that is
	applying sync.WaitGroup   // batches
	failed   chan error       // why no more is applied
	ended    chan struct{}    // the applying goroutine has
}

// pendingBatches is how many batches may be cut and not applied.
const pendingBatches = 2

func openStateKeeper(cacheBytes int64, register func(*txn.State) func() error) (*stateKeeper, error) {
	dir, err := os.MkdirTemp("", "isobar-bench-")
	if err != nil {
		return nil, err
	}
	objects, err := filestore.Open(filepath.Join(dir, "checkpoints"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	k := &stateKeeper{
		dir:    dir,
		opener: pebblestate.New(pebblestate.Options{Dir: filepath.Join(dir, "local"), Store: objects, CacheBytes: blockBytes}),
		marked: make(chan *txn.Marked, pendingBatches-1),
		failed: make(chan error, 1),
		ended:  make(chan struct{}),
	}
	const groups = 256
	k.store, err = k.opener.OpenState(context.Background(), checkpoint.StateConfig{
		Component: "bench", Generation: 1, GroupTo: groups,
		States: func() []txn.StateMeta { return k.state.Metas() },
	})
	if err != nil {
		return nil, errors.Join(err, k.opener.Close(), os.RemoveAll(dir))
	}
	k.state = txn.NewState(txn.StateConfig{Component: "bench", Groups: groups, To: groups, Backend: k.store, CacheBytes: cacheBytes})
	k.add = register(k.state)
	go k.apply(objects)
	if err := k.state.Seal(); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (k *stateKeeper) update(keys []hashedWord) error {
	for _, key := range keys {
		if err := k.state.SelectCarried(tuple.String(key.text), key.hash); err != nil {
			return err
		}
		if err := k.add(); err != nil {
			return err
		}
	}
	return nil
}

// barrier copies what is left of the batch before, which is nothing if between has
// been called for as many keys as that has changed, and marks the next. Here is all
// that the bench knows of how a barrier holds a task up, with between.
func (k *stateKeeper) barrier() (held time.Duration, err error) {
	for k.state.Copying() {
		more, err := k.between()
		if held += more; err != nil {
			return held, err
		}
	}
	began := time.Now()
	k.batch++
	k.state.Mark(k.batch)
	k.state.Settle(txn.BatchID(k.applied.Load()))
	return held + time.Since(began), nil
}

// between copies no more than may have changed since it was last called.
func (k *stateKeeper) between() (held time.Duration, err error) {
	if !k.state.Copying() {
		return 0, nil
	}
	began := time.Now()
	m, err := k.state.Copy(frameKeys)
	held = time.Since(began)
	if err == nil && m != nil {
		err = k.hand(m)
	}
	return held, err
}

// hand gives a batch to be applied. It waits if too many are not yet, as spouts would.
func (k *stateKeeper) hand(m *txn.Marked) error {
	k.applying.Add(1)
	select {
	case k.marked <- m:
		return nil
	case err := <-k.failed:
		k.applying.Done()
		k.failed <- err
		return err
	}
}

func (k *stateKeeper) settle() error {
	for k.state.Copying() {
		if _, err := k.between(); err != nil {
			return err
		}
	}
	k.applying.Wait()
	select {
	case err := <-k.failed:
		k.failed <- err
		return err
	default:
		return nil
	}
}

// apply makes batches durable, and deletes the objects that hold nothing any more.
func (k *stateKeeper) apply(objects checkpoint.Store) {
	defer close(k.ended)
	ctx := context.Background()
	var err error
	var chain []checkpoint.FileRef
	for m := range k.marked {
		if err == nil {
			if chain, err = k.applyOne(ctx, objects, m.Cut(), chain); err != nil {
				k.failed <- err
			}
		}
		k.applying.Done()
	}
}

func (k *stateKeeper) applyOne(ctx context.Context, objects checkpoint.Store, cut *txn.Cut, old []checkpoint.FileRef) ([]checkpoint.FileRef, error) {
	chain, err := k.store.Apply(ctx, cut)
	if err != nil {
		return nil, err
	}
	k.applied.Store(uint64(cut.Batch))
	k.store.Release(cut.Batch)
	used := map[string]bool{}
	for _, f := range chain {
		used[f.Name] = true
	}
	for _, f := range old {
		if !used[f.Name] {
			err = errors.Join(err, objects.Delete(ctx, f.Name))
		}
	}
	return chain, err
}

func (k *stateKeeper) close() error {
	close(k.marked)
	<-k.ended
	return errors.Join(k.store.Close(), k.opener.Close(), os.RemoveAll(k.dir))
}
