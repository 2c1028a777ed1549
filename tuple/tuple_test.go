package tuple

import (
	"bytes"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The published test vectors of wyhash final version 4 (test_vector.cpp).
func TestHashMatchesPublishedVectors(t *testing.T) {
	for i, v := range []struct {
		in   string
		want uint64
	}{
		{"", 0x93228a4de0eec5a2},
		{"a", 0xc5bac3db178713c4},
		{"abc", 0xa97f2f7b1d9b3314},
		{"message digest", 0x786d1f1df3801df4},
		{"abcdefghijklmnopqrstuvwxyz", 0xdca5a8138ad37c87},
		{"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 0xb9e734f117cfaf70},
		{"12345678901234567890123456789012345678901234567890123456789012345678901234567890", 0x6cc5eab49a92d617},
	} {
		if got := HashBytes(v.in, uint64(i)); got != v.want {
			t.Errorf("HashBytes(%q, %d) = %#x, want %#x", v.in, i, got, v.want)
		}
	}
}

func TestGroupsCoverEveryTaskExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, 2000).Draw(t, "groups")
		tasks := rapid.IntRange(1, groups).Draw(t, "tasks")
		next := 0
		for task := range tasks {
			from, to := GroupRange(task, groups, tasks)
			if from != next || to <= from {
				t.Fatalf("task %d of %d owns [%d,%d), expected to begin at %d", task, tasks, from, to, next)
			}
			for g := from; g < to; g++ {
				if got := TaskOfGroup(g, groups, tasks); got != task {
					t.Fatalf("group %d belongs to task %d, range says %d", g, got, task)
				}
			}
			next = to
		}
		if next != groups {
			t.Fatalf("ranges end at %d of %d", next, groups)
		}
		h := rapid.Uint64().Draw(t, "hash")
		if g := KeyGroup(h, groups); g < 0 || g >= groups {
			t.Fatalf("key group %d of hash %#x is out of range", g, h)
		}
	})
}

func drawValue(t *rapid.T, label string) Value {
	switch rapid.IntRange(0, 7).Draw(t, label+".kind") {
	case 0:
		return Value{}
	case 1:
		return Bool(rapid.Bool().Draw(t, label))
	case 2:
		return Int64(rapid.Int64().Draw(t, label))
	case 3:
		return Uint64(rapid.Uint64().Draw(t, label))
	case 4:
		return Float64(rapid.Float64().Draw(t, label))
	case 5:
		return Bytes(rapid.SliceOf(rapid.Byte()).Draw(t, label))
	case 6:
		return Time(time.Unix(0, rapid.Int64Range(-1<<60, 1<<60).Draw(t, label)))
	}
	return String(rapid.String().Draw(t, label))
}

func TestKeyEncodingRoundTripsAndAgreesWithHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 4).Draw(t, "n")
		vals := make([]Value, n)
		for i := range vals {
			vals[i] = drawValue(t, "v")
		}
		key, err := AppendKey(nil, vals...)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := AppendKey(nil, back...)
		if err != nil || !bytes.Equal(key, again) {
			t.Fatalf("key %x decoded to %v and encoded to %x (%v)", key, back, again, err)
		}
		h1, ok1 := HashKey(vals)
		h2, ok2 := HashKey(back)
		if h1 != h2 || !ok1 || !ok2 {
			t.Fatalf("hash of %v is %x, of its decoded key %x", vals, h1, h2)
		}
	})
}

func TestKeyEncodingOrdersAsValuesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64().Draw(t, "a"), rapid.Float64().Draw(t, "b")
		i, j := rapid.Int64().Draw(t, "i"), rapid.Int64().Draw(t, "j")
		s, u := rapid.String().Draw(t, "s"), rapid.String().Draw(t, "u")
		enc := func(vs ...Value) []byte { k, _ := AppendKey(nil, vs...); return k }
		if c := bytes.Compare(enc(Float64(a)), enc(Float64(b))); (c < 0) != (a < b) {
			t.Fatalf("floats %v and %v order as %d", a, b, c)
		}
		if c := bytes.Compare(enc(Int64(i)), enc(Int64(j))); (c < 0) != (i < j) {
			t.Fatalf("ints %v and %v order as %d", i, j, c)
		}
		if c := bytes.Compare(enc(String(s), Int(1)), enc(String(u), Int(1))); (c < 0) != (s < u) {
			t.Fatalf("texts %q and %q order as %d", s, u, c)
		}
	})
}

