package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/isobar-io/isobar/txn"
)

const (
	// lookPause is how long after a look at the files the next one is due; at least,
	// lookShare times as long as it took.
	lookPause = 100 * time.Millisecond
	lookShare = 10
	// linger is how long a file that is open is still read after its name has gone
	// and nothing was added to it.
	linger = time.Minute
	// forgetAfter is how long the position of a lost file is kept for its copy.
	forgetAfter = 24 * time.Hour
	// openMax is how many files are kept open, not counting those whose name has gone.
	openMax = 256
)

// WithFollow makes the spout wait for what is appended to the files, and for new
// files, in the manner of tail -F. It never finishes. A line is emitted when its line
// feed is there; a file is looked at about ten times a second, and a named file need
// not exist yet. Packed files are left out, so a rotated file may be packed.
//
// Files may be rotated in any way. What a file holds decides what it is:
//
//   - A file that is renamed goes on under its new name, if a glob matches it. If
//     not, or if it is removed, what it still gets within a minute is read as long
//     as the spout runs.
//   - A file that is cut, or replaced by another, is read from its new beginning. If a
//     glob matches a file with a copy of its old content, as copy-and-truncate makes
//     it, reading goes on there, where it was left. What is in no copy is lost.
//   - A file that holds nothing but the beginning of another input file is taken for
//     its copy and is not read, until it grows a line of its own; a file with two
//     names is one file.
//
// So that nothing is skipped while the spout does not run, the globs must match the
// rotated files too. After a restart all that was counted of each file is compared,
// and a file in which it has changed is read from its beginning, as if it were cut.
//
// A partition is all files that begin with the same line (of which the first 1024
// bytes count), so rotation leaves a file with its task; its position holds the
// device, the inode, the first 1024 bytes and the checksums of each file. When a file
// is gone, it is kept for a day. A file with the first 1024 bytes of one that is gone
// is taken for a copy of it as long as it is shorter. Positions of a spout that
// follows and of one that does not are not the same.
func WithFollow() Option {
	return func(s *Spout) {
		s.follow = &follower{globs: s.globs, now: time.Now, log: slog.New(slog.DiscardHandler), ours: map[txn.PartitionID]*family{}}
	}
}

// follower reads the files of one task that grow.
type follower struct {
	globs []string
	ctx   context.Context
	log   *slog.Logger
	now   func() time.Time

	due      time.Time // when to look at the files again
	seen     map[identity]*sighting
	families map[txn.PartitionID][]*sighting // all that there are
	ours     map[txn.PartitionID]*family     // those of this task

	queue []*member // that have something to read
	at    *member   // the one that is read; nil: none
	lines lineReader
	turn  int
	kept  []*member // that are open
}

func (f *follower) partitions() ([]txn.PartitionID, error) {
	if err := f.refresh(); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(f.families)), nil
}

func (f *follower) seek(p txn.PartitionID, data []byte) error {
	fam := &family{id: p}
	if data != nil {
		var err error
		if fam, err = decodeFamily(p, data); err != nil {
			return txn.Fatal(fmt.Errorf("files of partition %q: their position %w", p, err))
		}
	}
	if old := f.ours[p]; old != nil {
		if err := f.release(); err != nil {
			return err
		}
		for _, m := range old.members {
			if err := f.shut(m); err != nil {
				return err
			}
		}
	}
	f.ours[p] = fam
	if f.seen == nil {
		return f.refresh()
	}
	if err := f.settle(fam); err != nil {
		return err
	}
	f.line()
	return nil
}

// refresh looks at the files if that is due, and settles what has become of them.
func (f *follower) refresh() error {
	if f.now().Before(f.due) || f.at != nil && f.lines.buffered() {
		return nil
	}
	if err := f.release(); err != nil {
		return err
	}
	if err := f.look(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(f.ours)) {
		if err := f.settle(f.ours[id]); err != nil {
			return err
		}
	}
	f.line()
	return nil
}

