package damage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
)

// A later version writes what this one does not know, with checksums that are right.

// sealed puts a document into the envelope of heads and manifests.
func sealed(kind string, version int, doc []byte) []byte {
	b := fmt.Appendf(nil, "isobar %s %d\n%s\n", kind, version, doc)
	return fmt.Appendf(b, "crc32c %08x\n", checkpoint.CRC(b))
}

// document takes it out again.
func document(data []byte) []byte { return bytes.Split(data, []byte("\n"))[1] }

// setHead changes the head.
func (f *folder) setHead(t *testing.T, change func(h *checkpoint.Head)) {
	t.Helper()
	h, err := checkpoint.DecodeHead("head", f.read(t, f.head(t)))
	if err != nil {
		t.Fatal(err)
	}
	change(h)
	data, err := checkpoint.EncodeHead(h)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, f.head(t), data)
}

// setManifest puts other bytes in the place of the current manifest, and their size and
// checksum into the head.
func (f *folder) setManifest(t *testing.T, change func(data []byte) []byte) {
	t.Helper()
	f.setHead(t, func(h *checkpoint.Head) {
		ref := h.Regions["account"].Current()
		data := change(f.read(t, storeFolder+ref.Manifest))
		f.write(t, storeFolder+ref.Manifest, data)
		ref.Size, ref.CRC32C = int64(len(data)), checkpoint.CRC(data)
	})
}

