package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/txn"
)

func exampleManifest() *Manifest {
	return &Manifest{
		Topology: "wordcount", RunID: "r1", Region: "lines", Generation: 3, Batch: 17, Ended: true,
		UnixMilli: 1700000000123, Engine: "0.1.0", Table: "pebble-v7", KeyGroups: 256, Graph: "9f3c",
		Components: map[string]ComponentMeta{"lines": {Parallelism: 1}, "count": {Parallelism: 2, Keyed: true}},
		Tasks: []TaskSnapshot{
			{Component: "lines", Positions: []txn.Position{{Partition: "a/ü.txt", Data: []byte{0, 255}}}, Finished: true},
			{
				Component: "count", Index: 1,
				Handles: []txn.Handle{{Batch: 16, Generation: 2, Data: []byte("x")}, {Batch: 17, Generation: 3}},
				Files: []FileRef{
					{Name: "data/1/count/1/9-a.sst", Base: true, Batch: 9, Generation: 1, Size: 10, CRC32C: 1, GroupFrom: 128, GroupTo: 256},
					{Name: "data/3/count/1/17-b.sst", Batch: 17, Generation: 3, Size: 20, CRC32C: 2, GroupFrom: 128, GroupTo: 256},
				},
				States: []txn.StateMeta{{ID: 1, Name: "count", Kind: "aggregate", Codec: "sum", Version: 1}},
			},
		},
	}
}

func exampleHead() *Head {
	return &Head{
		Topology: "wordcount", RunID: "r1", Generation: 3, Writer: "w-7",
		Regions: map[string]RegionHead{"lines": {Generation: 3, Retained: []Ref{
			{Generation: 2, Batch: 16, Manifest: "manifest/2.16-a", Size: 100, CRC32C: 5, UnixMilli: 1},
			{Generation: 3, Batch: 16, Manifest: "manifest/3.16-b", Size: 100, CRC32C: 6, UnixMilli: 2},
		}, Superseded: []Ref{{Generation: 2, Batch: 17, Manifest: "manifest/2.17-d", Size: 100}}, Settled: 15, Unsettled: []string{"manifest/2.17-d"}}},
		Pins: []Pin{{Ref: Ref{Generation: 1, Batch: 4, Manifest: "manifest/1.4-c", Size: 9, Ended: true}, Region: "lines", Name: "before"}},
	}
}

// A document that exists in both forms; the tests below hold for each of them.
type codec struct {
	kind    string
	version int
	encode  func() ([]byte, error)
	// again decodes and encodes.
	again func(data []byte) ([]byte, error)
}

func codecs() []codec {
	return []codec{
		{"manifest", manifestVersion, func() ([]byte, error) { return EncodeManifest(exampleManifest()) }, func(data []byte) ([]byte, error) {
			m, err := DecodeManifest("object-1", data)
			if err != nil {
				return nil, err
			}
			return EncodeManifest(m)
		}},
		{"head", headVersion, func() ([]byte, error) { return EncodeHead(exampleHead()) }, func(data []byte) ([]byte, error) {
			h, err := DecodeHead("object-1", data)
			if err != nil {
				return nil, err
			}
			return EncodeHead(h)
		}},
	}
}

func TestDocumentsSurviveARoundTrip(t *testing.T) {
	for _, c := range codecs() {
		data, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.again(data)
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s came back as\n%s(%v), was\n%s", c.kind, again, err, data)
		}
		if first, _, _ := strings.Cut(string(data), "\n"); first != fmt.Sprintf("isobar %s %d", c.kind, c.version) {
			t.Errorf("the first line is %q", first)
		}
	}
}

func TestEveryFlippedBitAndEveryCutIsRefused(t *testing.T) {
	for _, c := range codecs() {
		data, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, damaged []byte) {
			if _, err := c.again(damaged); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "object-1") {
				t.Fatalf("%s with %s: %v", c.kind, what, err)
			}
		}
		for i := range data {
			for bit := range 8 {
				b := bytes.Clone(data)
				b[i] ^= 1 << bit
				refused(fmt.Sprintf("bit %d of byte %d flipped", bit, i), b)
			}
			refused(fmt.Sprintf("only %d bytes", i), data[:i])
		}
		refused("a byte more", append(bytes.Clone(data), '\n'))
	}
}

// sealed returns an envelope with a right checksum around anything.
func sealed(text string) []byte {
	return fmt.Appendf([]byte(text), "crc32c %08x\n", CRC([]byte(text)))
}

