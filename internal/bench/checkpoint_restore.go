package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/tuple"
)

// restore measures how long a run takes from its start to the first tuple that its
// state has taken, against a download of the same files, and the look-up of a key.
func (b *checkpointBench) restore(ctx context.Context, p place) (x sample, err error) {
	dir, err := os.MkdirTemp(b.dir, "restore-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := p.open(ctx, restoreFolder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m, err := currentManifest(ctx, store)
	if err != nil {
		return nil, err
	}
	got, err := b.get(ctx, store)
	if err != nil {
		return nil, err
	}
	downloaded, err := download(ctx, store, filesOf(m), filepath.Join(dir, "download"))
	if err != nil {
		return nil, err
	}
	restored, err := b.firstTuple(ctx, p, filepath.Join(dir, "local"))
	if err != nil {
		return nil, err
	}
	return sample{milliseconds(restored), restored.Seconds() / downloaded.Seconds(), milliseconds(got)}, nil
}

// firstTuple returns how long a run takes until its state has taken a tuple.
func (b *checkpointBench) firstTuple(ctx context.Context, p place, local string) (took time.Duration, err error) {
	runtime.GC()
	l := b.load(0)
	began := time.Now()
	store, err := p.open(ctx, restoreFolder)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r := &changeRun{store: store, local: local, interval: b.o.interval, ledger: newLedger(nil), load: l}
	err = r.during(ctx, func(ctx context.Context) error {
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
		for sum(l.ages.words) == 0 {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		took = time.Since(began)
		return nil
	})
	return took, err
}

// downloads is how many files are downloaded at once: as many as tasks fetch together.
const downloads = 4 * holdTasks

// download copies files of a store into a folder, and verifies them on the way.
func download(ctx context.Context, store checkpoint.Store, files []checkpoint.FileRef, dir string) (time.Duration, error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, err
	}
	runtime.GC()
	began := time.Now()
	var next atomic.Int64
	var working sync.WaitGroup
	errs := make([]error, len(files))
	for range downloads {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				errs[i] = downloadOne(ctx, store, files[i], filepath.Join(dir, strconv.Itoa(int(i))))
			}
		})
	}
	working.Wait()
	return time.Since(began), errors.Join(errs...)
}

func downloadOne(ctx context.Context, store checkpoint.Store, f checkpoint.FileRef, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(checkpoint.CopyObject(ctx, store, file, f.Name, f.Size, f.CRC32C), file.Close())
}

// get returns how long it takes to look one key up in the newest checkpoint of a store,
// beginning with its head.
func (b *checkpointBench) get(ctx context.Context, store checkpoint.Store) (time.Duration, error) {
	began := time.Now()
	err := b.look(ctx, store, b.keys()/2)
	return time.Since(began), err
}

// look makes sure that a key has a value.
func (b *checkpointBench) look(ctx context.Context, store checkpoint.Store, number uint64) error {
	m, err := currentManifest(ctx, store)
	if err != nil {
		return err
	}
	c, err := inspect.New(store, m)
	if err != nil {
		return err
	}
	state, err := c.State(holdComponent, holdState)
	if err != nil {
		return err
	}
	var keys keyMaker
	key, found := keys.make(int(number)).text, 0
	err = state.Get(ctx, []tuple.Value{tuple.String(key)}, func(e *inspect.Entry) error {
		found = len(e.Payload)
		return nil
	})
	if err == nil && found != b.valueBytes() {
		err = fmt.Errorf("key %s has a value of %d bytes in the checkpoint, want %d", key, found, b.valueBytes())
	}
	return err
}
