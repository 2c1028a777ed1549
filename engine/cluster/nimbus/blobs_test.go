package nimbus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// blobOf returns what creates or updates a blob.
func blobOf(key, content string, acl ...string) cluster.BlobChange {
	return cluster.BlobChange{Key: key, ACL: acl, SHA256: digest(content), Size: int64(len(content))}
}

// contents returns where the contents of blobs are.
func (w *world) contents() cluster.Objects {
	w.t.Helper()
	objects, err := w.server.Connect("somebody").Objects(w.ctx, cluster.ObjectsBlobs)
	w.must(err)
	return objects
}

// puts puts content under the name that it has, or under another.
func (w *world) puts(content string, as ...string) {
	w.t.Helper()
	name := digest(content)
	if len(as) > 0 {
		name = as[0]
	}
	_, err := w.contents().Put(w.ctx, name, strings.NewReader(content), "", nil)
	w.must(err)
}

// stores makes or updates a blob as its owner.
func (w *world) stores(verb, key, content string) {
	w.t.Helper()
	w.puts(content)
	w.must(w.call("ann", verb, blobOf(key, content), nil))
}

// reads returns the content of a small blob, as ann.
func (w *world) reads(key string) string {
	w.t.Helper()
	var part cluster.BlobPart
	w.must(w.call("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: key}, &part))
	return string(part.Data)
}

func (w *world) blobs(user string) (list []cluster.BlobInfo) {
	w.t.Helper()
	w.must(w.call(user, cluster.VerbBlobs, nil, &list))
	return list
}

func TestBlobs(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1", "nimbus.users=ann,bob,eve")
		w.leads()
		w.puts("words")
		w.must(w.call("ann", cluster.VerbBlobCreated, blobOf("my dict", "words", "u:bob:r", "o::---"), nil))
		for _, c := range []struct {
			user, verb string
			update     bool
			change     cluster.BlobChange
			want       []string
		}{
			{"bob", cluster.VerbBlobCreated, false, blobOf("my dict", "words"), []string{`blob "my dict" exists already: update it`}},
			{"bob", cluster.VerbBlobCreated, false, blobOf("a/b", "words", "bob"), []string{`blob key "a/b"`, `access "bob": it must be`}},
			{"cy", cluster.VerbBlobCreated, false, blobOf("his", "words"), []string{`user "cy" may not use this cluster`}},
			{"bob", cluster.VerbBlobUpdated, true, blobOf("my dict", "words"), []string{`user "bob" may not do this with blob "my dict": it takes -w-`}},
			{"ann", cluster.VerbBlobUpdated, true, blobOf("dict", "words"), []string{`blob "dict" is not there, did you mean my dict?`}},
			{"ann", cluster.VerbBlobUpdated, true, cluster.BlobChange{Key: "my dict"}, []string{`blob "my dict": the SHA-256 of its content is "", must be 64`}},
			{"ann", cluster.VerbBlobCreated, false, cluster.BlobChange{Key: "d", SHA256: digest(""), Size: -1}, []string{`blob "d": its content has -1 bytes`}},
		} {
			w.refuses(c.user, c.verb, c.change, c.want...)
			w.refuses(c.user, cluster.VerbBlobCheck, cluster.BlobCheck{BlobChange: c.change, Update: c.update}, c.want...)
		}
		w.refuses("bob", cluster.VerbBlobACL, cluster.BlobChange{Key: "my dict", ACL: []string{"o::rwa"}}, "it takes --a")
		w.refuses("bob", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "my dict"}, "it takes -w-")
		w.refuses("eve", cluster.VerbBlobRead, cluster.BlobRead{Key: "my dict"}, "it takes r--")
		if list := w.blobs("bob"); len(list) != 1 || list[0].Size != 5 || list[0].Owner != "ann" || list[0].SHA256 != digest("words") || !slices.Equal(list[0].ACL, []string{"u:bob:r--", "o::---"}) {
			t.Errorf("blobs %+v", list)
		}
		if list := w.blobs("eve"); len(list) != 0 {
			t.Errorf("others see %+v", list)
		}
		s := w.program("wc", "v1")
		blobMap(`{"my dict":{"localname":"d"}}`)(&s)
		w.refuses("eve", cluster.VerbSubmit, s, `user "eve" may not do this with blob "my dict"`)
		w.must(w.call("bob", cluster.VerbSubmit, s, nil))
		w.refuses("ann", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "my dict"}, `blob "my dict" is used by topology wc: kill that first`)
		w.must(w.call("bob", cluster.VerbKill, cluster.Kill{Name: "wc"}, nil))
		w.until(time.Minute, "it is gone", func() bool { return w.status("wc") == "gone" })
		w.must(w.call("ann", cluster.VerbBlobUpdated, blobOf("my dict", "words", "u:bob:w"), nil))
		w.refuses("bob", cluster.VerbBlobUpdated, blobOf("my dict", "words", "u:bob:rwa"), "it takes --a")
		w.must(w.call("bob", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "my dict"}, nil))
		if list := w.blobs("ann"); len(list) != 0 {
			t.Errorf("after it was deleted: %v", list)
		}
	})
}

