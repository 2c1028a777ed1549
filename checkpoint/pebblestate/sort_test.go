package pebblestate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/txn"
)

func TestSortedIsInTheOrderOfKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Keys that begin alike, and end at every place around the packed bytes.
		key := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 20), func(end []byte) []byte {
			return append(bytes.Repeat([]byte{7}, 20-len(end)), end...)[rapid.IntRange(0, 1).Draw(t, "short")*len(end)/2:]
		})
		var records []txn.Record
		for i, k := range rapid.SliceOf(key).Draw(t, "keys") {
			records = append(records, txn.Record{Key: k, Value: fmt.Append(nil, i)})
		}
		given := slices.Clone(records)
		got := sorted(records)
		want := slices.Clone(records)
		slices.SortFunc(want, func(a, b txn.Record) int { return bytes.Compare(a.Key, b.Key) })
		if len(got) != len(want) {
			t.Fatalf("%d records of %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i].Key, want[i].Key) {
				t.Fatalf("record %d has key %x, want %x", i, got[i].Key, want[i].Key)
			}
			if !bytes.Equal(given[i].Value, records[i].Value) {
				t.Fatal("the records themselves were reordered")
			}
		}
	})
}

func BenchmarkSort(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	records := make([]txn.Record, 100_000)
	for i := range records {
		records[i].Key = txn.AppendStateKey(nil, r.IntN(256), 1, fmt.Appendf([]byte{8}, "key-%d", r.IntN(1e7)))
	}
	b.Run("packed", func(b *testing.B) {
		for b.Loop() {
			sorted(records)
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			c := slices.Clone(records)
			slices.SortFunc(c, func(a, b txn.Record) int { return bytes.Compare(a.Key, b.Key) })
		}
	})
}
