package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/isobar-io/isobar/checkpoint"
)

const (
	// restoreParallel is how many files a restore fetches at the same time.
	restoreParallel = 4
	// verifyBytes is how much of a file is read at once to verify it.
	verifyBytes = 256 << 10
)

// restore fetches the files of the chain, verifies them, and ingests them in order:
// together those that hold nothing of the same key groups, so that their order means
// nothing.
func (s *state) restore(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var fetchers sync.WaitGroup
	defer fetchers.Wait()
	defer cancel()
	fetched := s.fetchAll(ctx, &fetchers)
	for from := 0; from < len(s.chain); {
		to := from + disjoint(s.chain[from:])
		var paths []string
		for _, file := range fetched[from:to] {
			r := <-file
			if r.err != nil {
				return r.err
			}
			if r.path != "" {
				paths = append(paths, r.path)
			}
		}
		if len(paths) > 0 {
			if err := s.ingest(ctx, paths...); err != nil {
				return fmt.Errorf("ingest object %s and %d more: %w", s.chain[from].Name, to-from-1, err)
			}
		}
		from = to
	}
	s.publish()
	return nil
}

// disjoint returns how many files at the beginning of a chain, at least one, count for
// key groups of which no two have any.
func disjoint(chain []checkpoint.FileRef) int {
	for i, f := range chain {
		for _, before := range chain[:i] {
			if f.GroupFrom < before.GroupTo && before.GroupFrom < f.GroupTo {
				return i
			}
		}
	}
	return len(chain)
}

// fetchedFile is a local file to ingest. Its path is empty if nothing of it counts.
type fetchedFile struct {
	path string
	err  error
}

// fetchAll fetches the files of the chain on goroutines of the group.
func (s *state) fetchAll(ctx context.Context, fetchers *sync.WaitGroup) []chan fetchedFile {
	fetched := make([]chan fetchedFile, len(s.chain))
	for i := range fetched {
		fetched[i] = make(chan fetchedFile, 1)
	}
	var next atomic.Int64
	for range min(restoreParallel, len(s.chain)) {
		fetchers.Go(func() {
			buf := make([]byte, verifyBytes)
			for i := next.Add(1) - 1; i < int64(len(s.chain)); i = next.Add(1) - 1 {
				path, err := s.fetch(ctx, s.chain[i], s.filePath(fmt.Sprintf("restore-%d", i)), buf)
				fetched[i] <- fetchedFile{path, err}
			}
		})
	}
	return fetched
}

// fetch makes an object a local file, verifies it, and clips it to the groups it counts
// for. It returns the file to ingest, or no path if nothing of the object counts.
func (s *state) fetch(ctx context.Context, f checkpoint.FileRef, path string, buf []byte) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	linked, err := s.link(ctx, f, path, buf)
	if err != nil {
		return "", err
	}
	if !linked {
		local, err := createNew(path)
		if err != nil {
			return "", err
		}
		err = checkpoint.CopyObject(ctx, s.store, local, f.Name, f.Size, f.CRC32C)
		if err = errors.Join(err, local.Close()); err != nil {
			return "", err
		}
	}
	clipped, err := s.tables.clip(ctx, path, f.GroupFrom, f.GroupTo)
	if err != nil {
		return "", fmt.Errorf("read object %s as a table of state: %w", f.Name, err)
	}
	return clipped, nil
}

// link makes path a name of the object's own file, if the store has files and path can
// be one, and verifies it. Nothing here writes to a file that it has not created, and
// Pebble writes to no table that it has ingested.
func (s *state) link(ctx context.Context, f checkpoint.FileRef, path string, buf []byte) (linked bool, err error) {
	linker, ok := s.store.(checkpoint.Linker)
	if !ok {
		return false, nil
	}
	err = linker.Link(ctx, f.Name, path)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if err := checkpoint.CopyVerified(nowhere{ctx, buf}, file, f.Size, f.CRC32C); err != nil {
		return false, fmt.Errorf("read object %s: %w", f.Name, err)
	}
	return true, nil
}

// nowhere takes what is read in large pieces, until the context ends.
type nowhere struct {
	ctx context.Context
	buf []byte
}

func (n nowhere) Write(p []byte) (int, error) { return len(p), n.ctx.Err() }

func (n nowhere) ReadFrom(r io.Reader) (size int64, err error) {
	for err == nil {
		var read int
		if read, err = r.Read(n.buf); err == nil {
			err = n.ctx.Err()
		}
		size += int64(read)
	}
	if errors.Is(err, io.EOF) {
		return size, nil
	}
	return size, err
}