// line lets the members that have something to read stand in line: the one that has
// waited longest first, and of new ones the oldest.
func (f *follower) line() {
	f.queue = f.queue[:0]
	for _, fam := range f.ours {
		for _, m := range fam.members {
			if m.unread() && m != f.at {
				f.queue = append(f.queue, m)
			}
		}
	}
	slices.SortFunc(f.queue, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.modified.Compare(b.modified), cmp.Compare(a.path, b.path))
	})
}

// settle finds out what has become of the members of a family, and which files are
// new in it.
func (f *follower) settle(fam *family) error {
	here := f.families[fam.id]
	held := slices.ContainsFunc(here, func(s *sighting) bool { return s.held > 0 })
	for _, m := range slices.Clone(fam.members) {
		switch {
		case m.lost.IsZero():
			if err := f.review(fam, m); err != nil {
				return err
			}
		case !held && f.now().Sub(m.lost) >= forgetAfter:
			fam.remove(m)
		}
	}
	var fresh []*sighting
	for _, s := range here {
		if err := f.reviewHeld(fam, s); err != nil {
			return err
		}
		if fam.member(s.id) == nil && s.held != fam.version+1 {
			fresh = append(fresh, s)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *sighting) int { return cmp.Compare(b.size, a.size) })
	for _, s := range fresh {
		if err := f.admit(fam, s); err != nil {
			return err
		}
	}
	return nil
}

// review finds out whether the file of a member still holds what was counted.
func (f *follower) review(fam *family, m *member) error {
	s := f.seen[m.pos.id]
	switch {
	case s == nil:
		return f.reviewGone(m)
	case s.family != fam.id || s.size < m.size:
		m.cut = true
		return f.lose(m)
	}
	m.path, m.gone = s.path, time.Time{}
	if m.checked && s.size == m.size && s.modified.Equal(m.modified) {
		return nil
	}
	file, err := f.open(m)
	if file == nil {
		return err
	}
	check := m.intact
	if !m.checked {
		check = func(file *os.File) (bool, error) { return m.verify(f.ctx, file) }
	}
	ok, err := check(file)
	if err != nil {
		return err
	}
	if !ok {
		return f.lose(m)
	}
	m.size, m.modified = s.size, s.modified
	return nil
}

// reviewGone is review for a file that has no name any more.
func (f *follower) reviewGone(m *member) error {
	if m.f == nil || !m.checked {
		return f.lose(m)
	}
	ok, err := m.intact(m.f)
	if err != nil {
		return err
	}
	if !ok {
		return f.lose(m)
	}
	info, err := m.f.Stat()
	if err != nil {
		return fmt.Errorf("file %s: %w", m.path, err)
	}
	if info.Size() < m.size {
		return f.lose(m)
	}
	if now := f.now(); m.gone.IsZero() || info.Size() != m.size {
		m.gone, m.size = now, info.Size()
	} else if now.Sub(m.gone) >= linger && !m.unread() {
		return f.lose(m)
	}
	return nil
}

// lose takes down that the content of a member is no longer there.
func (f *follower) lose(m *member) error {
	if m == f.at {
		if err := f.release(); err != nil {
			return err
		}
	}
	f.log.Debug("an input file was removed, cut or replaced", "file", m.path, "countedBytes", m.pos.offset)
	m.lost, m.size = f.now().Truncate(time.Second), 0
	for _, s := range f.families[m.fam.id] {
		if s.like == m.pos.id || s.id == m.pos.id { // what is there now is equal to nothing yet
			s.like, s.equal = identity{}, 0
		}
	}
	if m.pos.offset == 0 {
		m.fam.remove(m)
	} else {
		m.fam.version++
		m.fam.moved = true
	}
	return f.shut(m)
}

