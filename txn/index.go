package txn

import (
	"fmt"
	"math/bits"
)

// index finds the numbers of entries by 32 bits of their hash. It is an extendible
// hash table (Fagin and others, 1979): a directory, by some of the bits, of segments of
// one size with linear probing. It grows a segment at a time, so that no insertion
// waits for more than one of them, however many entries there are.
type index struct {
	dir []*segment // 2^k of them; a segment of depth d is there 2^(k-d) times
}

type segment struct {
	slots [segmentSlots]uint64 // 0 = free, else the hash << 32 | number of the entry + 1
	used  int
	depth int // how many bits of the directory's number all its hashes share
}

const (
	segmentBits  = 12
	segmentSlots = 1 << segmentBits
	segmentMask  = segmentSlots - 1
	segmentFull  = segmentSlots * 2 / 3
)

func newIndex() index { return index{[]*segment{new(segment)}} }

// segment returns the segment of a hash, of which only the low 32 bits count.
func (x *index) segment(hash uint64) *segment {
	return x.dir[hash&(1<<32-1)>>segmentBits&uint64(len(x.dir)-1)]
}

// add adds the entry of number i, which is not there yet.
func (x *index) add(hash uint64, i int) {
	s := x.segment(hash)
	for s.used >= segmentFull {
		x.split(s, hash)
		s = x.segment(hash)
	}
	s.place(hash<<32 | uint64(i+1))
}

func (s *segment) place(slot uint64) {
	i := slot >> 32 & segmentMask
	for s.slots[i] != 0 {
		i = (i + 1) & segmentMask
	}
	s.slots[i] = slot
	s.used++
}

// split replaces the segment of a hash by two.
func (x *index) split(s *segment, hash uint64) {
	if s.depth == 32-segmentBits {
		panic(fmt.Sprintf("more than %d keys share 32 bits of their hash", segmentFull))
	}
	if 1<<s.depth == len(x.dir) {
		x.dir = append(x.dir, x.dir...)
	}
	bit := uint64(1) << s.depth
	halves := [2]*segment{{depth: s.depth + 1}, {depth: s.depth + 1}}
	for _, slot := range s.slots {
		if slot != 0 {
			halves[slot>>32>>segmentBits>>s.depth&1].place(slot)
		}
	}
	first := hash & (1<<32 - 1) >> segmentBits & (bit - 1)
	for i := first; i < uint64(len(x.dir)); i += bit {
		x.dir[i] = halves[i>>s.depth&1]
	}
}

// remove removes the entry of number i, which is there. What follows moves up, so that
// no probe has to pass removed slots.
func (x *index) remove(hash uint64, i int) {
	s := x.segment(hash)
	at, slot := hash&segmentMask, hash<<32|uint64(i+1)
	for s.slots[at] != slot {
		at = (at + 1) & segmentMask
	}
	for next := at; ; {
		next = (next + 1) & segmentMask
		moved := s.slots[next]
		if moved == 0 {
			break
		}
		// It may move if its own place is not after the free one.
		if home := moved >> 32 & segmentMask; (next-home)&segmentMask >= (next-at)&segmentMask {
			s.slots[at], at = moved, next
		}
	}
	s.slots[at] = 0
	s.used--
}

// bytes returns what the index occupies.
func (x *index) bytes() int64 {
	segments := 0
	for i, s := range x.dir {
		if bits.Len(uint(i)) <= s.depth { // the first of its places
			segments++
		}
	}
	return int64(segments)*segmentSlots*8 + int64(len(x.dir))*8
}
