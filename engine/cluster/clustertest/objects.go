package clustertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

func text(s string) io.Reader { return strings.NewReader(s) }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// fetch reads a whole object.
func fetch(ctx context.Context, s cluster.Store, objects, name string) ([]byte, error) {
	o, err := s.Objects(ctx, objects)
	if err != nil {
		return nil, err
	}
	r, _, err := o.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

// large returns content of several chunks, whatever their size, all of one letter.
func large(letter byte) []byte { return bytes.Repeat([]byte{letter}, 3<<20+17) }

func objectLife(t *testing.T, p Place) {
	s, other := p.Connect("alice"), p.Connect("bob")
	ctx := patient(t)
	o, err := s.Objects(ctx, "binaries")
	wants(t, "open", err, nil)
	_, err = o.Info(ctx, "x")
	wants(t, "info of what is not there", err, cluster.ErrNotFound)
	_, _, err = o.Get(ctx, "x")
	wants(t, "get what is not there", err, cluster.ErrNotFound)
	wants(t, "describe what is not there", o.SetMeta(ctx, "x", nil), cluster.ErrNotFound)

	data := large('a')
	put, err := o.Put(ctx, "x", bytes.NewReader(data), sum(data), map[string]string{"owner": "alice"})
	wants(t, "put", err, nil)
	if put.Name != "x" || put.Size != int64(len(data)) || put.SHA256 != sum(data) || put.Revision == "" || put.Meta["owner"] != "alice" {
		t.Errorf("put: %+v", put)
	}
	info, err := o.Info(ctx, "x")
	if err != nil || info.Revision != put.Revision || info.SHA256 != put.SHA256 || info.Size != put.Size || !maps.Equal(info.Meta, put.Meta) {
		t.Errorf("info: %+v, %v; put: %+v", info, err, put)
	}
	if got, err := fetch(ctx, other, "binaries", "x"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("another client reads %d bytes, %v", len(got), err)
	}

	wants(t, "describe", o.SetMeta(ctx, "x", map[string]string{"acl": "o::r--"}), nil)
	info, err = o.Info(ctx, "x")
	if err != nil || info.Revision != put.Revision || info.SHA256 != put.SHA256 || !maps.Equal(info.Meta, map[string]string{"acl": "o::r--"}) {
		t.Errorf("described: %+v, %v; put: %+v", info, err, put)
	}
	again, err := o.Put(ctx, "x", bytes.NewReader(data), "", nil)
	if err != nil || again.Revision == put.Revision || again.SHA256 != put.SHA256 || len(again.Meta) != 0 {
		t.Errorf("put again: %+v, %v; before: %+v", again, err, put)
	}
	empty, err := o.Put(ctx, "empty", text(""), "", nil)
	if err != nil || empty.Size != 0 || empty.SHA256 != sum(nil) {
		t.Errorf("empty: %+v, %v", empty, err)
	}
	if got, err := fetch(ctx, other, "binaries", "empty"); err != nil || len(got) != 0 {
		t.Errorf("empty: %q, %v", got, err)
	}
	objectList(t, o, "empty", "x")
	wants(t, "delete", o.Delete(ctx, "x"), nil)
	_, _, err = o.Get(ctx, "x")
	wants(t, "get what was deleted", err, cluster.ErrNotFound)
	_, err = o.Info(ctx, "x")
	wants(t, "info of what was deleted", err, cluster.ErrNotFound)
	objectList(t, o, "empty")
	if err := o.Delete(ctx, "x"); err != nil && !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("delete again: %v", err)
	}
	elsewhere, err := s.Objects(ctx, "blobs")
	wants(t, "open another", err, nil)
	objectList(t, elsewhere)
}