// next returns the next line, valid until the next call; false if there is none now.
func (f *follower) next() (line []byte, ok bool, err error) {
	for {
		if f.at == nil || !f.lines.buffered() {
			if err := f.refresh(); err != nil {
				return nil, false, err
			}
		}
		if f.at == nil {
			if ok, err := f.begin(); !ok || err != nil {
				return nil, false, err
			}
		}
		m := f.at
		line, ok, err := f.lines.next()
		switch {
		case errors.Is(err, errReplaced):
			err = f.lose(m)
		case err != nil:
			err = fmt.Errorf("file %s: %w", m.path, err)
		case ok:
			m.fam.moved = true
			return line, true, nil
		default:
			m.dry = f.lines.offset()
			m.size = max(m.size, m.dry)
			err = f.release()
		}
		if err != nil {
			return nil, false, err
		}
	}
}

var errReplaced = errors.New("the content was replaced")

// begin begins to read the first member in line; false if there is none.
func (f *follower) begin() (bool, error) {
	for len(f.queue) > 0 {
		m := f.queue[0]
		f.queue = f.queue[1:]
		file, err := f.open(m)
		if err != nil {
			return false, err
		}
		if file == nil || !m.unread() {
			continue
		}
		f.turn++
		m.turn = f.turn
		f.at = m
		src := io.NopCloser(io.NewSectionReader(file, m.pos.offset, 1<<62))
		f.lines.open(src, &m.pos, true, func(int64, bool) error {
			// After the read, so that whatever was read is of the content that was there.
			ok, err := m.unreplaced(file)
			if err == nil && !ok {
				err = errReplaced
			}
			return err
		})
		return true, nil
	}
	return false, nil
}

// release ends the turn of the member that is read.
func (f *follower) release() error {
	f.at = nil
	return f.lines.close()
}

// open returns the file of a member; nil if it is not where it was, which the next
// look clears up.
func (f *follower) open(m *member) (*os.File, error) {
	if m.f != nil {
		return m.f, nil
	}
	file, err := os.Open(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		f.due = time.Time{}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	info, err := file.Stat()
	if err == nil && identityOf(info) != m.pos.id {
		f.due = time.Time{}
		return nil, file.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("file %s: %w", m.path, err), file.Close())
	}
	return file, f.keep(m, file)
}

// keep keeps the file of a member open. If there are too many, one must give way, but
// not one that could not be opened again.
func (f *follower) keep(m *member, file *os.File) error {
	m.f = file
	f.kept = append(f.kept, m)
	if len(f.kept) <= openMax {
		return nil
	}
	var first *member
	for _, o := range f.kept {
		if o != m && o != f.at && o.gone.IsZero() && (first == nil || f.rank(o) < f.rank(first)) {
			first = o
		}
	}
	if first == nil {
		return nil
	}
	return f.shut(first)
}

// rank orders members by how soon they will be read from: not soon if there is
// nothing to read, and then those that were read from long ago.
func (f *follower) rank(m *member) int {
	if m.unread() {
		return f.turn + m.turn + 1
	}
	return m.turn
}

func (f *follower) shut(m *member) error {
	if m.f == nil {
		return nil
	}
	f.kept = slices.DeleteFunc(f.kept, func(o *member) bool { return o == m })
	err := m.f.Close()
	m.f = nil
	return err
}

// finishBatch returns the positions of the families in which something was read or
// lost. Of one of which nothing is left the position is nil.
func (f *follower) finishBatch() ([]txn.Position, error) {
	f.lines.count()
	var moved []txn.Position
	for _, id := range slices.Sorted(maps.Keys(f.ours)) {
		fam := f.ours[id]
		if !fam.moved {
			continue
		}
		fam.moved = false
		data, err := fam.encode()
		if err != nil {
			return nil, err
		}
		moved = append(moved, txn.Position{Partition: id, Data: data})
	}
	return moved, nil
}

func (f *follower) close() error {
	err := f.release()
	for _, m := range slices.Clone(f.kept) {
		err = errors.Join(err, f.shut(m))
	}
	return err
}
