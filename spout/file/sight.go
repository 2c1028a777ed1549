package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// sighting is a file as the last look at the globs found it.
type sighting struct {
	id       identity
	path     string
	size     int64
	modified time.Time
	family   txn.PartitionID // empty: none yet

	// A file that is not read, because it holds nothing but a copy of what is known:
	// the version of its family, above 0, when that was found out, and how many bytes
	// were found equal to those of which file.
	held  int
	like  identity
	equal int64
}

// look finds the files that the globs match now.
func (f *follower) look() error {
	began := f.now()
	paths, err := f.match()
	if err != nil {
		return err
	}
	found := map[identity]*sighting{}
	families := map[txn.PartitionID][]*sighting{}
	for _, path := range paths {
		s, err := f.sight(path)
		if err != nil {
			return err
		}
		if s == nil || found[s.id] != nil { // gone again; another name of a file
			continue
		}
		found[s.id] = s
		if s.family != "" {
			families[s.family] = append(families[s.family], s)
		}
	}
	f.seen, f.families = found, families
	ended := f.now()
	f.due = ended.Add(max(lookPause, lookShare*ended.Sub(began)))
	return nil
}

// match returns the paths that the globs match, in order.
func (f *follower) match() ([]string, error) {
	if len(f.globs) == 0 {
		return nil, txn.Fatal(errors.New("no input file is named"))
	}
	var paths []string
	for _, glob := range f.globs {
		if packed := formatOf(glob, nil); packed != nil {
			return nil, txn.Fatal(fmt.Errorf("input %q: a file of %s data cannot be followed, because it is not appended to line by line: read it without following", glob, packed.name))
		}
		more, err := match(glob, true)
		if err != nil {
			return nil, err
		}
		paths = append(paths, more...)
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// sight looks at one file; nil if it is gone.
func (f *follower) sight(path string) (*sighting, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for input: %w", err)
	}
	id := identityOf(info)
	if !id.known {
		return nil, txn.Fatal(errors.New("files cannot be followed on this system: it does not tell which file is which"))
	}
	old := f.seen[id]
	if old != nil && old.size == info.Size() && old.modified.Equal(info.ModTime()) {
		old.path = path
		return old, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for input: %w", err)
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	s := &sighting{id: identityOf(info), path: path, size: info.Size(), modified: info.ModTime()}
	head, err := readHead(file)
	if err != nil {
		return nil, err
	}
	if formatOf(path, head) == nil {
		s.family, _ = familyOf(head)
	}
	if old != nil && s.id == old.id && s.family == old.family && s.size >= old.size { // else it was cut
		s.like, s.equal = old.like, old.equal
	}
	return s, nil
}

// admit decides about a file that is new in a family: it holds nothing that is not in
// another one and is held, or it is the copy of one that was lost and goes on where
// that was left, or it is read from its beginning.
func (f *follower) admit(fam *family, s *sighting) error {
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	info, err := file.Stat()
	if err != nil || identityOf(info) != s.id {
		return errors.Join(err, file.Close()) // replaced since: the next look finds it
	}
	head, err := readHead(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	m, err := f.classify(fam, s, file, head)
	if m == nil || err != nil {
		return errors.Join(err, file.Close())
	}
	m.pos.id, m.path, m.size, m.modified = s.id, s.path, s.size, s.modified
	m.checked, m.dry, m.gone, m.cut = true, 0, time.Time{}, false
	s.held = 0
	fam.version++
	return f.keep(m, file)
}

// classify returns the member that a new file is, whose first bytes are head; nil if it
// is held, or if that cannot be told yet.
func (f *follower) classify(fam *family, s *sighting, file *os.File, head []byte) (*member, error) {
	for _, m := range fam.members {
		if !m.lost.IsZero() {
			continue
		}
		// Told without opening the member's file: of thousands that begin with one line,
		// hardly any go on alike.
		if n := min(len(head), len(m.pos.head)); !bytes.Equal(head[:n], m.pos.head[:n]) {
			continue
		}
		switch like, err := f.compare(s, file, m); {
		case like == lostMeanwhile:
			return f.classify(fam, s, file, head)
		case like == same:
			s.held = fam.version + 1
			return nil, err
		case like == unknown || err != nil:
			return nil, err
		}
	}
	m, held, err := f.successor(fam, s, file)
	if m != nil || held || err != nil {
		return m, err
	}
	m = &member{fam: fam}
	fam.members = append(fam.members, m)
	return m, nil
}

// successor returns the lost member whose content is in a file; held is true if the
// file holds less than that.
func (f *follower) successor(fam *family, s *sighting, file *os.File) (m *member, held bool, err error) {
	for _, m := range fam.lostFirst() {
		if s.id == m.pos.id && (m.cut || s.size < m.pos.offset) {
			continue
		}
		if s.size < m.pos.offset {
			held, err := m.beginning(file, s.size)
			if held {
				s.held, s.like, s.equal = fam.version+1, identity{}, 0
			}
			if held || err != nil {
				return nil, held, err
			}
			continue
		}
		ok, err := m.verify(f.ctx, file)
		if err != nil {
			return nil, false, err
		}
		if ok {
			f.log.Debug("reading goes on in the file that holds what was counted", "file", s.path, "before", m.path, "offset", m.pos.offset)
			m.lost, fam.moved = time.Time{}, true
			return m, false, nil
		}
	}
	return nil, false, nil
}

type likeness int

const (
	unknown       likeness = iota // not now
	same                          // all of the file is the beginning of the member's file
	different                     //
	lostMeanwhile                 // the member was
)

// compare compares a file with that of a member.
func (f *follower) compare(s *sighting, file *os.File, m *member) (likeness, error) {
	other, err := f.open(m)
	if other == nil {
		return unknown, err
	}
	if s.like != m.pos.id {
		s.like, s.equal = m.pos.id, 0
	}
	if s.equal, err = equalBytes(file, other, s.equal, s.size); err != nil {
		return unknown, fmt.Errorf("comparing file %s with %s: %w", s.path, m.path, err)
	}
	if s.equal == s.size {
		return same, nil
	}
	// They differ; but if the member's file has just been cut, its old content does not.
	switch intact, err := m.intact(other); {
	case err != nil:
		return unknown, err
	case intact:
		return different, nil
	}
	return lostMeanwhile, f.lose(m)
}

// reviewHeld finds out whether a file that is held still holds the beginning of its
// like, by its first and last bytes: a file of which nothing but a first line was
// counted can be cut and begin with the same line again, and still seem to be intact.
func (f *follower) reviewHeld(fam *family, s *sighting) error {
	m := fam.member(s.like)
	if s.held == 0 || m == nil {
		return nil
	}
	other, err := f.open(m)
	if other == nil {
		return err
	}
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	defer file.Close()
	for _, part := range [][2]int64{{0, min(s.size, headBytes)}, {max(0, s.size-tailBytes), s.size}} {
		switch to, err := equalBytes(file, other, part[0], part[1]); {
		case err != nil:
			return fmt.Errorf("comparing file %s with %s: %w", s.path, m.path, err)
		case to < part[1]:
			s.held, s.like, s.equal = 0, identity{}, 0
			return nil
		}
	}
	return nil
}

// equalBytes returns up to where two files are equal, if they are up to from, at
// most to.
func equalBytes(a, b *os.File, from, to int64) (int64, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for from < to {
		n := int(min(to-from, int64(len(x))))
		i, err := a.ReadAt(x[:n], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return from, err
		}
		j, err := b.ReadAt(y[:n], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return from, err
		}
		n = min(i, j)
		for k := range n {
			if x[k] != y[k] {
				return from + int64(k), nil
			}
		}
		from += int64(n)
		if i != j || n == 0 {
			break
		}
	}
	return from, nil
}
