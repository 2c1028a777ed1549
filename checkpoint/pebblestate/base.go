package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/isobar-io/isobar/checkpoint"
)

// baseFileBytes is from which size on a base goes on in another file, unless a test
// chooses otherwise.
const baseFileBytes = 64 << 20

// baseResult is what the writer of a base has to say.
type baseResult struct {
	batch checkpoint.BatchID // the base holds the state as of it
	files []checkpoint.FileRef
	left  []string // objects of bases that failed, still to be deleted
	err   error
}

// startBase begins to write a base of the state as it is now, in the background; when
// much was deleted it frees the room in the local store too. Its goroutine ends with
// the state's context; Close waits for it.
//
// Nothing waits for a base, so the chain goes on growing meanwhile. One that is due when
// it is done follows at once: a chain never holds more deltas than come in the time that
// two bases take, beyond those that make the first one due.
func (s *state) startBase() {
	m, shrunk, left := s.hold(s.views[s.applied]), s.shrunk, s.left
	s.shrunk, s.left = false, nil
	done := make(chan baseResult, 1)
	s.base = done
	s.bases.Go(func() {
		s.hook("base.before")
		w := baseWriter{state: s, batch: m.batch}
		err := w.write(s.ctx, m.snapshot)
		s.letGo(m)
		if err == nil {
			s.hook("base.after")
			left = s.remove(left)
		} else {
			left = append(left, w.names...)
		}
		if shrunk {
			s.compact()
		}
		done <- baseResult{m.batch, w.files, left, err}
	})
}

// remove deletes objects of bases that have failed, which no checkpoint will ever name, and
// returns those that it could not delete. What is left when the generation ends are orphans.
func (s *state) remove(names []string) (left []string) {
	for i, name := range names {
		if err := s.store.Delete(s.ctx, name); err != nil {
			return names[i:]
		}
	}
	return nil
}

// compact rewrites the local store without what was deleted.
func (s *state) compact() {
	lower, upper := s.owned().bounds()
	if upper == nil {
		upper = []byte{0xff, 0xff, 0xff, 0xff, 0xff}
	}
	if err := s.db.Compact(s.ctx, lower, upper, false); err != nil && s.ctx.Err() == nil {
		s.logger.Warn("compact the state after much was deleted", "error", err)
	}
}

// adoptBase makes a base that has been finished the beginning of the chain. What
// was before it is deleted when no retained checkpoint names it any more.
func (s *state) adoptBase() {
	select {
	case r := <-s.base:
		s.base, s.left = nil, r.left
		if r.err != nil {
			s.logger.Warn("write a new base of the state; it will be tried again", "batch", r.batch, "error", r.err)
			return
		}
		s.chain = checkpoint.Rebase(s.chain, r.files, r.batch)
	default:
	}
}

// baseWriter writes and stores the files of one base.
type baseWriter struct {
	*state
	batch checkpoint.BatchID
	files []checkpoint.FileRef
	names []string // of what may have been stored

	table *tableWriter // nil between files
	path  string
	from  int // the first key group of the open file
}

// write stores the rows of a snapshot that are needed in files of a bounded size that are cut
// between key groups, so that a later rescale takes or leaves whole files.
func (w *baseWriter) write(ctx context.Context, snapshot *pebble.Snapshot) (err error) {
	lower, upper := w.owned().bounds()
	it, err := snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	w.from = w.config.GroupFrom
	defer func() { err = errors.Join(err, w.abandon()) }()
	last, unneeded := -1, w.config.Unneeded()
	for ok := it.First(); ok; ok = it.Next() {
		group, err := groupOf(it.Key())
		if err != nil {
			return err
		}
		if w.table != nil && group != last && w.table.Raw().EstimatedSize() >= w.baseFileBytes {
			if err := w.finish(ctx, group); err != nil {
				return err
			}
		}
		last = group
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.add(it, unneeded); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return w.unreadable(err)
	}
	if w.table == nil {
		return nil
	}
	return w.finish(ctx, w.config.GroupTo)
}

func (w *baseWriter) add(it *pebble.Iterator, unneeded func(key, value []byte) bool) error {
	value, err := it.ValueAndErr()
	if err != nil {
		return w.unreadable(err)
	}
	if unneeded(it.Key(), value) {
		return nil
	}
	if w.table == nil {
		w.path = w.filePath(fmt.Sprintf("base-%d", len(w.files)))
		if w.table, err = w.tables.create(w.path); err != nil {
			return err
		}
	}
	return w.table.add(pebble.InternalKeyKindSet, it.Key(), value)
}

// unreadable makes the state fail: no base could ever be written of it.
func (w *baseWriter) unreadable(err error) error {
	w.fail(err)
	return err
}

// finish stores the open file, which counts for the key groups before to.
func (w *baseWriter) finish(ctx context.Context, to int) error {
	table := w.table
	w.table = nil
	if err := table.Close(); err != nil {
		return err
	}
	ref := w.newRef(table, w.batch, true)
	ref.GroupFrom, ref.GroupTo = w.from, to
	w.names = append(w.names, ref.Name)
	if err := w.put(ctx, ref, w.path); err != nil {
		return err
	}
	w.files, w.from = append(w.files, ref), to
	return os.Remove(w.path)
}

// abandon closes a file that was not finished.
func (w *baseWriter) abandon() error {
	if w.table == nil {
		return nil
	}
	return w.table.Close()
}