// objectFrom: what is read from a byte on is the rest of the content.
func objectFrom(t *testing.T, p Place) {
	s := p.Connect("alice")
	ctx := patient(t)
	o, err := s.Objects(ctx, "o")
	wants(t, "open", err, nil)
	const part = 256 << 10
	content := make([]byte, 2*part+17)
	_, err = rand.NewChaCha8([32]byte{1}).Read(content)
	wants(t, "make content", err, nil)
	put, err := o.Put(ctx, "x", bytes.NewReader(content), "", nil)
	wants(t, "put", err, nil)
	for _, from := range []int64{0, 1, part - 1, part, part + 1, 2 * part, put.Size - 1, put.Size} {
		r, is, err := o.GetFrom(ctx, "x", from)
		if err != nil {
			t.Fatalf("from %d on: %v", from, err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content[from:]) {
			t.Errorf("from %d on: %d bytes are read, %v", from, len(got), err)
		}
		if is.Revision != put.Revision || is.SHA256 != put.SHA256 || is.Size != put.Size {
			t.Errorf("from %d on: %+v; put: %+v", from, is, put)
		}
	}
	for _, from := range []int64{-1, put.Size + 1} {
		if _, _, err := o.GetFrom(ctx, "x", from); err == nil {
			t.Errorf("there is something from %d on", from)
		}
	}
	_, err = o.Put(ctx, "empty", text(""), "", nil)
	wants(t, "put nothing", err, nil)
	r, _, err := o.GetFrom(ctx, "empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || len(got) != 0 {
		t.Errorf("of nothing there is %q, %v", got, err)
	}
	_, _, err = o.GetFrom(ctx, "y", 0)
	wants(t, "get what is not there", err, cluster.ErrNotFound)
}

func objectList(t *testing.T, o cluster.Objects, want ...string) {
	t.Helper()
	list, err := o.List(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range list {
		got = append(got, one.Name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("objects %q, want %q", got, want)
	}
}

// broken yields some content and fails.
type broken struct{ rest io.Reader }

var errBroken = errors.New("broken off")

func (b broken) Read(p []byte) (int, error) {
	if n, err := b.rest.Read(p); err == nil {
		return n, nil
	}
	return 0, errBroken
}

func objectRefused(t *testing.T, p Place) {
	s := p.Connect("alice")
	ctx := patient(t)
	o, err := s.Objects(ctx, "o")
	wants(t, "open", err, nil)
	before, err := o.Put(ctx, "x", text("before"), sum([]byte("before")), nil)
	wants(t, "put", err, nil)
	for _, name := range []string{"x", "new"} {
		if _, err := o.Put(ctx, name, bytes.NewReader(large('b')), sum([]byte("something else")), nil); err == nil {
			t.Errorf("%s: content of another checksum is stored", name)
		}
		_, err := o.Put(ctx, name, broken{bytes.NewReader(large('c'))}, "", nil)
		wants(t, name+": put half of it", err, errBroken)
	}
	objectList(t, o, "x")
	if got, err := fetch(ctx, s, "o", "x"); err != nil || string(got) != "before" {
		t.Errorf("it is %d bytes now, %v", len(got), err)
	}
	if now, err := o.Info(ctx, "x"); err != nil || now.Revision != before.Revision {
		t.Errorf("info: %+v, %v; before: %+v", now, err, before)
	}
}

// objectReplaced: who reads while it is replaced has the old or the new content, or is
// told that he has not.
func objectReplaced(t *testing.T, p Place) {
	s, other := p.Connect("alice"), p.Connect("bob")
	ctx := patient(t)
	o, err := s.Objects(ctx, "o")
	wants(t, "open", err, nil)
	contents := [][]byte{large('a'), large('b')}
	_, err = o.Put(ctx, "x", bytes.NewReader(contents[0]), "", nil)
	wants(t, "put", err, nil)
	written := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			got, err := fetch(ctx, other, "o", "x")
			if err == nil && !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
				t.Errorf("%d bytes are read that nobody has put", len(got))
			}
			select {
			case <-written:
				return
			default:
			}
		}
	})
	for i := range 6 {
		_, err := o.Put(ctx, "x", bytes.NewReader(contents[i%2]), "", nil)
		wants(t, "put", err, nil)
		if got, err := fetch(ctx, s, "o", "x"); err != nil || !bytes.Equal(got, contents[i%2]) {
			t.Errorf("%d bytes are read of what was put, %v", len(got), err)
		}
	}
	close(written)
	reading.Wait()
}
