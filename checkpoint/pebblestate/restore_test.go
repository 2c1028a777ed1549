package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/txn"
)

func newFilestore(t testing.TB) *filestore.Store {
	store, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// randomCut returns a cut of so many random keys below all, with values of 100 random bytes.
func randomCut(r *rand.Rand, n checkpoint.BatchID, keys, all int) *txn.Cut {
	cut := &txn.Cut{Batch: n}
	seen := map[int]bool{}
	for len(cut.Records) < keys {
		k := r.IntN(all)
		if seen[k] {
			continue
		}
		seen[k] = true
		value := make([]byte, 100)
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		cut.Records = append(cut.Records, txn.Record{Key: txn.AppendStateKey(nil, k%groups, 1, fmt.Appendf(nil, "%012d", k)), Value: value})
	}
	return cut
}

func sizeOf(files []checkpoint.FileRef) (bytes int64) {
	for _, f := range files {
		bytes += f.Size
	}
	return bytes
}

// linkingStore counts the objects that are opened and linked, and may refuse to link.
type linkingStore struct {
	*filestore.Store
	opened, linked atomic.Int32
	refuse         error
}

func (l *linkingStore) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	l.opened.Add(1)
	return l.Store.Open(ctx, name)
}

func (l *linkingStore) Link(ctx context.Context, name, path string) error {
	if l.refuse != nil {
		return fmt.Errorf("link: %w", l.refuse)
	}
	l.linked.Add(1)
	return l.Store.Link(ctx, name, path)
}

// objectFile is all that can be told of a file.
type objectFile struct {
	info fs.FileInfo
	data string
}

