//go:build unix

package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// name writes the record of a blob, as nimbus does.
func (r *rig) name(key string, content []byte) {
	r.t.Helper()
	r.keeps(key, cluster.BlobRecord{Key: key, Owner: "ann", SHA256: digest(content), Size: int64(len(content))})
}

func (r *rig) keeps(key string, b cluster.BlobRecord) {
	r.t.Helper()
	text, err := json.Marshal(b)
	if err == nil {
		_, err = r.blobs.Put(r.t.Context(), cluster.KeyOfBlob(key), text)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// upload puts content where it belongs.
func (r *rig) upload(content []byte) {
	r.t.Helper()
	put(r.t, r.admin, cluster.ObjectsBlobs, digest(content), content)
}

// blob gives a blob a content.
func (r *rig) blob(key, content string) {
	r.t.Helper()
	r.upload([]byte(content))
	r.name(key, []byte(content))
}

// read returns what the worker at port 6700 finds under a name.
func (r *rig) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.folder(topology, 6700), name))
	return string(text)
}

// wantsBlobs assigns a worker that uses blobs.
func (r *rig) wantsBlobs(epoch uint64, blobs ...cluster.Blob) {
	r.t.Helper()
	a := assignment(topology, epoch, epoch, []string{"run"}, 6700)
	a.Version.Blobs = blobs
	r.assign(a)
}

// waits waits until the worker at port 6700 is not started, for a reason.
func (r *rig) waits(why ...string) {
	r.t.Helper()
	r.process(topology, 6700, "waits because of "+strings.Join(why, ", "), func(p cluster.ProcessStatus) bool {
		for _, text := range why {
			if !strings.Contains(p.Exit, text) {
				return false
			}
		}
		return !p.Running && p.PID == 0
	})
}

func TestBlobsAreLinkedAndFollowed(t *testing.T) {
	r := newRig(t)
	r.blob("words", "one")
	r.blob("rules", "one")
	r.start()
	blobs := []cluster.Blob{{Key: "words", LocalName: "words.txt"}, {Key: "rules", LocalName: "rules.txt", WorkerRestart: true}}
	r.wantsBlobs(1, blobs...)
	first := r.running(topology, 6700)
	if r.read("words.txt") != "one" || r.read("rules.txt") != "one" {
		t.Errorf("words %q, rules %q", r.read("words.txt"), r.read("rules.txt"))
	}
	r.blob("rules", "one") // another revision of the same
	r.blob("words", "two")
	r.condition("words are new", func() bool { return r.read("words.txt") == "two" })
	r.blob("words", "three") // the look that finds this has seen the rules, too
	r.condition("words are new", func() bool { return r.read("words.txt") == "three" })
	if r.log.has("blob=rules") {
		t.Errorf("the same content is a new version:\n%s", r.log)
	}
	r.blob("rules", "two")
	p := r.process(topology, 6700, "was made anew", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.PID != first.PID })
	if p.Restarts != 0 || r.read("rules.txt") != "two" {
		t.Errorf("%+v, rules %q", p, r.read("rules.txt"))
	}
	// A blob that is gone leaves its last version.
	if err := r.blobs.Delete(t.Context(), cluster.KeyOfBlob("words"), 0); err != nil {
		t.Fatal(err)
	}
	r.wantsBlobs(2, blobs...)
	r.process(topology, 6700, "is of epoch 2", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.Epoch == 2 })
	if r.read("words.txt") != "three" {
		t.Errorf("words %q", r.read("words.txt"))
	}
}

// A version of the topology finds its own blobs, and none of the version before.
func TestBlobsOfAnotherVersionGo(t *testing.T) {
	r := newRig(t)
	r.blob("words", "words")
	r.blob("rules", "rules")
	r.start()
	r.wantsBlobs(1, cluster.Blob{Key: "words", LocalName: "a"}, cluster.Blob{Key: "rules", LocalName: "b"}, cluster.Blob{Key: "rules", LocalName: "c"})
	r.running(topology, 6700)
	r.wantsBlobs(2, cluster.Blob{Key: "rules", LocalName: "a"}, cluster.Blob{Key: "rules", LocalName: "c"})
	r.process(topology, 6700, "is of epoch 2", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.Epoch == 2 })
	_, err := os.Lstat(filepath.Join(r.folder(topology, 6700), "b"))
	if r.read("a") != "rules" || r.read("c") != "rules" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a %q, c %q, b: %v", r.read("a"), r.read("c"), err)
	}
}

