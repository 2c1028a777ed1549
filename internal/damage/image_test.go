package damage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
)

// salesEach is how many sales a partition has, perBatch how many of them a batch gets
// while the image is made: so many batches that chains of deltas get bases.
const (
	salesEach = 240
	perBatch  = 3

	orphansMax = 5
)

// run runs the topology from a data folder. A run that does not end fails the test.
func run(t testing.TB, data string, parts [][]sale, o *outside) (engine.Result, error) {
	t.Helper()
	type end struct {
		res engine.Result
		err error
	}
	ended := make(chan end, 1)
	topo := build(t, parts, 0, o)
	opts := []engine.Option{engine.WithName(topologyName), configured(t, nil), app.Local(data)}
	go func() {
		res, err := engine.Run(t.Context(), topo, opts...)
		ended <- end{res, err}
	}()
	select {
	case e := <-ended:
		return e.res, e.err
	case <-time.After(time.Minute):
		t.Fatalf("the run from %s hangs", data)
		panic("unreachable")
	}
}

// image is what a crash has left: a data folder, and the world outside as it was at
// that moment.
type image struct {
	data  string
	o     *outside
	heads [][]byte // that were replaced, oldest first
	parts [][]sale
	want  *outside
}

// images is made once for all tests.
var images struct {
	once sync.Once
	made *image
	err  error
}