func objectFiles(t *testing.T, dir string) map[string]objectFile {
	t.Helper()
	found := map[string]objectFile{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		found[path] = objectFile{info, string(data)}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// linkedChain makes a store with a chain of bases and deltas, as of batch 4: 50 rows and
// a sum of 2 in each group.
func linkedChain(t *testing.T) (*linkingStore, []checkpoint.FileRef) {
	t.Helper()
	store := &linkingStore{Store: newFilestore(t)}
	s := openState(t, newOpener(t, t.TempDir(), store), config(1, 0))
	s.baseFileBytes = 4 << 10
	apply(t, s, cutOf(1, 100, 200, "some value that takes room"))
	s.startBase()
	s.bases.Wait()
	apply(t, s, plus(2))
	gone := cutOf(3, 150, 200, "")
	for i := range gone.Records {
		gone.Records[i].Delete = true
	}
	apply(t, s, gone)
	files := apply(t, s, plus(4))
	if len(files) < 6 || !files[2].Base {
		t.Fatalf("the chain is %+v", files)
	}
	return store, files
}

// Whatever becomes of a restored state, the objects that it links stay as they are.
func TestRestoreLinksObjectsAndLeavesThemAsTheyAre(t *testing.T) {
	for what, refuse := range map[string]error{"linked": nil, "copied": errors.ErrUnsupported} {
		t.Run(what, func(t *testing.T) {
			store, files := linkedChain(t)
			store.refuse = refuse
			before := objectFiles(t, store.String())
			o := newOpener(t, t.TempDir(), store)
			for tasks := 1; tasks <= 3; tasks++ {
				for task := range tasks {
					c := config(checkpoint.Generation(tasks+1), 4, files...)
					c.TaskID, c.GroupFrom, c.GroupTo = checkpoint.TaskID(task), task*groups/tasks, (task+1)*groups/tasks
					useAndClose(t, openState(t, o, c))
				}
			}
			if opened, linked := store.opened.Load(), store.linked.Load(); (opened == 0) != (refuse == nil) || (linked > 0) != (refuse == nil) {
				t.Errorf("%d objects were copied and %d linked", opened, linked)
			}
			after := objectFiles(t, store.String())
			for path, b := range before {
				if a, ok := after[path]; !ok || a.data != b.data || a.info.Mode() != b.info.Mode() || !os.SameFile(a.info, b.info) || !a.info.ModTime().Equal(b.info.ModTime()) {
					t.Errorf("%s was %+v and is %+v", path, b.info, a.info)
				}
			}
		})
	}
}

// useAndClose checks what linkedChain says and does all that changes a state.
func useAndClose(t *testing.T, s *state) {
	t.Helper()
	owned := s.config.GroupTo - s.config.GroupFrom
	if got := rows(t, s, 4); got != 51*owned {
		t.Errorf("restored are %d rows, want %d", got, 51*owned)
	}
	cut := plus(5)
	mine := cut.Records[:0]
	for _, r := range cut.Records {
		if g := int(r.Key[1]); g >= s.config.GroupFrom && g < s.config.GroupTo {
			mine = append(mine, r)
			if got, _, err := s.Get(r.Key); err != nil || string(got) != string(sumOf(2)) {
				t.Errorf("the sum of %x is %x, %v", r.Key, got, err)
			}
		}
	}
	cut.Records = mine
	apply(t, s, cut)
	s.Release(5)
	s.compact()
	s.startBase()
	s.bases.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestALinkedObjectIsVerified(t *testing.T) {
	for what, damage := range map[string]func(path string, data []byte) error{
		"flipped": func(path string, data []byte) error {
			data[len(data)/2] ^= 1
			return os.WriteFile(path, data, 0o666)
		},
		"cut short": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)-1], 0o666) },
		"too long":  func(path string, data []byte) error { return os.WriteFile(path, append(data, 'x'), 0o666) },
		"missing":   func(path string, _ []byte) error { return os.Remove(path) },
	} {
		t.Run(what, func(t *testing.T) {
			store, files := linkedChain(t)
			path := filepath.Join(store.String(), filepath.FromSlash(files[1].Name))
			data, err := os.ReadFile(path)
			if err == nil {
				err = damage(path, data)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := checkpoint.ErrDamaged
			if what == "missing" {
				want = checkpoint.ErrNotFound
			}
			_, err = newOpener(t, t.TempDir(), store).OpenState(t.Context(), config(2, 4, files...))
			if !errors.Is(err, want) || !strings.Contains(err.Error(), files[1].Name) {
				t.Errorf("restored with %v", err)
			}
		})
	}
	store, files := linkedChain(t)
	store.refuse = errors.New("outage")
	if _, err := newOpener(t, t.TempDir(), store).OpenState(t.Context(), config(2, 4, files...)); !errors.Is(err, store.refuse) {
		t.Errorf("a link that failed: %v", err)
	}
	store.refuse = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newOpener(t, t.TempDir(), store).OpenState(ctx, config(2, 4, files...)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCreateNewLeavesOtherNamesOfAFile(t *testing.T) {
	dir := t.TempDir()
	object, path := filepath.Join(dir, "object"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(object, []byte("content"), 0o600), os.Link(object, path)); err != nil {
		t.Fatal(err)
	}
	f, err := createNew(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(object); err != nil || string(data) != "content" {
		t.Errorf("the other name holds %q, %v", data, err)
	}
}

// BenchmarkRestore restores 256 MB of local files that are in the page cache: bases,
// and 30 deltas.
func BenchmarkRestore(b *testing.B) {
	const keys, perCut = 2_000_000, 250_000
	store, r := newFilestore(b), rand.New(rand.NewPCG(1, 2))
	o := newOpener(b, b.TempDir(), store)
	s := openState(b, o, config(1, 0))
	var files []checkpoint.FileRef
	n := checkpoint.BatchID(0)
	for k := 0; k < keys; k += perCut {
		n++
		cut := &txn.Cut{Batch: n}
		for i := range perCut {
			value := make([]byte, 100)
			for j := range value {
				value[j] = byte(r.Uint32())
			}
			cut.Records = append(cut.Records, txn.Record{Key: txn.AppendStateKey(nil, (k+i)%groups, 1, fmt.Appendf(nil, "%012d", k+i)), Value: value})
		}
		apply(b, s, cut)
		s.Release(n)
		s.bases.Wait()
	}
	s.startBase()
	s.bases.Wait()
	for range 30 {
		n++
		files = apply(b, s, randomCut(r, n, 2_000, keys))
		s.Release(n)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	size := sizeOf(files)
	g := checkpoint.Generation(1)
	b.SetBytes(size)
	for b.Loop() {
		g++
		restored := openState(b, o, config(g, n, files...))
		b.StopTimer()
		if err := restored.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(len(files)), "files")
	b.ReportMetric(float64(size)/1e6, "MB")
}
