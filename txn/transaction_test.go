package txn

import (
	"bytes"
	"testing"
)

func FuzzDecodeTransaction(f *testing.F) {
	f.Add(transaction{TransactionID{"run", "sink", 2, 3, 4}, []byte("data")}.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeTransaction(b)
		if err != nil {
			return
		}
		again, err := decodeTransaction(x.encode())
		if err != nil || again.id != x.id || !bytes.Equal(again.data, x.data) {
			t.Fatalf("%x decoded to %v, and that to %v (%v)", b, x, again, err)
		}
	})
}

func FuzzDecodeRecords(f *testing.F) {
	var s Stage
	s.Add([]byte("one"))
	s.Add(nil)
	f.Add(s.buf)
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := decodeRecords(b)
		if err != nil {
			return
		}
		var s Stage
		for _, r := range records {
			s.Add(r)
		}
		again, err := decodeRecords(s.buf)
		if err != nil || len(again) != len(records) {
			t.Fatalf("%d records became %d (%v)", len(records), len(again), err)
		}
	})
}

func TestTransactionIDsReadBack(t *testing.T) {
	id := TransactionID{"0123abcd", "sink.of-all_things", 2, 3, 1 << 60}
	if got, err := ParseTransactionID(id.String()); err != nil || got != id {
		t.Errorf("%s read back as %v (%v)", id, got, err)
	}
	for _, s := range []string{"", "a", "a.b.1.2", "a.b.c.2.3", "a.b.1.2.-3"} {
		if got, err := ParseTransactionID(s); err == nil {
			t.Errorf("%q read as %v", s, got)
		}
	}
}
