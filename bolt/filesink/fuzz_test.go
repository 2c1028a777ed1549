package filesink

import (
	"encoding/json"
	"testing"

	"github.com/isobar-io/isobar/txn"
)

// FuzzDecodeHandle: a handle that can be read is written as it was.
func FuzzDecodeHandle(f *testing.F) {
	for _, h := range []handle{
		{Version: handleVersion},
		{Version: handleVersion, Publish: []partRef{{"a", 1, 2}, {"b", 3, 4}}, Open: &openRef{partRef{"c", 5, 6}, 7, 8}},
	} {
		data, err := json.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHandle(txn.Handle{Batch: 1, Data: data})
		if err != nil {
			return
		}
		once, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeHandle(txn.Handle{Batch: 1, Data: once})
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(once) {
			t.Fatalf("%s came back as %s (%v)", once, twice, err)
		}
	})
}