// A record changes when its content is there, and not before: who dies in between has changed
// nothing.
func TestContentComesBeforeTheRecord(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.stores(cluster.VerbBlobCreated, "k", "one")
		for _, verb := range []string{cluster.VerbBlobCreated, cluster.VerbBlobUpdated} {
			key := map[string]string{cluster.VerbBlobCreated: "l", cluster.VerbBlobUpdated: "k"}[verb]
			content := "two of " + key
			w.refuses("ann", verb, blobOf(key, content), `the content of blob "`+key+`"`, "is not in the object store: upload it first")
			w.puts("altered", digest(content))
			w.refuses("ann", verb, blobOf(key, content), `blob "`+key+`": its content in the object store has 7 bytes and the SHA-256 `+digest("altered"), "must have 8 bytes and "+digest(content)+": upload it again")
			w.puts(content)
			lie := blobOf(key, content)
			lie.Size++
			w.refuses("ann", verb, lie, "must have 9 bytes")
			if w.reads("k") != "one" || len(w.blobs("ann")) != 1 || w.blobs("ann")[0].SHA256 != digest("one") {
				t.Errorf("it has changed: %q, %+v", w.reads("k"), w.blobs("ann"))
			}
		}
		w.must(w.call("ann", cluster.VerbBlobUpdated, blobOf("k", "two of k"), nil))
		if w.reads("k") != "two of k" {
			t.Errorf("it is %q", w.reads("k"))
		}
	})
}

// What is there and sound need not be uploaded; what only says that it is must be.
func TestSoundContentIsNotUploadedAgain(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		n := w.addNimbus("n1")
		w.leads()
		has := func() bool {
			t.Helper()
			var checked cluster.BlobChecked
			w.must(w.call("ann", cluster.VerbBlobCheck, cluster.BlobCheck{BlobChange: blobOf("k", "words")}, &checked))
			return checked.HasContent
		}
		if has() {
			t.Error("it is there before it was put")
		}
		w.puts("other", digest("words"))
		if has() {
			t.Error("another content is taken for it")
		}
		w.puts("words")
		if !has() {
			t.Error("it is not found")
		}
		w.server.Damage(cluster.ObjectsBlobs, digest("words"))
		if has() {
			t.Error("what is not as it is described is taken for sound")
		}
		if len(w.blobs("ann")) != 0 {
			t.Error("a check has made a blob")
		}
		n.store.Cut()
		if err := w.call("ann", cluster.VerbBlobCheck, cluster.BlobCheck{BlobChange: blobOf("k", "words")}, nil); err == nil {
			t.Error("without the store it is known")
		}
	})
}

// metered counts what is read of objects, and holds reads up.
type metered struct {
	cluster.Store
	read atomic.Int64
	gate chan struct{} // nil: open
}

func (m *metered) Objects(ctx context.Context, name string) (cluster.Objects, error) {
	o, err := m.Store.Objects(ctx, name)
	return meteredObjects{o, m}, err
}

