package tuple

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The one hash of Isobar: wyhash, final version 4.2, by Wang Yi (public domain,
// https://github.com/wangyi-fudan/wyhash), with its default secret and seed 0. It
// is part of the checkpoint format: it decides the key group of every key, so it
// never changes. It is not fnv, which skews on short keys, and not hash/maphash,
// which differs from process to process.
const (
	secret0 = 0x2d358dccaa6c78a5
	secret1 = 0x8bb84b93962eacc9
	secret2 = 0x4b33a62ed433d4a3
	secret3 = 0x4d5a2da51de1aa47
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// HashBytes returns the 64-bit hash of b under a seed.
func HashBytes(b string, seed uint64) uint64 {
	n := len(b)
	seed ^= mix(seed^secret0, secret1)
	var x, y uint64
	switch {
	case n > 16:
		x, y, seed = hashLong(b, seed)
	case n >= 4:
		k := (n >> 3) << 2
		x = uint64(le32(b, 0))<<32 | uint64(le32(b, k))
		y = uint64(le32(b, n-4))<<32 | uint64(le32(b, n-4-k))
	case n > 0:
		x = uint64(b[0])<<16 | uint64(b[n>>1])<<8 | uint64(b[n-1])
	}
	x ^= secret1
	y ^= seed
	y, x = bits.Mul64(x, y)
	return mix(x^secret0^uint64(n), y^secret1)
}

func hashLong(b string, seed uint64) (x, y, newSeed uint64) {
	n := len(b)
	p := 0
	if n >= 48 {
		see1, see2 := seed, seed
		for n-p >= 48 {
			seed = mix(le64(b, p)^secret1, le64(b, p+8)^seed)
			see1 = mix(le64(b, p+16)^secret2, le64(b, p+24)^see1)
			see2 = mix(le64(b, p+32)^secret3, le64(b, p+40)^see2)
			p += 48
		}
		seed ^= see1 ^ see2
	}
	for n-p > 16 {
		seed = mix(le64(b, p)^secret1, le64(b, p+8)^seed)
		p += 16
	}
	return le64(b, n-16), le64(b, n-8), seed
}

func le32(s string, i int) uint32 {
	s = s[i : i+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func le64(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Hash returns the hash of v as a key: of a text's bytes (string and bytes are the
// same key), and of the 8-byte little-endian payload seeded with the kind for the
// others. KindAny cannot be a key; ok is false.
func (v Value) Hash() (h uint64, ok bool) {
	if s, isText := v.Text(); isText {
		return HashBytes(s, 0), true
	}
	k := v.Kind()
	if k == KindAny {
		return 0, false
	}
	return hashWord(v.keyBits(k), uint64(k)), true
}

// keyBits returns the payload by which a value of a fixed-size kind is a key:
// both zeros of float64 are one key, and so are all its NaNs.
func (v Value) keyBits(k Kind) uint64 {
	if k == KindFloat64 {
		switch f := math.Float64frombits(v.num); {
		case f == 0:
			return 0
		case f != f:
			return math.Float64bits(math.NaN())
		}
	}
	return v.num
}

func hashWord(w, seed uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], w)
	return HashBytes(string(b[:]), seed)
}

// HashKey returns the hash of a key made of several values: the hash of a single
// value is [Value.Hash], each further value's hash is mixed into it in order.
// It returns false if a value is of KindAny.
func HashKey(vals []Value) (uint64, bool) {
	if len(vals) == 0 {
		return hashWord(0, 0), true
	}
	h, ok := vals[0].Hash()
	for _, v := range vals[1:] {
		h2, ok2 := v.Hash()
		h, ok = mix(h^secret2, h2^secret3), ok && ok2
	}
	return h, ok
}

// KeyGroup returns the key group, in [0, groups), of a key with hash h. It uses the
// high bits, so that tables indexed by the low bits stay even within a group.
func KeyGroup(h uint64, groups int) int {
	return int((h >> 32) * uint64(groups) >> 32)
}

// TaskOfGroup returns the index of the task, of tasks many, that owns a key group.
// Task t owns the groups of [GroupRange].
func TaskOfGroup(group, groups, tasks int) int { return group * tasks / groups }

// GroupRange returns the half-open range of key groups owned by task t of tasks.
func GroupRange(t, groups, tasks int) (from, to int) {
	return (t*groups + tasks - 1) / tasks, ((t+1)*groups + tasks - 1) / tasks
}
