// Package checkpointtest holds the conformance suites of checkpoint.Store and of
// checkpoint.StateOpener: whoever implements one of them runs its suite.
package checkpointtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// RunStore runs the suite of checkpoint.Store. place makes a new empty place and
// returns a function that opens a store on it; the suite calls that several times
// for one place, also while other stores on it are open, and closes what it opens.
func RunStore(t *testing.T, place func(t *testing.T) (open func() checkpoint.Store)) {
	for name, test := range map[string]func(t *testing.T, open func() checkpoint.Store){
		"PutAndOpen":           putAndOpen,
		"PutAgain":             putAgain,
		"PutRefusesWrongBytes": putRefusesWrongBytes,
		"PutRefusesBadNames":   putRefusesBadNames,
		"PutFromManyAtOnce":    putFromManyAtOnce,
		"ReadAt":               readAt,
		"List":                 list,
		"Delete":               deleteObjects,
		"HeadSwaps":            headSwaps,
		"HeadRace":             headRace,
		"Reopen":               reopen,
		"CancelledContext":     cancelledContext,
	} {
		t.Run(name, func(t *testing.T) {
			open := place(t)
			test(t, func() checkpoint.Store {
				s := open()
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return s
			})
		})
	}
}

func put(t testing.TB, s checkpoint.Store, name, data string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(data), int64(len(data)), checkpoint.CRC([]byte(data))); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s checkpoint.Store, name string) string {
	t.Helper()
	body, size, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(len(data)) != size {
		t.Fatalf("%s has %d bytes, Open says %d", name, len(data), size)
	}
	return string(data)
}

func names(t testing.TB, s checkpoint.Store, prefix string) []string {
	t.Helper()
	var all []string
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o.Name)
	}
	return all
}

func putAndOpen(t *testing.T, open func() checkpoint.Store) {
	s := open()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	put(t, s, "data/1/a-0", "hello")
	put(t, s, "data/1/empty", "")
	put(t, s, "manifest/big.object_1", big)
	for name, want := range map[string]string{"data/1/a-0": "hello", "data/1/empty": "", "manifest/big.object_1": big} {
		if got := get(t, s, name); got != want {
			t.Errorf("%s came back with %d bytes, put were %d", name, len(got), len(want))
		}
	}
	if _, _, err := s.Open(t.Context(), "data/1/none"); !errors.Is(err, checkpoint.ErrNotFound) || !strings.Contains(err.Error(), "data/1/none") {
		t.Errorf("open of a missing object: %v", err)
	}
	if _, _, err := s.Open(t.Context(), "data"); err == nil {
		t.Error("a part of a name could be opened")
	}
}

func putAgain(t *testing.T, open func() checkpoint.Store) {
	s := open()
	put(t, s, "data/x", "first")
	put(t, s, "data/x", "first")
	for _, other := range []string{"other", "firs", "first!", ""} {
		err := s.Put(t.Context(), "data/x", strings.NewReader(other), int64(len(other)), checkpoint.CRC([]byte(other)))
		if !errors.Is(err, checkpoint.ErrExists) || !strings.Contains(err.Error(), "data/x") {
			t.Errorf("put of %q over %q: %v", other, "first", err)
		}
	}
	// A reader that is not at its beginning is read from there all the same.
	body := strings.NewReader("first")
	if _, err := body.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "data/y", body, 5, checkpoint.CRC([]byte("first"))); err != nil {
		t.Error(err)
	}
	if got := get(t, s, "data/x") + get(t, s, "data/y"); got != "firstfirst" {
		t.Errorf("the store holds %q", got)
	}
}

func putRefusesWrongBytes(t *testing.T, open func() checkpoint.Store) {
	s := open()
	crc := checkpoint.CRC([]byte("hello"))
	for what, c := range map[string]struct {
		body string
		size int64
		crc  uint32
	}{
		"a wrong checksum": {"hello", 5, crc ^ 1},
		"a short body":     {"hell", 5, crc},
		"a long body":      {"hello!", 5, crc},
	} {
		err := s.Put(t.Context(), "data/bad", strings.NewReader(c.body), c.size, c.crc)
		if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), "data/bad") {
			t.Errorf("put with %s: %v", what, err)
		}
		if _, _, err := s.Open(t.Context(), "data/bad"); !errors.Is(err, checkpoint.ErrNotFound) {
			t.Errorf("put with %s left something: %v", what, err)
		}
	}
	failing := errors.New("the disk is on fire")
	err := s.Put(t.Context(), "data/bad", &failingReader{err: failing}, 5, crc)
	if !errors.Is(err, failing) {
		t.Errorf("put of a body that cannot be read: %v", err)
	}
	if all := names(t, s, ""); len(all) != 0 {
		t.Errorf("refused objects are listed: %q", all)
	}
	put(t, s, "data/bad", "hello")
}

