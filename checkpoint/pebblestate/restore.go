package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/isobar-io/isobar/checkpoint"
)

// restoreParallel is how many files a restore fetches at the same time.
const restoreParallel = 4

// restore fetches the files of the chain, verifies them, and ingests them in order.
func (s *state) restore(ctx context.Context) error {
	type result struct {
		path string
		err  error
	}
	fetched := make([]chan result, len(s.chain))
	for i := range fetched {
		fetched[i] = make(chan result, 1)
	}
	ctx, cancel := context.WithCancel(ctx)
	var fetchers sync.WaitGroup
	defer fetchers.Wait()
	defer cancel()
	var next atomic.Int64
	for range min(restoreParallel, len(s.chain)) {
		fetchers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(s.chain)); i = next.Add(1) - 1 {
				path, err := s.fetch(ctx, s.chain[i], s.filePath(fmt.Sprintf("restore-%d", i)))
				fetched[i] <- result{path, err}
			}
		})
	}
	for i, f := range s.chain {
		r := <-fetched[i]
		if r.err != nil {
			return r.err
		}
		if r.path == "" {
			continue
		}
		if err := s.ingest(ctx, r.path); err != nil {
			return fmt.Errorf("ingest object %s: %w", f.Name, err)
		}
	}
	s.views[s.applied] = s.db.NewSnapshot()
	return nil
}

// fetch copies an object to a local file and clips it to the groups it counts for.
// It returns the file to ingest, or no path if nothing of the object counts.
func (s *state) fetch(ctx context.Context, f checkpoint.FileRef, path string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	local, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = checkpoint.CopyObject(ctx, s.store, local, f.Name, f.Size, f.CRC32C)
	if err = errors.Join(err, local.Close()); err != nil {
		return "", err
	}
	clipped, err := s.tables.clip(ctx, path, f.GroupFrom, f.GroupTo)
	if err != nil {
		return "", fmt.Errorf("read object %s as a table of state: %w", f.Name, err)
	}
	return clipped, nil
}
