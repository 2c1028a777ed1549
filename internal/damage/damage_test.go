package damage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/internal/cli"
)

// spoil is one way to damage a file. It returns what the file holds then; nil stands
// for no file.
type spoil struct {
	name string
	do   func(data []byte) []byte
}

func flip(name string, at func(length int) int) spoil {
	return spoil{"bit flipped at the " + name, func(data []byte) []byte {
		data = bytes.Clone(data)
		i := at(len(data))
		data[i] ^= 1 << (i % 8)
		return data
	}}
}

func swap(name string, other []byte) spoil {
	return spoil{"replaced by " + name, func([]byte) []byte { return other }}
}

var removed = spoil{"removed", func([]byte) []byte { return nil }}

// spoils are the ways that need no other file.
var spoils = []spoil{
	flip("begin", func(int) int { return 0 }),
	flip("first quarter", func(n int) int { return n / 4 }),
	flip("middle", func(n int) int { return n / 2 }),
	flip("last quarter", func(n int) int { return n * 3 / 4 }),
	flip("end", func(n int) int { return n - 1 }),
	{"last byte missing", func(data []byte) []byte { return data[:len(data)-1] }},
	{"second half missing", func(data []byte) []byte { return data[:len(data)/2] }},
	{"emptied", func([]byte) []byte { return []byte{} }},
	{"a byte more", func(data []byte) []byte { return append(bytes.Clone(data), '\n') }},
	removed,
}

// folder is a copy of the image that a test may damage.
type folder struct {
	im  *image
	dir string
	o   *outside
}

// copy shares with the image the objects of the store, which a run never writes to.
func (im *image) copy(t *testing.T) *folder {
	t.Helper()
	f := &folder{im, t.TempDir(), im.o.clone()}
	isObject := func(rel string) bool {
		return strings.HasPrefix(rel, storeFolder+"data/") || strings.HasPrefix(rel, storeFolder+"manifest/")
	}
	if err := copyTree(im.data, f.dir, isObject); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) path(rel string) string { return filepath.Join(f.dir, filepath.FromSlash(rel)) }

