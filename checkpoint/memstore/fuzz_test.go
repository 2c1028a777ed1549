package memstore

import (
	"bytes"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/txn"
)

// FuzzDecodeRecords: what can be decoded is encoded as it was.
func FuzzDecodeRecords(f *testing.F) {
	records := []txn.Record{
		{Key: txn.AppendStateKey(nil, 1, 2, []byte("key")), Value: []byte("value")},
		{Key: txn.AppendStateKey(nil, 3, 1, nil), Value: []byte{}},
		{Key: txn.AppendStateKey(nil, 1<<16-1, 7, []byte("gone")), Delete: true},
	}
	f.Add(encodeRecords(records), uint16(0), uint16(1<<16-1))
	f.Add(encodeRecords(records), uint16(2), uint16(4))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint16(0), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, from, to uint16) {
		all, err := decodeRecords(b, 0, 1<<16)
		some, someErr := decodeRecords(b, int(from), int(to))
		if (err == nil) != (someErr == nil) {
			t.Fatalf("all groups give %v, some give %v", err, someErr)
		}
		if err != nil {
			return
		}
		again, err := decodeRecords(encodeRecords(all), 0, 1<<16)
		if err != nil || !slices.EqualFunc(all, again, sameRecord) {
			t.Fatalf("%v came back as %v (%v)", all, again, err)
		}
		in := slices.DeleteFunc(slices.Clone(all), func(r txn.Record) bool {
			group, _, _, _ := txn.SplitStateKey(r.Key)
			return group < int(from) || group >= int(to)
		})
		if !slices.EqualFunc(in, some, sameRecord) {
			t.Fatalf("of the groups [%d,%d) there are %v, want %v", from, to, some, in)
		}
	})
}

func sameRecord(a, b txn.Record) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.Delete == b.Delete && a.Merge == b.Merge
}