// TestMain gives the tests a place in memory, if there is one: they make some ten
// thousand small files.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("/dev/shm", "isobar-damage-")
	if err != nil {
		dir, err = os.MkdirTemp("", "isobar-damage-")
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// theImage returns the image, which nobody may change.
func theImage(t *testing.T) *image {
	t.Helper()
	images.once.Do(func() { images.made, images.err = makeImage(t) })
	if images.err != nil {
		t.Fatal(images.err)
	}
	return images.made
}

// makeImage runs twice, so that there are two generations, and copies everything in the
// moment after the head has moved to a checkpoint with bases and deltas.
func makeImage(t *testing.T) (*image, error) {
	dir, err := os.MkdirTemp("", "isobar-damage-") //nolint:usetesting // it outlives the test that asks first
	if err != nil {
		return nil, err
	}
	live, o := t.TempDir(), newOutside()
	im := &image{data: dir, parts: input(salesEach)}
	im.want = expected(im.parts)
	taken, failed := false, error(nil)
	for runs, enough := range []int{4, 1 << 30} {
		moves := 0
		ctx, stop := context.WithCancel(t.Context())
		hook := func(step string) {
			if step != "head.after" || taken || failed != nil {
				return
			}
			if moves++; moves >= enough {
				stop()
			}
			if failed = im.look(live, o, runs > 0, &taken); failed != nil || taken {
				stop()
			}
		}
		_, err := engine.Run(ctx, build(t, im.parts, perBatch, o), engine.WithName(topologyName), configured(t, nil), app.Local(live), engine.WithHook(hook))
		stop()
		if err = errors.Join(err, failed); err != nil {
			return nil, err
		}
	}
	if !taken {
		return nil, errors.New("no checkpoint had bases and deltas of all tasks")
	}
	return im, im.leaveMore()
}

// look is called when the head of a live folder has just moved, which it does again
// only after look returns.
func (im *image) look(live string, o *outside, take bool, taken *bool) error {
	store := storeOf(live)
	name, err := headOf(live)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(live, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		return err
	}
	ripe, err := ripe(store, h)
	if err != nil {
		return err
	}
	if !take || !ripe {
		im.heads = append(im.heads, data)
		return nil
	}
	*taken = true
	im.o = o.clone()
	return copyTree(live, im.data, func(string) bool { return false })
}

// ripe reports whether every task with keyed state has bases and deltas in the current
// checkpoint, and others in an older one.
func ripe(store string, h *checkpoint.Head) (bool, error) {
	s, err := filestore.Open(store)
	if err != nil {
		return false, err
	}
	for _, r := range h.Regions {
		if len(r.Retained) < 3 {
			return false, nil
		}
		oldest, err := checkpoint.ReadManifest(context.Background(), s, r.Retained[0])
		if err != nil {
			return false, err
		}
		current, err := checkpoint.ReadManifest(context.Background(), s, *r.Current())
		if err != nil {
			return false, err
		}
		for _, task := range current.Tasks {
			isBase := func(f checkpoint.FileRef) bool { return f.Base }
			isDelta := func(f checkpoint.FileRef) bool { return !f.Base }
			if len(task.States) > 0 && (!slices.ContainsFunc(task.Files, isBase) || !slices.ContainsFunc(task.Files, isDelta)) {
				return false, nil
			}
		}
		if len(checkpoint.Deletable([]*checkpoint.Manifest{oldest}, []*checkpoint.Manifest{current})) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// leaveMore adds what other crashes leave: an object that no manifest names yet, and a
// file that was being written.
func (im *image) leaveMore() error {
	c := im.classify()
	if c.err != nil {
		return c.err
	}
	some := c.of[delta][0]
	data, err := os.ReadFile(filepath.Join(im.data, filepath.FromSlash(some)))
	if err != nil {
		return err
	}
	for i, rel := range c.of[orphan] { // a few tell as much as all of them
		if i >= orphansMax {
			err = errors.Join(err, os.Remove(filepath.Join(im.data, filepath.FromSlash(rel))))
		}
	}
	left := some[:strings.LastIndexByte(some, '-')] + "-LEFTBEHIND"
	temp := path.Join(path.Dir(some), ".tmp~1234")
	return errors.Join(err,
		os.WriteFile(filepath.Join(im.data, filepath.FromSlash(left)), data, 0o666),
		os.WriteFile(filepath.Join(im.data, filepath.FromSlash(temp)), data[:len(data)/2], 0o666),
	)
}

// kind is a kind of file in a data folder.
type kind string

const (
	head     kind = "head"
	manifest kind = "manifest" // of the current checkpoint
	delta    kind = "delta"    // of the current checkpoint
	base     kind = "base"     // of the current checkpoint

	// What a run does without.
	oldManifest kind = "manifest of an older checkpoint"
	oldData     kind = "data of older checkpoints only"
	orphan      kind = "object that no checkpoint names"
	temporary   kind = "temporary file"
	oldHead     kind = "head that was replaced"
	dataLock    kind = "lock of the data folder"
	note        kind = "note that it has run"
	local       kind = "local state"
)

// needed are the kinds without which there is no restart.
var needed = []kind{head, manifest, delta, base}

var spared = []kind{oldManifest, oldData, orphan, temporary, oldHead, dataLock, note, local}

// classes sorts the files of a data folder, by slash-separated path in it.
type classes struct {
	of  map[kind][]string
	err error
}

func storeOf(data string) string { return filepath.Join(data, "checkpoints", topologyName) }

// headOf returns the slash-separated path of the head in a data folder.
func headOf(data string) (string, error) {
	path, err := filestore.HeadFile(storeOf(data))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(data, path)
	return filepath.ToSlash(rel), err
}

const storeFolder = "checkpoints/" + topologyName + "/"

// classify knows every file of the image, or fails.
func (im *image) classify() classes {
	c := classes{of: map[kind][]string{}}
	named, err := im.named()
	if err != nil {
		return classes{err: err}
	}
	newest, err := headOf(im.data)
	if err != nil {
		return classes{err: err}
	}
	fixed := map[string]kind{newest: head, "lock": dataLock, "ran/" + topologyName: note}
	object := regexp.MustCompile(`^(manifest/|data/[0-9a-f]{16}/)[^/]+$`)
	c.err = filepath.WalkDir(im.data, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(im.data, at)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		k, known := fixed[rel]
		name, inStore := strings.CutPrefix(rel, storeFolder)
		switch {
		case known:
		case strings.HasPrefix(rel, "local/"):
			k = local
		case strings.HasPrefix(name, "heads/"):
			k = oldHead
		case inStore && strings.HasPrefix(path.Base(name), ".tmp~"):
			k = temporary
		case inStore && named[name] != "":
			k = named[name]
		case inStore && object.MatchString(name):
			k = orphan
		default:
			return fmt.Errorf("%s is of no known kind", rel)
		}
		c.of[k] = append(c.of[k], rel)
		return nil
	})
	return c
}

// named returns the kinds of the objects that the head keeps.
func (im *image) named() (map[string]kind, error) {
	s, h, err := im.open()
	if err != nil {
		return nil, err
	}
	named := map[string]kind{}
	for _, r := range h.Regions {
		for i, ref := range r.Retained {
			m, err := checkpoint.ReadManifest(context.Background(), s, ref)
			if err != nil {
				return nil, err
			}
			current := i == len(r.Retained)-1
			if named[ref.Manifest] = oldManifest; current {
				named[ref.Manifest] = manifest
			}
			for _, task := range m.Tasks {
				for _, f := range task.Files {
					switch {
					case !current: // what the current one names too is overwritten below
						named[f.Name] = oldData
					case f.Base:
						named[f.Name] = base
					default:
						named[f.Name] = delta
					}
				}
			}
		}
	}
	return named, nil
}

// whole reads everything that the head of a store keeps.
func whole(store string) error {
	ctx := context.Background()
	s, h, err := openStore(store)
	if err != nil {
		return err
	}
	for _, r := range h.Regions {
		for _, ref := range r.Retained {
			m, err := checkpoint.ReadManifest(ctx, s, ref)
			if err != nil {
				return err
			}
			for _, task := range m.Tasks {
				for _, f := range task.Files {
					if err := checkpoint.CopyObject(ctx, s, io.Discard, f.Name, f.Size, f.CRC32C); err != nil {
						return fmt.Errorf("checkpoint %s: %w", ref, err)
					}
				}
			}
		}
	}
	return nil
}

// open reads the image's head.
func (im *image) open() (*filestore.Store, *checkpoint.Head, error) {
	return openStore(storeOf(im.data))
}

func openStore(dir string) (*filestore.Store, *checkpoint.Head, error) {
	s, err := filestore.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	data, _, err := s.ReadHead(context.Background())
	if err != nil {
		return nil, nil, err
	}
	h, err := checkpoint.DecodeHead("head", data)
	return s, h, err
}

// copyTree copies a folder that may be in use: what goes away meanwhile is left out. The
// files for which link says so become further links to the same ones.
func copyTree(from, to string, link func(rel string) bool) error {
	return filepath.WalkDir(from, func(at string, e fs.DirEntry, err error) error {
		if err == nil {
			var rel string
			if rel, err = filepath.Rel(from, at); err != nil {
				return err
			}
			if e.IsDir() {
				return os.MkdirAll(filepath.Join(to, rel), 0o777)
			}
			if link(filepath.ToSlash(rel)) {
				return os.Link(at, filepath.Join(to, rel))
			}
			var data []byte
			if data, err = os.ReadFile(at); err == nil {
				err = os.WriteFile(filepath.Join(to, rel), data, 0o666)
			}
		}
		if errors.Is(err, fs.ErrNotExist) && at != from {
			return nil
		}
		return err
	})
}

// eachFile calls fn with every file below a folder; a missing one has none.
func eachFile(dir string, fn func(rel string, data []byte)) error {
	return filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if at == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(at)
		if err == nil {
			fn(filepath.ToSlash(rel), data)
		}
		return err
	})
}