func (f *folder) read(t *testing.T, rel string) []byte {
	t.Helper()
	data, err := os.ReadFile(f.path(rel))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// write makes data the content of a file; nil removes it.
func (f *folder) write(t *testing.T, rel string, data []byte) {
	t.Helper()
	err := os.Remove(f.path(rel))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if data != nil {
		err = errors.Join(err, os.WriteFile(f.path(rel), data, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// head returns the name of the head's file, "" if there is none.
func (f *folder) head(t *testing.T) string {
	t.Helper()
	name, err := headOf(f.dir)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatal(err)
	}
	return name
}

// objects returns everything in the store. The head is called "head", and those that it has
// replaced are left out.
func (f *folder) objects(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := eachFile(storeOf(f.dir), func(rel string, data []byte) {
		switch {
		case storeFolder+rel == f.head(t):
			all["head"] = string(data)
		case !strings.HasPrefix(rel, "heads/"):
			all[rel] = string(data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// finishes runs to the end, which must be exactly right and come from the current
// checkpoint of the image.
func (f *folder) finishes(t *testing.T) {
	t.Helper()
	_, h, err := f.im.open()
	if err != nil {
		t.Fatal(err)
	}
	res, err := run(t, f.dir, f.im.parts, f.o)
	if err != nil {
		t.Fatal(err)
	}
	if want := h.Regions["account"].Current(); res.From == nil || *res.From != *want {
		t.Errorf("the run went on from %v, the checkpoint is %v", res.From, want)
	}
	if err := f.o.differs(f.im.want); err != nil {
		t.Error(err)
	}
}

// refuses runs, which must fail with an error that names the file, if rel is not empty,
// and says one of the words, and must change nothing but the generation in the head.
func (f *folder) refuses(t *testing.T, rel string, words ...string) {
	t.Helper()
	before, published := f.objects(t), f.o.clone()
	_, err := run(t, f.dir, f.im.parts, f.o)
	if err == nil {
		t.Errorf("the run was not refused; output: %v", f.o.differs(f.im.want))
		return
	}
	if rel != "" && !strings.Contains(err.Error(), path.Base(rel)) {
		t.Errorf("the error does not name %s: %v", path.Base(rel), err)
	}
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		t.Errorf("the error says none of %q: %v", words, err)
	}
	if strings.Contains(err.Error(), "panic") {
		t.Errorf("a panic: %v", err)
	}
	after := f.objects(t)
	if err := sameHead(before["head"], after["head"]); err != nil {
		t.Error(err)
	}
	delete(before, "head")
	delete(after, "head")
	if !maps.Equal(before, after) {
		t.Errorf("the refused run left %q of %q", sortedKeys(after), sortedKeys(before))
	}
	if !f.o.same(published) {
		t.Error("the refused run has published something")
	}
}

// sameHead compares two heads apart from generations and the writer. Heads that cannot
// be read must be the same bytes.
func sameHead(before, after string) error {
	b, err := checkpoint.DecodeHead("head", []byte(before))
	if err != nil {
		if before != after {
			return errors.New("a head that cannot be read was changed")
		}
		return nil
	}
	a, err := checkpoint.DecodeHead("head", []byte(after))
	if err != nil {
		return err
	}
	for _, h := range []*checkpoint.Head{b, a} {
		h.Generation, h.Writer = 0, ""
		for name, r := range h.Regions {
			h.Regions[name] = checkpoint.RegionHead{Retained: r.Retained}
		}
	}
	if fmt.Sprint(*a) != fmt.Sprint(*b) {
		return fmt.Errorf("the head was changed from %v to %v", *b, *a)
	}
	return nil
}

// commands are those that look into checkpoints.
var commands = []string{"list", "show"}

// shows returns what the commands print, or what they complain about.
func (f *folder) shows(t *testing.T) (out, complaints map[string]string) {
	t.Helper()
	out, complaints = map[string]string{}, map[string]string{}
	for _, c := range commands {
		var o, e bytes.Buffer
		code := cli.Run([]string{"checkpoint", c, f.dir}, &o, &e)
		if out[c] = o.String(); code != 0 {
			complaints[c] = e.String()
		}
		if code != 0 && e.Len() == 0 {
			t.Errorf("%s failed without a word", c)
		}
	}
	return out, complaints
}

// looks compares what the commands print of a damaged folder with what they printed
// before: either it is the same, or they name the file.
func (f *folder) looks(t *testing.T, rel string, right map[string]string) {
	t.Helper()
	out, complaints := f.shows(t)
	for _, c := range commands {
		complaint, failed := complaints[c]
		switch {
		case failed && !strings.Contains(complaint, path.Base(rel)):
			t.Errorf("%s does not name the file: %s", c, complaint)
		case !failed && out[c] != right[c]:
			t.Errorf("%s prints\n%s\ninstead of\n%s", c, out[c], right[c])
		}
	}
}

// damagedWords are what errors say of a file that is not what it was.
var damagedWords = []string{"damaged"}

func TestDamagedFileThatIsNeeded(t *testing.T) {
	im := theImage(t)
	c := im.classify()
	if c.err != nil {
		t.Fatal(c.err)
	}
	for _, k := range needed {
		if len(c.of[k]) == 0 {
			t.Fatalf("the image has no %s", k)
		}
		for i, rel := range c.of[k] {
			t.Run(fmt.Sprint(k, " ", i), func(t *testing.T) {
				t.Parallel()
				f := im.copy(t)
				good := f.read(t, rel)
				for _, s := range slices.Concat(spoils, im.swaps(t, c, k, rel)) {
					t.Run(s.name, func(t *testing.T) {
						right, _ := f.shows(t)
						bad := s.do(good)
						f.write(t, rel, bad)
						f.looks(t, rel, right)
						words := damagedWords
						if bad == nil {
							words = []string{"not found", "no head"}
						}
						f.refuses(t, rel, words...)
						f.write(t, rel, good)
					})
				}
				f.finishes(t)
			})
		}
	}
}

// swaps are the ways to replace a file by another.
func (im *image) swaps(t *testing.T, c classes, k kind, rel string) []spoil {
	t.Helper()
	read := func(rel string) []byte { return (&folder{im: im, dir: im.data}).read(t, rel) }
	var all []spoil
	for _, other := range needed {
		i := slices.IndexFunc(c.of[other], func(r string) bool { return r != rel })
		if other == k {
			continue
		}
		all = append(all, swap("a "+string(other), read(c.of[other][i])))
	}
	switch k {
	case manifest:
		all = append(all, swap("an older manifest", read(c.of[oldManifest][0])))
	case delta, base:
		i := slices.Index(c.of[k], rel)
		all = append(all, swap("the next "+string(k), read(c.of[k][(i+1)%len(c.of[k])])))
		all = append(all, swap("another task's "+string(k), read(otherTask(c.of[k], rel))))
	}
	return all
}

// otherTask returns a file of another component or task.
func otherTask(files []string, rel string) string {
	owner := func(rel string) string {
		parts := strings.Split(path.Base(rel), "-")
		return parts[0] + parts[1]
	}
	return files[slices.IndexFunc(files, func(r string) bool { return owner(r) != owner(rel) })]
}

func TestDamagedFileThatIsNotNeeded(t *testing.T) {
	im := theImage(t)
	c := im.classify()
	if c.err != nil {
		t.Fatal(c.err)
	}
	some := []spoil{removed}
	for _, s := range spoils {
		if strings.Contains(s.name, "middle") || strings.Contains(s.name, "half") || s.name == "emptied" {
			some = append(some, s)
		}
	}
	some = append(some, swap("a head", (&folder{im: im, dir: im.data}).read(t, c.of[head][0])))
	for _, k := range spared {
		if len(c.of[k]) == 0 {
			t.Fatalf("the image has no %s", k)
		}
		for _, s := range some {
			t.Run(fmt.Sprint(k, " ", s.name), func(t *testing.T) {
				t.Parallel()
				f := im.copy(t)
				right, _ := f.shows(t)
				for _, rel := range c.of[k] {
					data := f.read(t, rel)
					if len(data) > 0 || s.name == removed.name {
						f.write(t, rel, s.do(data))
					}
				}
				f.looks(t, c.of[k][0], right)
				f.finishes(t)
			})
		}
	}
}