func TestOtherVersionsAndDocumentsAreRefused(t *testing.T) {
	for _, c := range codecs() {
		data, _ := c.encode()
		_, doc, _ := bytes.Cut(data[:len(data)-trailerLen], []byte("\n"))
		_, err := c.again(sealed(fmt.Sprintf("isobar %s %d\n%s", c.kind, c.version+1, doc)))
		if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", c.version+1)) ||
			!strings.Contains(err.Error(), fmt.Sprintf("version %d", c.version)) {
			t.Errorf("version %d of %s: %v", c.version+1, c.kind, err)
		}
		if _, err := c.again(sealed(fmt.Sprintf("isobar %s 1\n%s", c.kind, doc))); err != nil {
			t.Errorf("version 1 of %s: %v", c.kind, err)
		}
		for _, text := range []string{
			"isobar other 1\n" + string(doc),
			"isobar " + c.kind + " 0\n" + string(doc),
			"isobar " + c.kind + " x\n" + string(doc),
			"isobar " + c.kind + " 1\n{}\n",
			"isobar " + c.kind + " 1\n" + strings.Replace(string(doc), "{", `{"novelty":1,`, 1),
			"isobar " + c.kind + " 1\n" + string(doc) + "{}\n",
			"isobar " + c.kind + " 1\n",
			"isobar " + c.kind + " 1",
		} {
			if _, err := c.again(sealed(text)); !errors.Is(err, ErrDamaged) {
				t.Errorf("%q was taken: %v", text, err)
			}
		}
	}
}

func TestManifestChecksFindWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(m *Manifest){
		"topology is empty":             func(m *Manifest) { m.Topology = "" },
		"is not UTF-8":                  func(m *Manifest) { m.Tasks[0].Positions[0].Partition = "\xff" },
		"partition \"a/ü.txt\" is list": func(m *Manifest) { m.Tasks[0].Positions = append(m.Tasks[0].Positions, m.Tasks[0].Positions[0]) },
		"batch is 0":                    func(m *Manifest) { m.Batch = 0 },
		"key groups are 65537":          func(m *Manifest) { m.KeyGroups = 65537 },
		"has parallelism 0":             func(m *Manifest) { m.Components["lines"] = ComponentMeta{} },
		"the component is not listed":   func(m *Manifest) { m.Tasks[0].Component = "other" },
		"not within parallelism 2":      func(m *Manifest) { m.Tasks[1].Index = 2 },
		"listed twice":                  func(m *Manifest) { m.Tasks[1] = m.Tasks[0] },
		"handle of batch 15 follows":    func(m *Manifest) { m.Tasks[1].Handles[1].Batch = 15 },
		"handle of 4.17 is newer":       func(m *Manifest) { m.Tasks[1].Handles[1].Generation = 4 },
		"has size 0":                    func(m *Manifest) { m.Tasks[1].Files[0].Size = 0 },
		"has a part that is empty":      func(m *Manifest) { m.Tasks[1].Files[0].Name = "/etc/passwd" },
		"counts for key groups [5,5)":   func(m *Manifest) { m.Tasks[1].Files[0].GroupFrom, m.Tasks[1].Files[0].GroupTo = 5, 5 },
		"[128,257) of 256":              func(m *Manifest) { m.Tasks[1].Files[0].GroupTo = 257 },
		"of 3.18 is newer":              func(m *Manifest) { m.Tasks[1].Files[1].Batch = 18 },
		"follows a delta":               func(m *Manifest) { f := m.Tasks[1].Files; f[0], f[1] = f[1], f[0] },
		"of batch 9 follows that of":    func(m *Manifest) { f := m.Tasks[1].Files; f[0].Base = false; f[0], f[1] = f[1], f[0] },
		"have the id 1":                 func(m *Manifest) { s := &m.Tasks[1].States; *s = append(*s, (*s)[0]) },
	} {
		m := exampleManifest()
		spoil(m)
		if _, err := EncodeManifest(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestHeadChecksFindWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(h *Head, r *RegionHead){
		"writer is empty":                  func(h *Head, r *RegionHead) { h.Writer = "" },
		"generation 3, the topology has 2": func(h *Head, r *RegionHead) { h.Generation = 2 },
		"generation 2, its checkpoint is":  func(h *Head, r *RegionHead) { r.Generation = 2 },
		"checkpoint 2.16 follows 3.16":     func(h *Head, r *RegionHead) { r.Retained[0], r.Retained[1] = r.Retained[1], r.Retained[0] },
		"pin 0.4":                          func(h *Head, r *RegionHead) { h.Pins[0].Generation = 0 },
		"has size -1":                      func(h *Head, r *RegionHead) { r.Retained[0].Size = -1 },
		"settled up to batch 17, its":      func(h *Head, r *RegionHead) { r.Settled = 17 },
		"unsettled checkpoint: object":     func(h *Head, r *RegionHead) { r.Unsettled[0] = "../head" },
	} {
		h := exampleHead()
		r := h.Regions["lines"]
		spoil(h, &r)
		h.Regions["lines"] = r
		if _, err := EncodeHead(h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAnyDrawnHeadSurvivesARoundTrip(t *testing.T) {
	text := rapid.StringN(1, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		h := &Head{Topology: text.Draw(t, "topology"), RunID: text.Draw(t, "run"), Writer: text.Draw(t, "writer"), Regions: map[string]RegionHead{}}
		for range rapid.IntRange(0, 3).Draw(t, "regions") {
			var r RegionHead
			batch := uint64(0)
			for range rapid.IntRange(0, 4).Draw(t, "refs") {
				batch += rapid.Uint64Range(1, 1<<61).Draw(t, "step")
				r.Generation += Generation(rapid.Uint64Range(1, 1<<61).Draw(t, "generation"))
				r.Retained = append(r.Retained, Ref{Generation: r.Generation, Batch: BatchID(batch),
					Manifest: "manifest/" + rapid.StringMatching(`[a-z0-9_-]{1,9}`).Draw(t, "name"), Size: rapid.Int64Min(1).Draw(t, "size"),
					CRC32C: rapid.Uint32().Draw(t, "crc"), UnixMilli: rapid.Int64Min(0).Draw(t, "time"), Ended: rapid.Bool().Draw(t, "ended")})
			}
			if len(r.Retained) > 0 {
				r.Settled = BatchID(rapid.Uint64Range(0, batch).Draw(t, "settled"))
				r.Unsettled = append(r.Unsettled, r.Retained[0].Manifest)
			}
			h.Generation = max(h.Generation, r.Generation)
			h.Regions[text.Draw(t, "region")] = r
		}
		data, err := EncodeHead(h)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeHead("head", data)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := EncodeHead(back); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%+v came back as %+v (%v)", h, back, err)
		}
	})
}

// fuzzDecoder feeds a decoder anything, bare and under a right checksum: it must
// not panic, and what it takes must survive a round trip.
func fuzzDecoder(f *testing.F, c codec) {
	data, err := c.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-trailerLen])
	f.Add([]byte("isobar " + c.kind + " 1\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, sealed(string(data))} {
			once, err := c.again(b)
			if err != nil {
				continue
			}
			if twice, err := c.again(once); err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%q came back as %q (%v)", once, twice, err)
			}
		}
	})
}

