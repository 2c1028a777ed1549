package pebblestate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// FuzzRestore restores a state from an object of any bytes, of which size and checksum
// are right. It is refused by its name, or becomes a state that can be read from end to
// end, or says that it cannot; and it can be closed.
func FuzzRestore(f *testing.F) {
	table := deltaOf(f)
	f.Add(table, uint8(0), uint8(groups))
	f.Add(table, uint8(3), uint8(9))
	f.Add(table[:len(table)/2], uint8(0), uint8(groups))
	f.Add([]byte("x"), uint8(0), uint8(1))
	const spots = 24
	for i := range spots {
		spoilt := bytes.Clone(table)
		spoilt[len(table)*i/spots] ^= 0x10
		f.Add(spoilt, uint8(i%3), uint8(groups))
	}
	f.Fuzz(func(t *testing.T, data []byte, from, to uint8) {
		if len(data) == 0 || from >= to || to > groups {
			return
		}
		store := memstore.New()
		ref := checkpoint.FileRef{
			Name: checkpoint.DataName(1, "count", 0, 1, "x"), Batch: 1, Generation: 1,
			Size: int64(len(data)), CRC32C: checkpoint.CRC(data), GroupTo: groups,
		}
		if err := store.Put(t.Context(), ref.Name, bytes.NewReader(data), ref.Size, ref.CRC32C); err != nil {
			t.Fatal(err)
		}
		o := New(Options{Dir: t.TempDir(), Store: store, CacheBytes: 1 << 20})
		defer func() {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}()
		c := config(2, 1, ref)
		c.GroupFrom, c.GroupTo = int(from), int(to)
		s, err := o.OpenState(t.Context(), c)
		if err != nil {
			if !strings.Contains(err.Error(), ref.Name) {
				t.Fatalf("the error does not name the object: %v", err)
			}
			return
		}
		readAll(t, s, c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// readAll reads a state in every way. That rows cannot be read is an error, and nothing
// worse; those that can are of the task's groups.
func readAll(t *testing.T, s checkpoint.StateStore, c checkpoint.StateConfig) {
	t.Helper()
	_ = s.Range(txn.AppendStateKey(nil, c.GroupFrom, 0, nil), nil, func(key, _ []byte) error {
		if group, _, _, ok := txn.SplitStateKey(key); ok && (group < c.GroupFrom || group >= c.GroupTo) {
			t.Fatalf("%x is of group %d, the task has [%d,%d)", key, group, c.GroupFrom, c.GroupTo)
		}
		return nil
	})
	for g := c.GroupFrom; g < c.GroupTo; g++ {
		for k := range 20 {
			_, _, _ = s.Get(txn.AppendStateKey(nil, g, 1, fmt.Appendf(nil, "%08d", k)))
		}
	}
	view, err := s.View(c.Restored)
	if err != nil {
		t.Fatal(err)
	}
	_ = view.Scan("n", func(_, _ []byte) error { return nil })
}

// deltaOf returns the object of a cut of many rows.
func deltaOf(t testing.TB) []byte {
	t.Helper()
	store := memstore.New()
	ref := apply(t, openState(t, newOpener(t, t.TempDir(), store), config(1, 0)), cutOf(1, 0, 50, "value"))[0]
	body, _, err := store.Open(context.Background(), ref.Name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
