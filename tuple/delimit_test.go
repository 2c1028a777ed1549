package tuple

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawKey(t *rapid.T) []Value {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Value {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return Value{}
		case 1:
			return Bool(rapid.Bool().Draw(t, "bool"))
		case 2:
			return Int64(rapid.Int64().Draw(t, "int"))
		case 3:
			return Uint64(rapid.Uint64().Draw(t, "uint"))
		case 4:
			return Float64(rapid.Float64().Draw(t, "float"))
		case 5:
			return Time(time.Unix(0, rapid.Int64Range(-1<<62, 1<<62).Draw(t, "time")))
		}
		return String(string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 6, 8, 0xff, 'a'}), 0, 4).Draw(t, "text")))
	}), 0, 3).Draw(t, "key")
}

func TestDelimitedKeysComeBackWithWhatFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, err := AppendKey(nil, drawKey(t)...)
		if err != nil {
			t.Fatal(err)
		}
		tail := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "tail")
		form := AppendDelimited(nil, key)
		got, rest, err := SplitDelimited(append(slices.Clone(form), tail...))
		if err != nil || !bytes.Equal(got, key) || !bytes.Equal(rest, tail) {
			t.Fatalf("key %x with tail %x came back as %x with %x, %v", key, tail, got, rest, err)
		}
	})
}

func TestNoDelimitedKeyBeginsAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := drawKey(t), drawKey(t)
		if rapid.Bool().Draw(t, "longer") {
			two = append(slices.Clone(one), two...)
		}
		a, _ := AppendKey(nil, one...)
		b, _ := AppendKey(nil, two...)
		if bytes.Equal(a, b) {
			t.Skip("the same key")
		}
		x, y := AppendDelimited(nil, a), AppendDelimited(nil, b)
		if bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x) {
			t.Fatalf("keys %x and %x have the forms %x and %x", a, b, x, y)
		}
		if len(two) >= len(one) && slices.EqualFunc(one, two[:len(one)], func(a, b Value) bool { return a.String() == b.String() && a.Kind() == b.Kind() }) &&
			!bytes.HasPrefix(y, x[:len(x)-1]) {
			t.Fatalf("%v begins with %v, but %x not with %x", two, one, y, x[:len(x)-1])
		}
	})
}

func TestDamagedDelimitedKeysAreRefused(t *testing.T) {
	for _, b := range []string{"", "\x03\x00", "\x06a", "\x06a\x00", "\x06a\x00\xff", "\x09\x00", "\x02\x01", "\x08a\x00"} {
		if _, _, err := SplitDelimited([]byte(b)); err == nil {
			t.Errorf("%x was taken for a key", b)
		}
	}
}