func TestFloatZerosAndNaNsAreOneKeyEach(t *testing.T) {
	neg := math.Copysign(0, -1)
	a, _ := Float64(0).Hash()
	b, _ := Float64(neg).Hash()
	if a != b {
		t.Error("0 and -0 hash differently")
	}
	ka, _ := AppendKey(nil, Float64(0))
	kb, _ := AppendKey(nil, Float64(neg))
	if !bytes.Equal(ka, kb) {
		t.Error("0 and -0 encode differently")
	}
	c, _ := Float64(math.NaN()).Hash()
	d, _ := Float64(math.Float64frombits(0xfff8000000000123)).Hash()
	if c != d {
		t.Error("NaNs hash differently")
	}
}

func TestValueGivesBackWhatWasPutIn(t *testing.T) {
	now := time.Now().UTC()
	for _, v := range []any{nil, "x", []byte("y"), int64(-3), uint64(1 << 63), 2.5, true, now, struct{ A int }{4}, KindTime} {
		got := Any(v).Any()
		if b, ok := v.([]byte); ok {
			if !bytes.Equal(b, got.([]byte)) {
				t.Errorf("Any(%v).Any() = %v", v, got)
			}
			continue
		}
		if tm, ok := v.(time.Time); ok {
			if !tm.Equal(got.(time.Time)) {
				t.Errorf("Any(%v).Any() = %v", v, got)
			}
			continue
		}
		if got != v {
			t.Errorf("Any(%v).Any() = %v", v, got)
		}
	}
}

func TestPoisonedFrameShowsInKeptTupleButNotInItsClone(t *testing.T) {
	s := &Stream{Component: "c", ID: DefaultStream, Fields: Fields{"a", "b"}}
	var f Frame
	f.Begin(s, true)
	f.Grow(1)
	f.Append2(String("kept for ever"), Bytes([]byte("bytes")), 7)
	var tp Tuple
	tp.At(&f, 0)
	str, clone := tp.Str(0), tp.Clone()
	f.Poison()
	if tp.Str(1) == "bytes" {
		t.Error("the poisoned tuple still shows its bytes")
	}
	if str != "kept for ever" || clone.Str(1) != "bytes" || clone.Str(0) != "kept for ever" {
		t.Errorf("string %q or clone %v was poisoned", str, clone)
	}
	if h, ok := clone.Hash(); h != 7 || !ok {
		t.Error("clone lost its hash")
	}
}

func TestAppendDoesNotAllocateOnceWarm(t *testing.T) {
	s := &Stream{Component: "c", ID: DefaultStream, Fields: Fields{"w"}}
	var f Frame
	b := []byte("hello")
	fill := func() {
		f.Begin(s, true)
		for range 256 {
			if f.Full() && !f.Grow(256) {
				t.Fatal("no room")
			}
			f.Append1(Bytes(b), 1)
		}
		f.Reset()
	}
	for range 8 {
		fill()
	}
	if n := testing.AllocsPerRun(10, fill); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func TestFramesOfLargeTuplesHoldFew(t *testing.T) {
	s := &Stream{Component: "c", ID: DefaultStream, Fields: Fields{"line"}}
	var f Frame
	f.Begin(s, false)
	line := make([]byte, 100<<10)
	for !f.Full() || f.Grow(1024) {
		f.Append1(Bytes(line), 0)
	}
	if f.Len() != 3 {
		t.Errorf("a frame holds %d lines of 100 kB, want 3", f.Len())
	}
	f.Reset()
	f.Begin(s, false)
	for !f.Full() || f.Grow(1024) {
		f.Append1(Bytes(line[:10]), 0)
	}
	if f.Len() != 1024 {
		t.Errorf("a frame holds %d lines of 10 bytes, want 1024", f.Len())
	}
}
