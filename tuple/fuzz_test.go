package tuple

import (
	"bytes"
	"testing"
)

// fuzzKeys are encoded keys to begin with.
func fuzzKeys(f *testing.F) (keys [][]byte) {
	for _, vals := range [][]Value{
		nil,
		{String("the")},
		{Int64(-1), String("a\x00b"), Uint64(1 << 63), Float64(-0.5)},
		{String("\x00\xff"), Bool(true), {}, Any([]byte("bytes"))},
	} {
		key, err := AppendKey(nil, vals...)
		if err != nil {
			f.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// FuzzDecodeKey: what can be decoded is encoded in one way only, but for a last text in
// the form of an inner one.
func FuzzDecodeKey(f *testing.F) {
	for _, key := range fuzzKeys(f) {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		FormatKey(key)
		vals, err := DecodeKey(key)
		if err != nil {
			return
		}
		again, err := AppendKey(nil, vals...)
		if err != nil {
			t.Fatalf("%x decodes to %v, which does not encode: %v", key, vals, err)
		}
		inner, err := AppendKey(nil, append(vals, Value{})...)
		if err != nil || !bytes.Equal(key, again) && !bytes.Equal(key, inner[:len(inner)-1]) {
			t.Fatalf("%x decodes to %v, which is written as %x (%v)", key, vals, again, err)
		}
	})
}

// FuzzSplitDelimited: a key takes nothing of what follows it.
func FuzzSplitDelimited(f *testing.F) {
	for _, key := range fuzzKeys(f) {
		f.Add(append(AppendDelimited(nil, key), "rest"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, lenErr := DelimitedLen(b)
		key, rest, err := SplitDelimited(b)
		if err != nil {
			return
		}
		if lenErr != nil || !bytes.Equal(rest, b[n:]) {
			t.Fatalf("%x has a key of %d bytes (%v), and %x follows", b, n, lenErr, rest)
		}
		form := AppendDelimited(nil, key)
		again, after, err := SplitDelimited(append(form, rest...))
		if err != nil || !bytes.Equal(again, key) || !bytes.Equal(after, rest) {
			t.Fatalf("%x and %x came back as %x and %x (%v)", key, rest, again, after, err)
		}
		for i := range form {
			if _, err := DelimitedLen(form[:i]); err == nil {
				t.Fatalf("%x is the beginning of %x and a key too", form[:i], form)
			}
		}
	})
}