// setFile puts other bytes in the place of a file of state, and their size and checksum
// into the manifest.
func (f *folder) setFile(t *testing.T, rel string, data []byte) {
	t.Helper()
	f.write(t, rel, data)
	f.setManifest(t, func(old []byte) []byte {
		m, err := checkpoint.DecodeManifest("manifest", old)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range m.Tasks {
			for i := range task.Files {
				if entry := &task.Files[i]; storeFolder+entry.Name == rel {
					entry.Size, entry.CRC32C = int64(len(data)), checkpoint.CRC(data)
				}
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return sealed("manifest", 1, text)
	})
}

func TestFilesOfANewerVersion(t *testing.T) {
	im := theImage(t)
	c := im.classify()
	if c.err != nil {
		t.Fatal(c.err)
	}
	headName, manifestName := c.of[head][0], c.of[manifest][0]
	type change struct {
		name  string
		make  func(t *testing.T, f *folder)
		file  string
		words string
		shown bool // the commands can still tell what they tell
	}
	changes := []change{
		{"head", func(t *testing.T, f *folder) {
			f.write(t, headName, sealed("head", 4, document(f.read(t, headName))))
		}, headName, "newer isobar", false},
		{"manifest", func(t *testing.T, f *folder) {
			f.setManifest(t, func(data []byte) []byte { return sealed("manifest", 3, document(data)) })
		}, manifestName, "newer isobar", false},
		{"manifest with an unknown field", func(t *testing.T, f *folder) {
			f.setManifest(t, func(data []byte) []byte {
				return sealed("manifest", 1, bytes.Replace(document(data), []byte(`{`), []byte(`{"more":1,`), 1))
			})
		}, manifestName, `unknown field "more"`, false},
		{"tables", func(t *testing.T, f *folder) {
			f.setManifest(t, func(data []byte) []byte {
				return sealed("manifest", 1, bytes.Replace(document(data), []byte(checkpoint.TableFormat), []byte("pebble-v99"), 1))
			})
		}, "", `"pebble-v99"`, true},
		{"codec", func(t *testing.T, f *folder) {
			f.setManifest(t, func(data []byte) []byte {
				return sealed("manifest", 1, bytes.ReplaceAll(document(data), []byte(`"codec":"string","version":1`), []byte(`"codec":"string","version":9`)))
			})
		}, "", "version 9", true},
	}
	for _, k := range []kind{delta, base} {
		rel := c.of[k][0]
		changes = append(changes,
			change{string(k) + " with another footer", func(t *testing.T, f *folder) {
				data := f.read(t, rel)
				data[len(data)-9] = 99 // the version of the table's format, before the magic number
				f.setFile(t, rel, data)
			}, rel, "as a table of state", true},
			change{string(k) + " that is no table", func(t *testing.T, f *folder) {
				f.setFile(t, rel, bytes.Repeat([]byte("no table"), 100))
			}, rel, "as a table of state", true},
			change{string(k) + " that is empty", func(t *testing.T, f *folder) {
				f.setFile(t, rel, []byte("x"))
			}, rel, "as a table of state", true})
	}
	for _, ch := range changes {
		t.Run(ch.name, func(t *testing.T) {
			t.Parallel()
			f := im.copy(t)
			ch.make(t, f)
			_, complaints := f.shows(t)
			for _, cmd := range commands {
				if said, failed := complaints[cmd]; failed == ch.shown || failed && !strings.Contains(said, path.Base(ch.file)) {
					t.Errorf("%s says %q", cmd, said)
				}
			}
			f.refuses(t, ch.file, ch.words)
		})
	}
}

func TestMissingFolders(t *testing.T) {
	im := theImage(t)
	c := im.classify()
	if c.err != nil {
		t.Fatal(c.err)
	}
	for rel, words := range map[string]string{
		"checkpoints":                 "has run in data folder",
		"checkpoints/" + topologyName: "has run in data folder",
		storeFolder + "heads":         "has run in data folder",
		storeFolder + "manifest":      c.of[manifest][0][len(storeFolder):],
		storeFolder + "data":          "object data/",
		path.Dir(c.of[delta][0]):      "object data/",
		"local":                       "",
		"ran":                         "",
	} {
		t.Run(strings.ReplaceAll(rel, "/", "-"), func(t *testing.T) {
			t.Parallel()
			f := im.copy(t)
			if err := os.RemoveAll(f.path(rel)); err != nil {
				t.Fatal(err)
			}
			f.shows(t)
			if words == "" {
				f.finishes(t)
				return
			}
			f.refuses(t, "", words)
		})
	}
}

// TestMissingHeadAndNote: what tells of a head first is missing too.
func TestMissingHeadAndNote(t *testing.T) {
	t.Parallel()
	f := theImage(t).copy(t)
	f.write(t, "ran/"+topologyName, nil)
	if err := os.RemoveAll(f.path(storeFolder + "heads")); err != nil {
		t.Fatal(err)
	}
	f.refuses(t, "head", "no head that says which are committed")
}

// TestOlderHead puts back heads that were replaced. They are refused, because there are
// checkpoints that they do not know, or because what they name was deleted. From the one
// that lacks only the last step, as after a crash before that step, the run goes on.
func TestOlderHead(t *testing.T) {
	im := theImage(t)
	if len(im.heads) < 60 {
		t.Fatalf("there are only %d older heads", len(im.heads))
	}
	var went, refused atomic.Int64
	t.Run("each", func(t *testing.T) {
		for i, old := range im.heads {
			h, err := checkpoint.DecodeHead("head", old)
			if err != nil {
				t.Fatal(err)
			}
			current := h.Regions["account"].Current()
			if current == nil || i%10 != 0 && i < len(im.heads)-5 {
				continue // before the first commit, or one more of many
			}
			t.Run(current.String(), func(t *testing.T) {
				t.Parallel()
				f := im.copy(t)
				f.write(t, f.head(t), old)
				beyond := f.beyond(t, h, *current)
				if beyond <= 1 {
					went.Add(f.goesOnFrom(t, *current))
					return
				}
				refused.Add(1)
				f.refuses(t, "head", "is an old one")
			})
		}
	})
	if went.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d older heads were gone on from, %d refused", went.Load(), refused.Load())
	}
}

// beyond returns how many checkpoints of a head's generation the folder holds that are
// newer than ref, or 2 if it holds something of a newer generation.
func (f *folder) beyond(t *testing.T, h *checkpoint.Head, ref checkpoint.Ref) int {
	t.Helper()
	n := 0
	for name := range f.objects(t) {
		g, named := checkpoint.NameGeneration(name)
		if !named {
			continue
		}
		if g > h.Generation {
			return 2
		}
		newest := fmt.Sprintf("manifest/%016x.%016x-", ref.Generation, ref.Batch)
		if g == h.Generation && strings.HasPrefix(name, "manifest/") && name > newest && !strings.HasPrefix(name, newest) {
			n++
		}
	}
	return n
}

// goesOnFrom runs from an older checkpoint, and returns 1, unless files of it are missing.
func (f *folder) goesOnFrom(t *testing.T, ref checkpoint.Ref) int64 {
	t.Helper()
	res, err := run(t, f.dir, f.im.parts, f.o)
	if err != nil {
		if !strings.Contains(err.Error(), "not found") {
			t.Error(err)
		}
		return 0
	}
	if res.From == nil || *res.From != ref {
		t.Errorf("the run went on from %v, the head names %v", res.From, ref)
	}
	if !maps.Equal(f.o.shown, f.im.want.shown) {
		t.Errorf("from %s the state came out wrong", ref)
	}
	return 1
}