// Whoever may put objects may replace the content of a blob, and nobody is given that.
func TestAlteredBlobIsRefused(t *testing.T) {
	good := []byte("good")
	for name, c := range map[string]struct {
		blob    cluster.Blob
		content []byte
		alter   func(r *rig, name string)
		why     string
	}{
		"replaced": {
			blob: cluster.Blob{Key: "words"}, content: good, why: "it was refused; upload it again",
			alter: func(r *rig, name string) { put(r.t, r.admin, cluster.ObjectsBlobs, name, []byte("evil")) },
		},
		"not as it is described": {
			blob: cluster.Blob{Key: "words"}, content: good, why: "it is damaged",
			alter: func(r *rig, name string) { r.server.Damage(cluster.ObjectsBlobs, name) },
		},
		"archive": {
			blob: cluster.Blob{Key: "words", Uncompress: true}, content: archive(t, "gzip"), why: "it was refused",
			alter: func(r *rig, name string) {
				put(r.t, r.admin, cluster.ObjectsBlobs, name, archive(r.t, "tar", "a"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.upload(c.content)
			r.name("words", c.content)
			c.alter(r, digest(c.content))
			r.start()
			r.wantsBlobs(1, c.blob)
			r.waits(`fetch blob "words"`, c.why)
			if left := glob(r.cfg.Dir, blobsDir, "*", "[0-9a-f]*"); len(left) != 0 || r.read("words") != "" {
				t.Errorf("it was kept: %q", left)
			}
			r.upload(c.content)
			r.running(topology, 6700)
			if c.blob.Uncompress && r.read("words") != "text" || !c.blob.Uncompress && r.read("words") != "good" {
				t.Errorf("words %q", r.read("words"))
			}
		})
	}
}

// forger is a store that gives out other contents than it says.
type forger struct{ cluster.Store }

type forgedObjects struct{ cluster.Objects }

func (f forger) Objects(ctx context.Context, name string) (cluster.Objects, error) {
	o, err := f.Store.Objects(ctx, name)
	if name != cluster.ObjectsBlobs {
		return o, err
	}
	return forgedObjects{o}, err
}

func (o forgedObjects) Get(ctx context.Context, name string) (io.ReadCloser, cluster.Object, error) {
	r, is, err := o.Objects.Get(ctx, name)
	if err == nil {
		err = r.Close()
	}
	return io.NopCloser(strings.NewReader("evil")), is, err
}

// The supervisor relies on nobody's check but its own.
func TestForgedBlobIsRefused(t *testing.T) {
	r := newRig(t)
	r.wrap = func(s cluster.Store) cluster.Store { return forger{s} }
	r.blob("words", "good")
	r.start()
	r.wantsBlobs(1, cluster.Blob{Key: "words"})
	r.waits(`fetch blob "words"`, "its SHA-256 is "+digest([]byte("evil")), "it was refused")
}

// A worker that runs keeps what it has until there is the content that it is to have.
func TestAlteredUpdateOfABlobIsRefused(t *testing.T) {
	r := newRig(t)
	r.blob("words", "one")
	r.start()
	r.wantsBlobs(1, cluster.Blob{Key: "words", WorkerRestart: true})
	first := r.running(topology, 6700)
	two := []byte("two")
	put(t, r.admin, cluster.ObjectsBlobs, digest([]byte("one")), []byte("evil")) // nobody looks there any more
	put(t, r.admin, cluster.ObjectsBlobs, digest(two), []byte("bad"))
	r.name("words", two)
	r.condition("it was refused", func() bool {
		return r.log.has("a blob is not brought up to date") && r.log.has(`fetch blob \"words\"`) && r.log.has("it was refused")
	})
	if p := r.running(topology, 6700); p.PID != first.PID || r.read("words") != "one" {
		t.Errorf("%+v, words %q", p, r.read("words"))
	}
	r.upload(two)
	r.process(topology, 6700, "was made anew", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.PID != first.PID })
	if r.read("words") != "two" {
		t.Errorf("words %q", r.read("words"))
	}
}

func TestBlobRecordsThatAreWrongAreRefused(t *testing.T) {
	r := newRig(t).start()
	r.upload([]byte("good"))
	for i, c := range []struct {
		record cluster.BlobRecord
		why    string
	}{
		{cluster.BlobRecord{Key: "words", Owner: "ann"}, `the record of blob "words": the SHA-256 of its content is ""`},
		{cluster.BlobRecord{Key: "other", SHA256: digest([]byte("good")), Size: 4}, `the record of blob "words" is that of "other"`},
		{cluster.BlobRecord{Key: "words", SHA256: digest([]byte("good")), Size: 5}, "has 4 bytes"},
	} {
		r.keeps("words", c.record)
		r.wantsBlobs(uint64(i+1), cluster.Blob{Key: "words"})
		r.waits(c.why)
	}
	if _, err := r.blobs.Put(t.Context(), cluster.KeyOfBlob("words"), []byte("no JSON")); err != nil {
		t.Fatal(err)
	}
	r.waits(`the record of blob "words" cannot be read`)
}

// What is on disk is read once, and is not used if it is not what it was.
func TestDamagedBlobOnDiskIsFetchedAgain(t *testing.T) {
	r := newRig(t)
	r.blob("words", "good")
	r.start()
	r.wantsBlobs(1, cluster.Blob{Key: "words"})
	p := r.running(topology, 6700)
	damage := func() string {
		r.shutdown()
		r.killAll()
		r.condition("it is dead", func() bool { return !alive(p.PID) })
		path := glob(r.cfg.Dir, blobsDir, "*", digest([]byte("good")))[0]
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("evil"), 0o400); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := damage()
	r.start()
	p = r.running(topology, 6700)
	if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, []byte("good")) || r.read("words") != "good" {
		t.Errorf("it is %q, %v", text, err)
	}
	damage()
	if err := r.blobs.Delete(t.Context(), cluster.KeyOfBlob("words"), 0); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.waits(`fetch blob "words"`, "not found")
}
