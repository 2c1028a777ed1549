package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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

// restore fetches the files of the chain, verifies them, and ingests them in order. Those
// that overlap none of those before them go together with them: their order means nothing.
func (s *state) restore(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var fetchers sync.WaitGroup
	defer fetchers.Wait()
	defer cancel()
	var all, apart []localTable
	for _, file := range s.fetchAll(ctx, &fetchers) {
		r := <-file
		if r.err != nil {
			return r.err
		}
		if r.path == "" {
			continue
		}
		if slices.ContainsFunc(apart, r.overlaps) {
			if err := s.ingestTables(ctx, apart); err != nil {
				return err
			}
			apart = apart[:0]
		}
		all, apart = append(all, r.localTable), append(apart, r.localTable)
	}
	if err := s.ingestTables(ctx, apart); err != nil {
		return err
	}
	foreign, err := s.tables.withoutForeign(s.filePath("foreign"), s.owned(), all)
	if err == nil && len(foreign) > 0 {
		err = s.ingest(ctx, foreign...)
	}
	if err != nil {
		return fmt.Errorf("delete what belongs to other tasks: %w", err)
	}
	s.publish()
	return nil
}

// ingestTables ingests files of which no two overlap.
func (s *state) ingestTables(ctx context.Context, tables []localTable) error {
	if len(tables) == 0 {
		return nil
	}
	var paths []string
	for _, t := range tables {
		paths = append(paths, t.path)
	}
	if err := s.ingest(ctx, paths...); err != nil {
		return fmt.Errorf("ingest %d files: %w", len(paths), err)
	}
	return nil
}

func (s *state) owned() span { return span{s.config.GroupFrom, s.config.GroupTo} }

type fetchedFile struct {
	localTable
	err error
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
				table, err := s.fetch(ctx, s.chain[i], s.filePath(fmt.Sprintf("restore-%d", i)), buf)
				fetched[i] <- fetchedFile{table, err}
			}
		})
	}
	return fetched
}

// fetch makes an object a local file, verifies it, and clips it to the groups it counts
// for.
func (s *state) fetch(ctx context.Context, f checkpoint.FileRef, path string, buf []byte) (localTable, error) {
	if err := ctx.Err(); err != nil {
		return localTable{}, err
	}
	linked, err := s.link(ctx, f, path, buf)
	if err == nil && !linked {
		err = s.copy(ctx, f, path)
	}
	if err != nil {
		return localTable{}, err
	}
	table, err := s.tables.clip(ctx, path, span{f.GroupFrom, f.GroupTo}, s.owned())
	if err != nil {
		return localTable{}, fmt.Errorf("read object %s as a table of state: %w", f.Name, err)
	}
	return table, nil
}

// copy copies an object to a local file and verifies it. That it cannot be read for now is
// an ErrUnread.
func (s *state) copy(ctx context.Context, f checkpoint.FileRef, path string) error {
	local, err := createNew(path)
	if err != nil {
		return err
	}
	w := &localWriter{file: local}
	err = checkpoint.CopyObject(ctx, s.store, w, f.Name, f.Size, f.CRC32C)
	if err != nil && w.err == nil && !checkpoint.Hopeless(err) {
		err = fmt.Errorf("%w: %w", checkpoint.ErrUnread, err)
	}
	return errors.Join(err, local.Close())
}

// localWriter tells whether it was the local file that failed.
type localWriter struct {
	file io.Writer
	err  error
}

func (w *localWriter) Write(p []byte) (n int, err error) {
	n, err = w.file.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
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
