package txn

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// decodeAgain decodes b, and fails the test if what it then encodes is decoded to
// something else. With exact it must be b.
func decodeAgain[T any](t *testing.T, c Codec[T], version uint8, b []byte, exact bool) {
	t.Helper()
	v, err := c.Decode(b, version)
	if err != nil {
		return
	}
	if c.Size != nil && c.Size(v) < 0 {
		t.Fatalf("codec %s: %v has a size below 0", c.Name, v)
	}
	if c.Clone != nil {
		v = c.Clone(v)
	}
	once, err := c.Append(nil, v)
	if err != nil {
		t.Fatalf("codec %s: %x decodes to %v, which does not encode: %v", c.Name, b, v, err)
	}
	if exact && !bytes.Equal(once, b) {
		t.Fatalf("codec %s: %x came back as %x", c.Name, b, once)
	}
	again, err := c.Decode(once, c.Version)
	if err != nil {
		t.Fatalf("codec %s: %x was encoded as %x, which does not decode: %v", c.Name, b, once, err)
	}
	if twice, err := c.Append(nil, again); err != nil || !bytes.Equal(twice, once) {
		t.Fatalf("codec %s: %x came back as %x (%v)", c.Name, once, twice, err)
	}
}

func FuzzCodecs(f *testing.F) {
	type document struct {
		Name  string
		Sum   float64
		Parts map[string][]int
	}
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63), uint8(1))
	f.Add([]byte(`{"Name":"a","Sum":1e3,"Parts":{"b":[1,2],"c":null}}`), uint8(2))
	f.Add([]byte("text \xff"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, version uint8) {
		decodeAgain(t, Int64Codec(), version, b, true)
		decodeAgain(t, OrderedInt64Codec(), version, b, true)
		decodeAgain(t, Float64Codec(), version, b, true)
		decodeAgain(t, StringCodec(), version, b, true)
		decodeAgain(t, BytesCodec(), version, b, true)
		decodeAgain(t, JSONCodec[document]("document", 2), version, b, false)
		decodeAgain(t, timedCodec(StringCodec()), version, b, true)
		if _, err := JSONCodec[document]("document", 2).Decode([]byte("{}"), 3); err == nil {
			t.Fatal("a codec reads what a later version of it wrote")
		}
	})
}

// FuzzStoredValues gives what is stored in files of state any bytes.
func FuzzStoredValues(f *testing.F) {
	f.Add("value+ttl", []byte{0, 7, 0, 1, 8, 't'}, binary.BigEndian.AppendUint64([]byte{1}, 1<<40), []byte{})
	f.Add("aggregate", []byte{0, 7, 0, 1, 8, 't'}, binary.BigEndian.AppendUint64([]byte{1}, 5), binary.BigEndian.AppendUint64([]byte{1}, 6))
	f.Add("list", []byte{0, 7, 0}, []byte{3}, []byte{2})
	f.Fuzz(func(t *testing.T, kind string, key, a, b []byte) {
		if group, state, rest, ok := SplitStateKey(key); ok {
			if again := AppendStateKey(nil, group, state, rest); !bytes.Equal(again, key) {
				t.Fatalf("state key %x came back as %x", key, again)
			}
		}
		if at, ok := Expiry(kind, a); ok && (len(a) < 9 || at != int64(binary.BigEndian.Uint64(a[1:]))) {
			t.Fatalf("%x of kind %q expires at %d", a, kind, at)
		}
		older := bytes.Clone(a)
		merged, err := MergeValues(bytes.Clone(a), bytes.Clone(b))
		if err != nil {
			return
		}
		if len(merged) != len(older) || merged[0] != older[0] {
			t.Fatalf("%x and %x were merged to %x", a, b, merged)
		}
		if other, err := MergeValues(bytes.Clone(b), bytes.Clone(a)); err != nil || !bytes.Equal(other, merged) {
			t.Fatalf("%x and %x were merged to %x, the other way round to %x (%v)", a, b, merged, other, err)
		}
	})
}

// FuzzParseTransactionID: who has read an id writes the same one.
func FuzzParseTransactionID(f *testing.F) {
	f.Add(TransactionID{"0123abcd", "sink.of-all_things", 2, 3, 1 << 60}.String())
	f.Add("a.b.1.2.-3")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseTransactionID(s)
		if err != nil {
			return
		}
		if again, err := ParseTransactionID(id.String()); err != nil || again != id {
			t.Fatalf("%q was read as %+v, and that as %+v (%v)", s, id, again, err)
		}
	})
}
