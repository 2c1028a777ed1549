package generator

import (
	"encoding/binary"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// FuzzSeek: a position is refused, or there is as much left as there must be.
func FuzzSeek(f *testing.F) {
	f.Add("0/3", binary.BigEndian.AppendUint64(nil, 2))
	f.Add("2/3", binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Add("3/3", []byte{})
	f.Add("-1/3", []byte{1})
	f.Fuzz(func(t *testing.T, partition string, pos []byte) {
		s := New(Options{Fields: tuple.Fields{"n"}, Tuples: 100, Partitions: 3, Emit: func(uint64, *txn.Collector) {}})
		if err := s.Open(nil); err != nil {
			t.Fatal(err)
		}
		err := s.Seek(txn.PartitionID(partition), pos)
		switch {
		case err != nil && !txn.IsFatal(err):
			t.Fatalf("an error that is tried again: %v", err)
		case err == nil && pos != nil:
			if p := s.parts[0]; p.first > 2 || p.next != binary.BigEndian.Uint64(pos) || p.next > 34 {
				t.Fatalf("%q at %x is %+v", partition, pos, p)
			}
		}
	})
}