func FuzzDecodeManifest(f *testing.F) { fuzzDecoder(f, codecs()[0]) }
func FuzzDecodeHead(f *testing.F)     { fuzzDecoder(f, codecs()[1]) }

// oneObject is a store that holds one object.
type oneObject struct {
	Store
	name string
	data []byte
}

func (o oneObject) Open(_ context.Context, name string) (io.ReadCloser, int64, error) {
	if name != o.name {
		return nil, 0, ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(o.data)), int64(len(o.data)), nil
}

func TestReadManifestVerifiesAgainstItsRef(t *testing.T) {
	m := exampleManifest()
	data, err := EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	store := oneObject{name: "manifest/3.17-x", data: data}
	ref := Ref{Generation: 3, Batch: 17, Manifest: store.name, Size: int64(len(data)), CRC32C: CRC(data)}
	if got, err := ReadManifest(t.Context(), store, ref); err != nil || got.Region != m.Region {
		t.Fatalf("got %+v, %v", got, err)
	}
	for what, spoil := range map[string]func(r *Ref){
		"size above":       func(r *Ref) { r.Size++ },
		"size below":       func(r *Ref) { r.Size-- },
		"checksum":         func(r *Ref) { r.CRC32C ^= 1 },
		"batch":            func(r *Ref) { r.Batch++ },
		"generation":       func(r *Ref) { r.Generation++ },
		"name not in use!": func(r *Ref) { r.Manifest = "manifest/other" },
	} {
		bad := ref
		spoil(&bad)
		want := ErrDamaged
		if bad.Manifest != ref.Manifest {
			want = ErrNotFound
		}
		if _, err := ReadManifest(t.Context(), store, bad); !errors.Is(err, want) || !strings.Contains(err.Error(), bad.Manifest) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDocumentedExamplesCanBeRead(t *testing.T) {
	for _, c := range codecs() {
		page, err := os.ReadFile("../docs/format/" + c.kind + ".md")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(page), "```text\n")
		example, _, ok := strings.Cut(rest, "```\n")
		if !ok {
			t.Fatalf("the page on the %s has no example", c.kind)
		}
		if again, err := c.again([]byte(example)); err != nil || string(again) != example {
			t.Errorf("the example of a %s came back as %s (%v)", c.kind, again, err)
		}
	}
}
