package file

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// family is a partition of a spout that follows files: all files that begin with the
// same line. Whatever becomes of a file that is rotated, renamed, copied or cut, its
// old content is found in its family again, by the same task.
type family struct {
	id      txn.PartitionID
	members []*member
	moved   bool // since the last FinishBatch
	version int  // goes up when a file joins or leaves
}

// member is a file of a family that is read, or was: its position, and, in memory,
// the state of reading it.
type member struct {
	fam *family
	pos position
	// lost is when the content that was counted was last there: the file was removed
	// or cut since. Zero while it is there. A copy of it can still turn up.
	lost time.Time

	path     string   // where it is now
	f        *os.File // nil: not open
	size     int64    // as last seen
	modified time.Time
	dry      int64     // the size at which there was no further line
	checked  bool      // all that was counted has been compared by this instance
	gone     time.Time // since when its name is gone and nothing was added to it
	turn     int       // when it was last read from
	cut      bool      // it was lost because its file was cut or written anew
}

// unread reports whether there may be a line to read.
func (m *member) unread() bool { return m.lost.IsZero() && m.size > max(m.dry, m.pos.offset) }

// familyOf returns the partition of a file by its first bytes, of which head holds
// up to headBytes. ok is false as long as they do not make a line.
func familyOf(head []byte) (id txn.PartitionID, ok bool) {
	if i := bytes.IndexByte(head, '\n'); i >= 0 {
		head = head[:i+1]
	} else if len(head) < headBytes {
		return "", false
	}
	return txn.PartitionID(fmt.Sprintf("first-line-%016x", fingerprint(head))), true
}

// readHead returns the first bytes of a file.
func readHead(f *os.File) ([]byte, error) {
	head := make([]byte, headBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("file %s: %w", f.Name(), err)
	}
	return head[:n], nil
}

// member returns the member that is the file of an identity now.
func (f *family) member(id identity) *member {
	for _, m := range f.members {
		if m.lost.IsZero() && m.pos.id == id {
			return m
		}
	}
	return nil
}

// lostFirst returns the lost members, the one that was read farthest first.
func (f *family) lostFirst() []*member {
	var lost []*member
	for _, m := range f.members {
		if !m.lost.IsZero() {
			lost = append(lost, m)
		}
	}
	slices.SortStableFunc(lost, func(a, b *member) int { return cmp.Compare(b.pos.offset, a.pos.offset) })
	return lost
}

// remove forgets a member. What was never counted has no position to take back.
func (f *family) remove(m *member) {
	f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
	f.version++
	f.moved = f.moved || m.pos.offset > 0
}

// The position of a family, all numbers big endian:
//
//	1 byte   version, 2
//	2 bytes  number of members, ordered by device, inode and offset; for each:
//	  8 bytes  device
//	  8 bytes  inode
//	  8 bytes  0 if its content is there; else since when it is not: Unix seconds
//	  8 bytes  offset: the bytes before it were counted; it lies behind a line feed
//	  2 bytes  length of the head: the first counted bytes, at most 1024
//	  n bytes  the head
//	  4 bytes  for each block of 1 MiB that begins before offset: CRC-32C of its
//	           counted bytes
const (
	familyVersion = 2
	memberHeader  = 8 + 8 + 8 + 8 + 2
	membersMax    = 1<<16 - 1
)

// encode returns the position; nil if nothing is left of the family.
func (f *family) encode() ([]byte, error) {
	counted := slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m.pos.offset == 0 })
	if len(counted) == 0 {
		return nil, nil
	}
	if len(counted) > membersMax {
		return nil, fmt.Errorf("%d files begin with the same line, %d can be followed at most: %s", len(counted), membersMax, f.members[0].path)
	}
	slices.SortFunc(counted, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.pos.id.device, b.pos.id.device), cmp.Compare(a.pos.id.inode, b.pos.id.inode),
			cmp.Compare(a.pos.offset, b.pos.offset))
	})
	b := []byte{familyVersion}
	b = binary.BigEndian.AppendUint16(b, uint16(len(counted)))
	for _, m := range counted {
		since := uint64(0)
		if !m.lost.IsZero() {
			since = uint64(m.lost.Unix())
		}
		for _, w := range []uint64{m.pos.id.device, m.pos.id.inode, since, uint64(m.pos.offset)} {
			b = binary.BigEndian.AppendUint64(b, w)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(m.pos.head)))
		b = append(b, m.pos.head...)
		for _, c := range m.pos.blocks {
			b = binary.BigEndian.AppendUint32(b, c)
		}
	}
	return b, nil
}

