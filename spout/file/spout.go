// Package file holds a spout that reads text files line by line, each line exactly
// once.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// linesPerCall is how many lines NextTuple emits at most, so that a barrier need not
// wait long.
const linesPerCall = 64

// Spout reads files. See [NewSpout].
type Spout struct {
	globs  []string
	ctx    context.Context
	follow *follower // nil: to the end of the files

	ids   []txn.PartitionID // what the globs match; nil: not asked yet
	files []*input          // those of this task, in the order of Seek
	index map[txn.PartitionID]int
	at    int        // no file before this one has anything left to read
	lines lineReader // of files[at]
}

// input is one file.
type input struct {
	id    txn.PartitionID
	pos   position
	moved bool        // pos has changed since the last FinishBatch
	seen  os.FileInfo // the file whose counted content was verified; nil: none
}

func (in *input) path() string { return string(in.id) }

// Option changes what a [Spout] does.
type Option func(*Spout)

// NewSpout returns a spout that emits each line of the files that match any of globs
// (in the syntax of filepath.Match; a name that is a file as it stands means that
// file). It has one field, "line", of KindBytes: the line without its line feed and
// without a carriage return before it. A line may hold any bytes and must fit in
// memory. What follows the last line feed of a file is a line too.
//
// Each file is a partition, named by its absolute path; a file with two names is two
// partitions. Symbolic links are followed, and whatever is not a regular file is
// left out, and so are names that begin with a dot, unless the glob does. The spout finishes at the end of the last file. Files are looked for
// when it starts: a file, or a part of one, that comes later is read by the next run.
// [WithFollow] makes it wait for more instead.
//
// A file whose name ends in .gz or .zst, or that begins as gzip or zstd data does, is
// unpacked. Positions in it are those of unpacked bytes, so a restart unpacks it from
// its beginning.
//
// The content that was counted is part of the position. A restart compares it with
// the file, and fails with the file's name and the place if it has changed or is
// missing. So does a file whose last line had no line feed and has grown longer
// since, because half of a line was counted as one. A file that was read to its end
// may be removed.
func NewSpout(globs []string, opts ...Option) *Spout {
	s := &Spout{globs: globs}
	for _, o := range opts {
		o(s)
	}
	return s
}

// DeclareOutputFields declares the field "line".
func (s *Spout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("line") }

// Open lets the end of the generation interrupt Seek.
func (s *Spout) Open(ctx *txn.Context) error {
	s.ctx = ctx.Context()
	if s.follow != nil {
		s.follow.ctx, s.follow.log = s.ctx, ctx.Logger
	}
	return nil
}

// Partitions returns the files that the globs match, the same at each call, or the
// families that are followed.
func (s *Spout) Partitions(context.Context) ([]txn.PartitionID, error) {
	if s.follow != nil {
		return s.follow.partitions()
	}
	if s.ids != nil {
		return s.ids, nil
	}
	if len(s.globs) == 0 {
		return nil, txn.Fatal(errors.New("no input file is named"))
	}
	var ids []txn.PartitionID
	for _, glob := range s.globs {
		paths, err := match(glob, false)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			ids = append(ids, txn.PartitionID(path))
		}
	}
	if len(ids) == 0 {
		return nil, txn.Fatal(fmt.Errorf("no regular file matches %q", strings.Join(s.globs, " ")))
	}
	slices.Sort(ids)
	s.ids = slices.Compact(ids)
	return s.ids, nil
}