// failingReader gives half of the body and then fails.
type failingReader struct {
	err  error
	gave bool
}

func (f *failingReader) Read(p []byte) (int, error) {
	if f.gave {
		return 0, f.err
	}
	f.gave = true
	return copy(p, "hel"), nil
}

func (f *failingReader) Seek(int64, int) (int64, error) { return 0, nil }

func putRefusesBadNames(t *testing.T, open func() checkpoint.Store) {
	s := open()
	for _, name := range []string{"", "/", "/abs", "a//b", "a/", "..", "../up", "a/../b", "./a", "a b", "a\\b", "ä", "a\x00", ".tmp~x", "a:b"} {
		if err := s.Put(t.Context(), name, strings.NewReader("x"), 1, checkpoint.CRC([]byte("x"))); err == nil {
			t.Errorf("%q was taken as a name", name)
		}
		if err := s.Delete(t.Context(), name); err == nil {
			t.Errorf("%q was taken as a name by Delete", name)
		}
		if _, _, err := s.Open(t.Context(), name); err == nil {
			t.Errorf("%q was taken as a name by Open", name)
		}
	}
}

func putFromManyAtOnce(t *testing.T, open func() checkpoint.Store) {
	const writers, objects = 8, 6
	var wg sync.WaitGroup
	for w := range writers {
		s := open()
		wg.Go(func() {
			for i := range objects {
				same, own := fmt.Sprintf("same-%d", i), fmt.Sprintf("own-%d-%d", w, i)
				for _, data := range []string{same, own} {
					// In pairs of puts and deletes directories come and go.
					name := "data/" + data + "/x"
					if err := s.Put(t.Context(), name, strings.NewReader(data), int64(len(data)), checkpoint.CRC([]byte(data))); err != nil {
						t.Errorf("writer %d: %v", w, err)
					}
				}
				if err := s.Delete(t.Context(), "data/"+own+"/x"); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	if all := names(t, open(), "data/"); len(all) != objects {
		t.Errorf("%d objects are left: %q", len(all), all)
	}
}

func readAt(t *testing.T, open func() checkpoint.Store) {
	s := open()
	r, ok := s.(checkpoint.RangeReader)
	if !ok {
		t.Skip("it does not read parts of objects")
	}
	const data = "0123456789"
	put(t, s, "data/1/a", data)
	for off := range len(data) {
		for end := off; end <= len(data); end++ {
			p := make([]byte, end-off)
			if err := r.ReadAt(t.Context(), "data/1/a", p, int64(off)); string(p) != data[off:end] || err != nil {
				t.Errorf("bytes %d to %d are %q, %v", off, end, p, err)
			}
		}
	}
	for _, c := range []struct{ off, size int64 }{{8, 3}, {10, 1}, {100, 1}} {
		if err := r.ReadAt(t.Context(), "data/1/a", make([]byte, c.size), c.off); err == nil || errors.Is(err, checkpoint.ErrNotFound) {
			t.Errorf("%d bytes from %d: %v", c.size, c.off, err)
		}
	}
	err := r.ReadAt(t.Context(), "data/1/none", make([]byte, 1), 0)
	if !errors.Is(err, checkpoint.ErrNotFound) || !strings.Contains(err.Error(), "data/1/none") {
		t.Errorf("read of a missing object: %v", err)
	}
}

func list(t *testing.T, open func() checkpoint.Store) {
	s := open()
	if all := names(t, s, ""); len(all) != 0 {
		t.Errorf("a new store lists %q", all)
	}
	before := time.Now().Add(-time.Minute).UnixMilli()
	all := []string{"data/1/a", "data/1/a-b", "data/1/b/c", "data/1/b.x", "data/10", "data/2/a", "manifest/1.2-r"}
	for i := len(all) - 1; i >= 0; i-- {
		put(t, s, all[i], strings.Repeat("x", i))
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("head")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "data/", "data/1", "data/1/", "data/1/b", "data/1/b/", "data/1/b/c", "data/1/b/cc", "m", "z", "data/1/a"} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := names(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q gives %q, want %q", prefix, got, want)
		}
	}
	for o, err := range s.List(t.Context(), "data/2/") {
		if err != nil || o.Size != 5 || o.UnixMilli < before || o.UnixMilli > time.Now().Add(time.Minute).UnixMilli() {
			t.Errorf("list tells %+v, %v", o, err)
		}
	}
	for o, err := range s.List(t.Context(), "") {
		if err != nil || o.Name != all[0] {
			t.Errorf("list begins with %+v, %v", o, err)
		}
		break // the iteration must end here
	}
}

func deleteObjects(t *testing.T, open func() checkpoint.Store) {
	s := open()
	put(t, s, "data/1/a/x", "x")
	put(t, s, "data/1/b", "y")
	for range 2 {
		if err := s.Delete(t.Context(), "data/1/a/x"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if err := s.Delete(t.Context(), "data/7/never"); err != nil {
		t.Errorf("delete of what was never there: %v", err)
	}
	if got := names(t, s, ""); !slices.Equal(got, []string{"data/1/b"}) {
		t.Errorf("left are %q", got)
	}
	put(t, s, "data/1/a/x", "z")
	if got := get(t, s, "data/1/a/x"); got != "z" {
		t.Errorf("put after delete holds %q", got)
	}
}

func headSwaps(t *testing.T, open func() checkpoint.Store) {
	s := open()
	if _, v, err := s.ReadHead(t.Context()); !errors.Is(err, checkpoint.ErrNotFound) || v != "" {
		t.Fatalf("a new store has a head: version %q, %v", v, err)
	}
	swap := func(old checkpoint.Version, data string) (checkpoint.Version, error) {
		return s.SwapHead(t.Context(), old, []byte(data))
	}
	if _, err := swap("bogus", "h0"); !errors.Is(err, checkpoint.ErrHeadMoved) {
		t.Fatalf("a swap of no head that expects one: %v", err)
	}
	v1, err := swap("", "h1")
	if err != nil || v1 == "" {
		t.Fatalf("first swap: version %q, %v", v1, err)
	}
	v2, err := swap(v1, "h2")
	if err != nil || v2 == v1 || v2 == "" {
		t.Fatalf("second swap: version %q after %q, %v", v2, v1, err)
	}
	for _, stale := range []checkpoint.Version{"", v1, "bogus"} {
		if _, err := swap(stale, "bad"); !errors.Is(err, checkpoint.ErrHeadMoved) {
			t.Errorf("a swap of version %q: %v", stale, err)
		}
	}
	data, v, err := s.ReadHead(t.Context())
	if string(data) != "h2" || v != v2 || err != nil {
		t.Errorf("the head is %q at %q, %v", data, v, err)
	}
	if all := names(t, s, ""); len(all) != 0 {
		t.Errorf("swaps left objects: %q", all)
	}
}

func headRace(t *testing.T, open func() checkpoint.Store) {
	const writers, rounds = 16, 10
	stores := make([]checkpoint.Store, writers)
	for i := range stores {
		stores[i] = open()
	}
	var v checkpoint.Version
	for round := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		won := map[int]checkpoint.Version{}
		for w, s := range stores {
			wg.Go(func() {
				got, err := s.SwapHead(t.Context(), v, fmt.Appendf(nil, "round %d writer %d", round, w))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won[w] = got
				} else if !errors.Is(err, checkpoint.ErrHeadMoved) {
					t.Errorf("round %d writer %d: %v", round, w, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d was won by %d writers", round, len(won))
		}
		for w, version := range won {
			data, now, err := stores[0].ReadHead(t.Context())
			if want := fmt.Sprintf("round %d writer %d", round, w); string(data) != want || now != version || err != nil {
				t.Fatalf("the head is %q at %q, want %q at %q (%v)", data, now, want, version, err)
			}
			v = version
		}
	}
}

func reopen(t *testing.T, open func() checkpoint.Store) {
	s := open()
	put(t, s, "data/1/a", "hello")
	v, err := s.SwapHead(t.Context(), "", []byte("head"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open()
	if got := get(t, again, "data/1/a"); got != "hello" {
		t.Errorf("the object holds %q", got)
	}
	data, v2, err := again.ReadHead(t.Context())
	if string(data) != "head" || v2 != v || err != nil {
		t.Errorf("the head is %q at %q, was at %q, %v", data, v2, v, err)
	}
	if _, err := again.SwapHead(t.Context(), v, []byte("next")); err != nil {
		t.Error(err)
	}
}

func cancelledContext(t *testing.T, open func() checkpoint.Store) {
	s := open()
	put(t, s, "data/1/a", "hello")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := bytes.NewReader([]byte("x"))
	if err := s.Put(ctx, "data/1/b", body, 1, checkpoint.CRC([]byte("x"))); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, _, err := s.Open(ctx, "data/1/a"); !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
	for _, err := range s.List(ctx, "") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("list: %v", err)
		}
	}
	if _, err := s.SwapHead(ctx, "", []byte("head")); !errors.Is(err, context.Canceled) {
		t.Errorf("swap head: %v", err)
	}
	if got := names(t, s, ""); !slices.Equal(got, []string{"data/1/a"}) {
		t.Errorf("the store holds %q", got)
	}
}
