//go:build unix

package supervisor

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// put stores an object.
func put(t *testing.T, store cluster.Store, bucket, name string, content []byte) {
	t.Helper()
	objects, err := store.Objects(t.Context(), bucket)
	if err == nil {
		_, err = objects.Put(t.Context(), name, bytes.NewReader(content), "", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWrongProgramIsRefusedAndFetchedAgain(t *testing.T) {
	r := newRig(t).start()
	content, err := program()
	if err != nil {
		t.Fatal(err)
	}
	// The object is whole, and not what the assignment names.
	good := append(slices.Clone(content), "good"...)
	sum := sha256.Sum256(good)
	name := hex.EncodeToString(sum[:])
	put(t, r.admin, cluster.ObjectsBinaries, name, append(slices.Clone(content), "evil"...))
	a := assignment(topology, 1, 1, []string{"run"}, 6700)
	a.Version.Binary = cluster.Binary{SHA256: name, Size: int64(len(good))}
	r.assign(a)
	p := r.process(topology, 6700, "is refused", func(p cluster.ProcessStatus) bool { return strings.Contains(p.Exit, "it was refused") })
	if p.Running || len(glob(r.cfg.Dir, binariesDir, "[0-9a-f]*")) != 0 {
		t.Errorf("%+v", p)
	}
	put(t, r.admin, cluster.ObjectsBinaries, name, good)
	r.running(topology, 6700)
	if left := glob(r.cfg.Dir, binariesDir, "*"); len(left) != 1 {
		t.Errorf("files are left: %q", left)
	}
}

func TestDamagedProgramOnDiskIsFetchedAgain(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	first := r.running(topology, 6700)
	r.shutdown()
	r.killAll()
	path := glob(r.cfg.Dir, binariesDir, "*")[0]
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.condition("it is dead", func() bool { return !alive(first.PID) })
	content[len(content)/2] ^= 1
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o500); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.running(topology, 6700)
	if !r.log.has("is damaged, and fetched again") {
		t.Errorf("the damage was not seen:\n%s", r.log)
	}
}

// slow is a store whose objects are given out when the test says.
type slow struct {
	cluster.Store
	asked chan string
	give  chan struct{}
}

type slowObjects struct {
	cluster.Objects
	store *slow
}

func (s *slow) Objects(ctx context.Context, name string) (cluster.Objects, error) {
	o, err := s.Store.Objects(ctx, name)
	return slowObjects{o, s}, err
}

func (o slowObjects) Get(ctx context.Context, name string) (io.ReadCloser, cluster.Object, error) {
	select {
	case o.store.asked <- name:
	case <-ctx.Done():
		return nil, cluster.Object{}, ctx.Err()
	}
	select {
	case <-o.store.give:
	case <-ctx.Done():
		return nil, cluster.Object{}, ctx.Err()
	}
	return o.Objects.Get(ctx, name)
}

// slowRig is a rig whose supervisor gets its objects slowly.
func slowRig(t *testing.T) (*rig, *slow) {
	r := newRig(t)
	s := &slow{asked: make(chan string), give: make(chan struct{})}
	r.wrap = func(store cluster.Store) cluster.Store { s.Store = store; return s }
	return r.start(), s
}

func TestHeartbeatGoesOnWhileAProgramIsFetchedOnceForAll(t *testing.T) {
	r, s := slowRig(t)
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	r.assign(assignment("v-1-2", 1, 1, []string{"run"}, 6701))
	<-s.asked
	began := r.await("it beats", func(cluster.Supervisor) bool { return true }).Beat
	r.await("it has beaten 3 times more", func(now cluster.Supervisor) bool { return now.Beat >= began+3 })
	s.give <- struct{}{}
	r.running(topology, 0)
	r.running(topology, 6700)
	r.running("v-1-2", 6701) // a second request would have waited for the test
}

func TestWhatIsNotWantedAnyMoreIsNotFetched(t *testing.T) {
	r, s := slowRig(t)
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	<-s.asked
	stopped := assignment(topology, 1, 2, []string{"run"}, 6700)
	stopped.Stop = true
	r.assign(stopped)
	r.empty(topology)
	if r.log.has("a process was started") {
		t.Error("it was started")
	}
}

func TestSecretsAreKeptForWhenTheStoreIsAway(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	first := r.running(topology, 6700)
	if err := r.secrets.Delete(t.Context(), topology, 0); err != nil {
		t.Fatal(err)
	}
	var killed cluster.KilledWorkers
	if err := r.ask(cluster.VerbKillWorkers, nil, &killed); err != nil || killed.Processes != 1 {
		t.Errorf("%+v, %v", killed, err)
	}
	r.process(topology, 6700, "runs again", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.PID != first.PID })
	r.running(topology, 6700)
	if p, _ := r.spec(topology, 6700); p.Secret != "s3cret-of-"+topology {
		t.Errorf("secret %q", p.Secret)
	}
	// Those of another epoch are of no use.
	value := []byte(`{"epoch":1,"secret":"old"}`)
	a := assignment(topology, 2, 2, []string{"run"}, 6700)
	r.assign(a)
	if _, err := r.secrets.Put(t.Context(), topology, value); err != nil {
		t.Fatal(err)
	}
	v := assignment(topology, 3, 3, []string{"run"}, 6700)
	v.Version.Binary = r.binary
	if err := r.assignOnly(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	p := r.process(topology, 6700, "waits for its secrets", func(p cluster.ProcessStatus) bool {
		return p.Epoch == 3 && strings.Contains(p.Exit, "they are of epoch 1, not 3")
	})
	if strings.Contains(p.Exit, "old") {
		t.Errorf("a secret is shown: %+v", p)
	}
}

func newTestCache(t *testing.T, budget int64) (*cache, *memcluster.Store) {
	store := memcluster.New().Connect("supervisor")
	dir := t.TempDir()
	for _, name := range []string{binariesDir, blobsDir} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return newCache(dir, budget, store, slog.New(slog.DiscardHandler)), store
}

func TestCacheRemovesWhatWasNotUsedForTheLongestTime(t *testing.T) {
	c, store := newTestCache(t, 25)
	place := func(port int) slots.Place { return slots.Place{ID: topology, Role: cluster.RoleWorker, Port: port} }
	var paths []string
	now := time.Now()
	for i := range 5 {
		content := bytes.Repeat([]byte{byte(i)}, 10)
		sum := sha256.Sum256(content)
		name := hex.EncodeToString(sum[:])
		put(t, store, cluster.ObjectsBinaries, name, content)
		path, err := c.program(t.Context(), place(i), cluster.Binary{SHA256: name, Size: 10})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		used := now.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (n []int) {
		for i, path := range paths {
			if _, err := os.Stat(path); err == nil {
				n = append(n, i)
			}
		}
		return n
	}
	c.trim(c.budget)
	if n := left(); len(n) != 5 {
		t.Errorf("all are in use, and only %v are left", n)
	}
	for _, i := range []int{1, 2, 3, 4} {
		c.release(place(i))
	}
	c.trim(c.budget)
	if n := left(); !slices.Equal(n, []int{0, 4}) {
		t.Errorf("%v are left: 0 is in use, 4 was used last", n)
	}
}

// archive makes a tar, zip or gzip file.
func archive(t *testing.T, kind string, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	var err error
	check := func(e error) {
		if err == nil {
			err = e
		}
	}
	switch kind {
	case "gzip":
		z := gzip.NewWriter(&buf)
		_, e := io.WriteString(z, "text")
		check(e)
		check(z.Close())
	case "zip":
		z := zip.NewWriter(&buf)
		for _, name := range names {
			w, e := z.Create(name)
			check(e)
			_, e = io.WriteString(w, "text")
			check(e)
		}
		check(z.Close())
	default:
		w := tar.NewWriter(&buf)
		for _, name := range names {
			h := &tar.Header{Name: name, Mode: 0o755, Size: 4}
			if kind == "link" {
				h = &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "/etc"}
			}
			check(w.WriteHeader(h))
			if kind != "link" {
				_, e := io.WriteString(w, "text")
				check(e)
			}
		}
		check(w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestArchivesAreUnpackedAndStayInside(t *testing.T) {
	for _, test := range []struct {
		name    string
		content []byte
		limit   int64
		file    string
		fails   bool
	}{
		{name: "tar", content: archive(t, "tar", "a/b"), file: "a/b"},
		{name: "zip", content: archive(t, "zip", "a/b"), file: "a/b"},
		{name: "gzip", content: archive(t, "gzip"), file: "."},
		{name: "neither", content: []byte("text"), fails: true},
		{name: "a link", content: archive(t, "link", "a"), fails: true},
		{name: "out of the folder", content: archive(t, "tar", "../../a"), fails: true},
		{name: "out of the folder, zip", content: archive(t, "zip", "../../a"), fails: true},
		{name: "absolute", content: archive(t, "tar", "/tmp/isobar-unpacked"), fails: true},
		{name: "too large", content: archive(t, "zip", "a"), limit: 3, fails: true},
	} {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "x", "archive"), filepath.Join(dir, "x", "out")
		if err := os.Mkdir(filepath.Join(dir, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(from, test.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if test.limit == 0 {
			test.limit = 1 << 20
		}
		err := unpack(from, to, test.limit)
		if (err != nil) != test.fails {
			t.Errorf("%s: error %v", test.name, err)
		}
		if !test.fails {
			if text, err := os.ReadFile(filepath.Join(to, test.file)); err != nil || string(text) != "text" {
				t.Errorf("%s: %q, %v", test.name, text, err)
			}
		}
		outside := 0
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if d.Type().IsRegular() && path != from && !strings.HasPrefix(path, to) {
				outside++
			}
			return nil
		})
		if outside > 0 {
			t.Errorf("%s: %d files are outside", test.name, outside)
		}
	}
}
