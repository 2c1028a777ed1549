package txn

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// lookup returns the numbers that an index has for a hash, as a probe meets them.
func (x *index) lookup(hash uint64) (found []int) {
	s := x.segment(hash)
	for i := hash & segmentMask; s.slots[i] != 0; i = (i + 1) & segmentMask {
		if s.slots[i]>>32 == hash&(1<<32-1) {
			found = append(found, int(uint32(s.slots[i]))-1)
		}
	}
	return found
}

func TestIndexFindsWhatWasAddedAndNotRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few homes, so that probes run into each other, and some that end at the end; not so
		// few that one would have more keys than may share 32 bits of their hash.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		homes := rapid.IntRange(16, 1<<20).Draw(t, "homes")
		x, held := newIndex(), map[int]uint64{}
		for i := range rapid.IntRange(1, 3*segmentFull).Draw(t, "steps") {
			if victim := r.IntN(2 * (i + 1)); victim < i {
				if h, ok := held[victim]; ok {
					x.remove(h, victim)
					delete(held, victim)
				}
				continue
			}
			low := uint64(r.IntN(homes)) * 0x9e3779b97f4a7c15
			held[i] = low>>20 | r.Uint64()<<44
			x.add(held[i], i)
		}
		used := 0
		for i, s := range x.dir {
			if i < 1<<s.depth {
				used += s.used
			}
		}
		if used != len(held) {
			t.Fatalf("%d slots are used for %d entries", used, len(held))
		}
		for i, h := range held {
			n := 0
			for _, found := range x.lookup(h) {
				if found == i {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("entry %d was found %d times", i, n)
			}
		}
	})
}

func TestIndexGrowsBySegments(t *testing.T) {
	x := newIndex()
	r := rand.New(rand.NewPCG(1, 2))
	const n = 200_000
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = r.Uint64()
		x.add(hashes[i], i)
	}
	for i, h := range hashes {
		if found := x.lookup(h); len(found) == 0 || len(found) == 1 && found[0] != i {
			t.Fatalf("entry %d: found %v", i, found)
		}
	}
	if least, most := int64(n*8), int64(n*8*4); x.bytes() < least || x.bytes() > most {
		t.Errorf("the index of %d entries has %d bytes, want %d to %d", n, x.bytes(), least, most)
	}
}