type meteredObjects struct {
	cluster.Objects
	meter *metered
}

func (o meteredObjects) Get(ctx context.Context, name string) (io.ReadCloser, cluster.Object, error) {
	r, is, err := o.Objects.Get(ctx, name)
	return meteredContent{r, o.meter}, is, err
}

func (o meteredObjects) GetFrom(ctx context.Context, name string, offset int64) (io.ReadCloser, cluster.Object, error) {
	r, is, err := o.Objects.GetFrom(ctx, name, offset)
	return meteredContent{r, o.meter}, is, err
}

type meteredContent struct {
	io.ReadCloser
	meter *metered
}

func (c meteredContent) Read(p []byte) (int, error) {
	if gate := c.meter.gate; gate != nil {
		<-gate
	}
	n, err := c.ReadCloser.Read(p)
	c.meter.read.Add(int64(n))
	return n, err
}

func TestBlobsAreReadInParts(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		m := &metered{Store: w.server.Connect("nimbus")}
		w.runNimbus("n1", m, nil)
		w.leads()
		content := strings.Repeat("0123456789", blobPart/2) // 5 parts
		w.stores(cluster.VerbBlobCreated, "k", content)
		var got bytes.Buffer
		ask := cluster.BlobRead{Key: "k"}
		for parts := 0; int64(got.Len()) < int64(len(content)); parts++ {
			var part cluster.BlobPart
			w.must(w.call("ann", cluster.VerbBlobRead, ask, &part))
			if got.Write(part.Data); len(part.Data) == 0 || part.SHA256 != digest(content) || part.Size != int64(len(content)) || parts > 5 {
				t.Fatalf("part %d: %d bytes of %d, %s", parts, len(part.Data), part.Size, part.SHA256)
			}
			ask.Offset, ask.SHA256 = int64(got.Len()), part.SHA256
		}
		if got.String() != content || m.read.Load() != int64(len(content)) {
			t.Errorf("%d bytes cost %d", got.Len(), m.read.Load())
		}
		for _, offset := range []int64{-1, ask.Offset + 1} {
			w.refuses("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: "k", Offset: offset}, `read blob "k" from byte`)
		}
		// Nimbus has time for others while it reads.
		m.gate = make(chan struct{})
		slow := make(chan error, 1)
		go func() { slow <- w.call("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: "k"}, nil) }()
		pass(time.Second)
		w.must(w.call("ann", cluster.VerbHealth, nil, nil))
		close(m.gate)
		w.must(<-slow)

		w.puts("altered", digest(content))
		w.refuses("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: "k"}, `read blob "k"`, "its content in the object store has 7 bytes", "upload it again")
		w.stores(cluster.VerbBlobUpdated, "k", "another")
		w.refuses("ann", cluster.VerbBlobRead, ask, `blob "k" was replaced while it was read: read it again`)
		w.must(w.contents().Delete(w.ctx, digest("another")))
		w.refuses("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: "k"}, `read blob "k" from byte 0 on`, "not found")
	})
}

// Contents go when no blob has had them for an hour, however long they were there before.
func TestContentsThatNoBlobHasGo(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.puts("not yet named")
		w.stores(cluster.VerbBlobCreated, "k", "one")
		w.stores(cluster.VerbBlobCreated, "l", "shared")
		w.stores(cluster.VerbBlobCreated, "m", "shared")
		is := func(when string, want ...string) {
			t.Helper()
			list, err := w.contents().List(w.ctx)
			w.must(err)
			var names, wanted []string
			for _, o := range list {
				names = append(names, o.Name)
			}
			for _, content := range want {
				wanted = append(wanted, digest(content))
			}
			slices.Sort(wanted)
			if !slices.Equal(names, wanted) {
				t.Errorf("%s: %d contents, want %q", when, len(names), want)
			}
		}
		pass(50 * time.Minute)
		is("an upload on its way", "not yet named", "one", "shared")
		w.must(w.call("ann", cluster.VerbBlobCheck, cluster.BlobCheck{BlobChange: blobOf("n", "not yet named")}, nil))
		w.stores(cluster.VerbBlobUpdated, "k", "two")
		w.must(w.call("ann", cluster.VerbBlobDeleted, cluster.BlobChange{Key: "l"}, nil))
		pass(59 * time.Minute)
		is("somebody may be fetching the old one", "not yet named", "one", "two", "shared")
		pass(2 * time.Minute)
		is("after an hour", "two", "shared")
		w.stores(cluster.VerbBlobUpdated, "k", "one")
		pass(40 * time.Minute)
		w.stores(cluster.VerbBlobUpdated, "k", "two")
		pass(40 * time.Minute)
		w.stores(cluster.VerbBlobUpdated, "k", "one")
		pass(40 * time.Minute)
		is("what was used in between has its time again", "one", "two", "shared")
		gone := func() bool {
			_, err := w.contents().Info(w.ctx, digest("two"))
			return errors.Is(err, cluster.ErrNotFound)
		}
		w.until(time.Hour, "it has gone", gone)
		w.puts("two") // before anybody looks again
		pass(50 * time.Minute)
		is("what has gone and comes back has its time again", "one", "two", "shared")
		pass(time.Hour)
		is("in the end", "one", "shared")
		if w.reads("m") != "shared" || w.reads("k") != "one" {
			t.Errorf("blobs %q, %q", w.reads("k"), w.reads("m"))
		}
	})
}

// Records of an earlier version name no content; others cannot be read at all.
func TestBlobRecordsThatAreNone(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		b, err := w.server.Connect("root").Bucket(w.ctx, cluster.BucketBlobs, true)
		w.must(err)
		for key, text := range map[string]string{"old": `{"key":"old","owner":"ann","acl":[],"changed":"2020-01-01T00:00:00Z"}`, "bad": `{"key":7}`} {
			_, err := b.Put(w.ctx, cluster.KeyOfBlob(key), []byte(text))
			w.must(err)
		}
		w.addNimbus("n1")
		w.leads()
		w.puts("whose?")
		const none = `the record of blob "old": the SHA-256 of its content is ""`
		w.refuses("ann", cluster.VerbBlobRead, cluster.BlobRead{Key: "old"}, none, "update the blob")
		s := w.program("wc", "v1")
		blobMap(`{"old":{}}`)(&s)
		w.refuses("ann", cluster.VerbSubmit, s, none)
		w.stores(cluster.VerbBlobUpdated, "old", "new")
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		for _, verb := range []string{cluster.VerbBlobCreated, cluster.VerbBlobUpdated} {
			w.refuses("ann", verb, blobOf("bad", "new"), `blob "bad": the record`, "cannot be read", "an admin may create it anew")
		}
		pass(3 * time.Hour)
		if _, err := w.contents().Info(w.ctx, digest("whose?")); err != nil {
			t.Errorf("what may belong to the damaged record: %v", err)
		}
		w.must(w.call("root", cluster.VerbBlobCreated, blobOf("bad", "new"), nil))
		pass(3 * time.Hour)
		if _, err := w.contents().Info(w.ctx, digest("whose?")); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("what belongs to nobody: %v", err)
		}
		if w.call("root", cluster.VerbBlobRead, cluster.BlobRead{Key: "bad"}, nil) != nil || w.reads("old") != "new" {
			t.Error("they cannot be read")
		}
	})
}

// A program that somebody has replaced is uploaded again, and so is in nobody's way.
func TestAlteredProgramIsUploadedAgain(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		pass(10 * time.Second)
		s := w.program("wc", "v1")
		binaries, err := w.server.Connect("eve").Objects(w.ctx, cluster.ObjectsBinaries)
		w.must(err)
		_, err = binaries.Put(w.ctx, s.Binary.SHA256, strings.NewReader("evil"), "", nil)
		w.must(err)
		var checked cluster.Checked
		w.must(w.call("ann", cluster.VerbCheck, s, &checked))
		if checked.HasBinary || len(checked.Problems) > 0 {
			t.Errorf("checked: %+v", checked)
		}
		w.refuses("ann", cluster.VerbSubmit, s, "upload it again")
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
	})
}