var errDamaged = errors.New("is damaged")

func decodeFamily(id txn.PartitionID, b []byte) (*family, error) {
	switch {
	case len(b) > 0 && b[0] == positionVersion:
		return nil, errors.New("is of a file that was not followed: go on without following, or begin anew (--from empty)")
	case len(b) > 0 && b[0] > familyVersion:
		return nil, fmt.Errorf("is of version %d, this is a reader of version %d", b[0], familyVersion)
	case len(b) < 3 || b[0] != familyVersion:
		return nil, errDamaged
	}
	n := binary.BigEndian.Uint16(b[1:])
	b = b[3:]
	f := &family{id: id}
	for range n {
		m, rest, err := decodeMember(b)
		if err != nil {
			return nil, err
		}
		m.fam = f
		f.members = append(f.members, m)
		b = rest
	}
	if len(b) > 0 {
		return nil, errDamaged
	}
	return f, nil
}

func decodeMember(b []byte) (m *member, rest []byte, err error) {
	if len(b) < memberHeader {
		return nil, nil, errDamaged
	}
	word := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	m = &member{pos: position{id: identity{true, word(0), word(8)}, offset: int64(word(24))}}
	if since := word(16); since != 0 {
		m.lost = time.Unix(int64(since), 0)
	}
	head := int64(binary.BigEndian.Uint16(b[32:]))
	b = b[memberHeader:]
	if m.pos.offset <= 0 || head != min(m.pos.offset, headBytes) || int64(len(b)) < head {
		return nil, nil, errDamaged
	}
	m.pos.head = slices.Clone(b[:head])
	b = b[head:]
	blocks := (m.pos.offset-1)/blockBytes + 1
	if int64(len(b))/4 < blocks {
		return nil, nil, errDamaged
	}
	for range blocks {
		m.pos.blocks = append(m.pos.blocks, binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	return m, b, nil
}

// verify reports whether a file holds all that was counted of m.
func (m *member) verify(ctx context.Context, f *os.File) (bool, error) {
	p := position{head: m.pos.head, offset: m.pos.offset, blocks: m.pos.blocks}
	_, err := p.compare(ctx, io.NewSectionReader(f, 0, p.offset))
	if d := (*difference)(nil); errors.As(err, &d) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("comparing file %s: %w", f.Name(), err)
	}
	m.pos.tail, m.checked = p.tail, true
	return true, nil
}

// unreplaced reports whether a file still is the one that was seen: intact, and not
// shorter, as it is when it was cut. Else what is read of the new content would be taken
// for some of the old, and read again when the cut is seen.
func (m *member) unreplaced(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < m.size {
		m.cut = true
		return false, nil
	}
	return m.intact(f)
}

// intact looks quickly whether a file still holds what was counted of it, its first
// bytes and the last ones before the offset, or at least its first line.
func (m *member) intact(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() < m.pos.offset {
		return false, err
	}
	if m.pos.offset == 0 {
		head, err := readHead(f)
		id, _ := familyOf(head)
		return id == m.fam.id, err
	}
	for _, part := range []struct {
		want []byte
		at   int64
	}{{m.pos.head, 0}, {m.pos.tail, m.pos.offset - int64(len(m.pos.tail))}} {
		got := make([]byte, len(part.want))
		switch _, err := f.ReadAt(got, part.at); {
		case errors.Is(err, io.EOF) && len(got) > 0:
			return false, nil
		case err != nil && !errors.Is(err, io.EOF):
			return false, fmt.Errorf("file %s: %w", f.Name(), err)
		}
		if !bytes.Equal(got, part.want) {
			return false, nil
		}
	}
	return true, nil
}

// beginning reports whether all that a file holds, size bytes, is a beginning of
// what was counted of m, as far as m can tell: first bytes and whole blocks.
func (m *member) beginning(f *os.File, size int64) (bool, error) {
	short := position{head: m.pos.head, offset: min(size, m.pos.offset) / blockBytes * blockBytes}
	short.blocks = m.pos.blocks[:short.offset/blockBytes]
	head := make([]byte, min(size, int64(len(m.pos.head))))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("file %s: %w", f.Name(), err)
	}
	if !bytes.Equal(head, m.pos.head[:len(head)]) {
		return false, nil
	}
	_, err := short.compare(context.Background(), io.NewSectionReader(f, 0, size))
	if d := (*difference)(nil); errors.As(err, &d) {
		return false, nil
	}
	return err == nil, err
}