// match returns the absolute paths of the regular files that a glob matches. A name
// that is none must be a file, unless it may come later.
func match(glob string, later bool) ([]string, error) {
	candidates := []string{glob}
	regular, err := isRegular(glob)
	if err != nil {
		return nil, err
	}
	if !regular {
		if literal := !strings.ContainsAny(glob, `*?[\`); literal && later {
			return nil, nil
		} else if literal {
			return nil, txn.Fatal(fmt.Errorf("input %q is not a regular file", glob))
		}
		if candidates, err = filepath.Glob(glob); err != nil {
			return nil, txn.Fatal(fmt.Errorf("input %q: %w", glob, err))
		}
		if !strings.HasPrefix(filepath.Base(glob), ".") {
			candidates = slices.DeleteFunc(candidates, hidden)
		}
	}
	var paths []string
	for _, c := range candidates {
		regular, err := isRegular(c)
		if err != nil {
			return nil, err
		}
		if !regular {
			continue
		}
		abs, err := filepath.Abs(c)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", c, err)
		}
		if !utf8.ValidString(abs) {
			return nil, txn.Fatal(fmt.Errorf("input %q: the name of an input file must be valid UTF-8", c))
		}
		paths = append(paths, abs)
	}
	return paths, nil
}

func isRegular(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for input: %w", err)
	}
	return info.Mode().IsRegular(), nil
}

// Seek verifies what was counted of a file and goes on behind it.
func (s *Spout) Seek(p txn.PartitionID, data []byte) error {
	if s.follow != nil {
		return s.follow.seek(p, data)
	}
	in := &input{id: p}
	if data != nil {
		if err := s.restore(in, data); err != nil {
			return err
		}
	}
	if i, again := s.index[p]; again {
		s.files[i] = in
		s.at = 0
		return s.lines.close()
	}
	if s.index == nil {
		s.index = map[txn.PartitionID]int{}
	}
	s.index[p] = len(s.files)
	s.files = append(s.files, in)
	return nil
}

// restore sets in to a position, after it has compared it with the file.
func (s *Spout) restore(in *input, data []byte) error {
	pos, err := decodePosition(data)
	if err != nil {
		return txn.Fatal(fmt.Errorf("file %s: its position: %w", in.path(), err))
	}
	regular, err := isRegular(in.path())
	switch {
	case err != nil:
		return err
	case !regular && !pos.complete:
		return txn.Fatal(fmt.Errorf("file %s is gone, but only its bytes before offset %d were counted; %s", in.path(), pos.offset, cure))
	case !regular:
		in.pos = pos
		return nil
	}
	ids, err := s.Partitions(s.ctx)
	if err != nil {
		return err
	}
	if _, listed := slices.BinarySearch(ids, in.id); !listed {
		if !pos.complete {
			return txn.Fatal(fmt.Errorf("file %s was counted only up to offset %d and is no longer input: %q does not match it",
				in.path(), pos.offset, strings.Join(s.globs, " ")))
		}
		in.pos = pos
		return nil
	}
	c, err := openContent(in.path())
	if err != nil {
		return fmt.Errorf("file %s, counted up to offset %d: %w", in.path(), pos.offset, err)
	}
	in.seen, err = pos.verify(s.ctx, c)
	in.pos = pos
	return errors.Join(err, c.Close())
}

// open opens a file and goes to its position.
func (s *Spout) open(in *input) error {
	c, err := openContent(in.path())
	if err != nil {
		return fmt.Errorf("file %s: %w", in.path(), err)
	}
	info, err := c.f.Stat()
	if err == nil && in.seen != nil && !os.SameFile(in.seen, info) {
		err = errors.New("was replaced while it was to be read")
	}
	if err == nil {
		err = c.skip(in.pos.offset)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("file %s, offset %d: %w", in.path(), in.pos.offset, err), c.Close())
	}
	in.pos.identify(info)
	s.lines.open(c, &in.pos, false, func(at int64, eof bool) error {
		if !eof || c.packed {
			return nil
		}
		info, err := c.f.Stat()
		if err == nil && info.Size() < at {
			err = fmt.Errorf("was cut to %d bytes after it had been read up to offset %d", info.Size(), at)
		}
		return err
	})
	return nil
}

// NextTuple emits some lines.
func (s *Spout) NextTuple(out *txn.Collector) (txn.Status, error) {
	next, none := s.next, txn.Finished
	if s.follow != nil {
		next, none = s.follow.next, txn.Idle
	}
	for n := range linesPerCall {
		line, ok, err := next()
		if err != nil {
			return txn.Emitted, err
		}
		if !ok && n == 0 {
			return none, nil
		}
		if !ok {
			break
		}
		out.Emit1(tuple.Bytes(line))
	}
	return txn.Emitted, nil
}

// next returns the next line, valid until the next call; false at the end of all
// files.
func (s *Spout) next() (line []byte, ok bool, err error) {
	for ; s.at < len(s.files); s.at++ {
		in := s.files[s.at]
		if in.pos.complete {
			continue
		}
		if s.lines.r == nil {
			if err := s.open(in); err != nil {
				return nil, false, err
			}
		}
		in.moved = true
		line, ok, err := s.lines.next()
		if err != nil {
			err = fmt.Errorf("file %s: %w", in.path(), err)
		}
		if err == nil && in.pos.complete {
			err = s.lines.close()
		}
		if err != nil || ok {
			return line, ok, err
		}
	}
	return nil, false, nil
}

// FinishBatch returns the positions of the files that were read from.
func (s *Spout) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	if s.follow != nil {
		return s.follow.finishBatch()
	}
	s.lines.count()
	var moved []txn.Position
	for _, in := range s.files {
		if in.moved {
			in.moved = false
			moved = append(moved, txn.Position{Partition: in.id, Data: in.pos.encode()})
		}
	}
	return moved, nil
}

// Close closes the files that are open.
func (s *Spout) Close() error {
	if s.follow != nil {
		return s.follow.close()
	}
	return s.lines.close()
}

// hidden reports whether the name of a file begins with a dot: sinks and others keep what
// is not output in such files.
func hidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }
