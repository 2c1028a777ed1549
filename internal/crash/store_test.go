package crash

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/s3store"
)

// place is where a topology keeps its checkpoints and its output.
type place struct {
	data     string
	topology string
	output   string
	bucket   *s3store.Place // of the checkpoints; nil: they are in the data folder
	conf     []string       // says so to the process
}

func newPlace(t *testing.T, topology string) place {
	t.Helper()
	dir := t.TempDir()
	return place{data: filepath.Join(dir, "data"), topology: topology, output: filepath.Join(dir, "out.tsv")}
}

// store is the folder of the checkpoints.
func (p place) store() string { return filepath.Join(p.data, "checkpoints", p.topology) }

func (p place) open(t *testing.T) checkpoint.Store {
	t.Helper()
	if p.bucket != nil {
		return p.bucket.Look(p.topology)
	}
	s, err := filestore.Open(p.store())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// head reads the head; nil if there is none.
func (p place) head(t *testing.T) *checkpoint.Head {
	t.Helper()
	data, _, err := p.open(t).ReadHead(t.Context())
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// committed returns the newest committed checkpoint; nil if there is none.
func (p place) committed(t *testing.T) *checkpoint.Ref {
	t.Helper()
	h := p.head(t)
	if h == nil {
		return nil
	}
	if len(h.Regions) != 1 {
		t.Fatalf("the head has %d regions, want 1", len(h.Regions))
	}
	for _, r := range h.Regions {
		return r.Current()
	}
	return nil
}

// batch returns the number of the newest committed batch.
func (p place) batch(t *testing.T) checkpoint.BatchID {
	t.Helper()
	if ref := p.committed(t); ref != nil {
		return ref.Batch
	}
	return 0
}

func (p place) shown(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(p.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// current reads the manifest of the newest committed checkpoint; nil if there is none.
func (p place) current(t *testing.T) *checkpoint.Manifest {
	t.Helper()
	ref := p.committed(t)
	if ref == nil {
		return nil
	}
	mf, err := checkpoint.ReadManifest(t.Context(), p.open(t), *ref)
	if err != nil {
		t.Fatal(err)
	}
	return mf
}

// check fails unless the store and the output are what they may be at any moment:
// all that the head names is there and as recorded (invariants I6 and I8), and the
// output shows, as a whole, lines that are committed (invariant I1).
func (p place) check(t *testing.T, c *corpus) {
	t.Helper()
	s := p.open(t)
	h := p.head(t)
	if h == nil {
		for o, err := range s.List(t.Context(), "") {
			t.Errorf("there is no head, but object %s: %v", o.Name, err)
		}
		h = &checkpoint.Head{}
	}
	named := map[string]checkpoint.FileRef{}
	for name, r := range h.Regions {
		for _, ref := range r.Retained {
			mf, err := checkpoint.ReadManifest(t.Context(), s, ref)
			if err != nil {
				t.Fatal(err)
			}
			if mf.Generation != ref.Generation || mf.Batch != ref.Batch || mf.Region != name {
				t.Errorf("manifest %s is of checkpoint %d.%d of region %s", ref.Manifest, mf.Generation, mf.Batch, mf.Region)
			}
			for _, task := range mf.Tasks {
				for _, f := range task.Files {
					named[f.Name] = f
				}
			}
		}
	}
	for _, f := range named {
		if err := checkpoint.CopyObject(t.Context(), s, io.Discard, f.Name, f.Size, f.CRC32C); err != nil {
			t.Error(err)
		}
	}
	p.checkShown(t, c)
}

func (p place) checkShown(t *testing.T, c *corpus) {
	t.Helper()
	got := p.shown(t)
	total := totalOf(t, got)
	if want := render(c.first(total)); got != want {
		t.Errorf("the output shows no beginning of the input: %s", differ(got, want))
	}
	if n := p.counted(t, c); total > n {
		t.Errorf("the output shows %d words, but only %d are committed", total, n)
	}
}

// counted returns how many words the newest committed checkpoint has counted, by the
// positions of its files.
func (p place) counted(t *testing.T, c *corpus) int {
	t.Helper()
	mf := p.current(t)
	if mf == nil {
		return 0
	}
	offsets := map[string]int{}
	for _, task := range mf.Tasks {
		for _, pos := range task.Positions {
			offsets[string(pos.Partition)] = int(binary.BigEndian.Uint64(pos.Data[2:]))
		}
	}
	total := 0
	for i, x := range c.texts {
		if n := offsets[c.paths[i]]; n == len(x.data) {
			total += x.total
		} else {
			total += newText(x.data[:n]).total
		}
	}
	return total
}

// checkAll fails unless everything was counted, once.
func (p place) checkAll(t *testing.T, c *corpus) {
	t.Helper()
	p.check(t, c)
	if got, want := p.shown(t), c.all(); got != want {
		t.Errorf("wrong counts: %s", differ(got, want))
	}
	if ref := p.committed(t); ref == nil || !ref.Ended {
		t.Errorf("the newest checkpoint, %v, is not that of the end of the input", ref)
	}
}
