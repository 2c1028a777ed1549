package natscluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// FuzzRecord: whatever a user has written as the description of an object is refused, or
// makes sense.
func FuzzRecord(f *testing.F) {
	good := record{Name: "x", Size: 2*partBytes + 5, SHA256: strings.Repeat("a", 64), Upload: "user.a=2Eb.TOKEN", PartBytes: partBytes}
	text, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, s := range []string{
		``, `null`, `{"name":"x"}`, `{"name":"y","upload":"a.b.c","partBytes":1}`, `{"name":"x","upload":"*.*.*","partBytes":1}`,
		`{"name":"x","upload":"a.b.>","partBytes":1}`, `{"name":"x","size":-1,"upload":"a.b.c","partBytes":1}`,
		`{"name":"x","size":9223372036854775807,"upload":"a.b.c","partBytes":9223372036854775807}`,
		`{"name":"x","size":9223372036854775807,"upload":"a.b.c","partBytes":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord("x", data)
		if err != nil {
			if !errors.Is(err, errDamaged) {
				t.Errorf("the error is of another kind: %v", err)
			}
			return
		}
		if r.Name != "x" || strings.Count(r.Upload, ".") != 2 || strings.ContainsAny(r.Upload, "*> \n") || strings.Contains(r.Upload, "..") {
			t.Errorf("taken: %+v", r)
		}
		last := r.Size / r.PartBytes
		for _, part := range []int64{0, last / 2, max(last-1, 0), last} {
			want := min(r.PartBytes, r.Size-part*r.PartBytes)
			if got := r.sizeOf(part); got != want || got < 0 {
				t.Errorf("part %d of %+v has %d bytes, want %d", part, r, got, want)
			}
		}
		if got := r.sizeOf(last + 1); last < 1<<62 && got != 0 {
			t.Errorf("after the last part of %+v there is one of %d bytes", r, got)
		}
	})
}

// TestDescriptionsThatAreWrong: who may put objects may also write what is none. Others see
// the rest, and what was good can be put again, and everything can be deleted.
func TestDescriptionsThatAreWrong(t *testing.T) {
	s := newSite(t, true)
	nimbus := settled(t, s)
	alice := s.client(RoleUser, "alice")
	ctx := patient(t)
	set, err := nimbus.Objects(ctx, cluster.ObjectsBlobs)
	if err != nil {
		t.Fatal(err)
	}
	o := set.(*objects)
	there, _, err := o.find(ctx, "there")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := json.Marshal(record{Name: "theirs", Size: there.Size, SHA256: there.SHA256, Upload: there.Upload, PartBytes: there.PartBytes})
	if err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{
		"text": "no JSON", "other": `{"name":"there","upload":"user.alice.x","partBytes":1}`, "wild": `{"name":"wild","upload":"*.*.*","partBytes":1}`,
	}
	handle := &objects{store: alice, shelf: o.shelf}
	for name, text := range wrong {
		if err := handle.publish(ctx, o.shelf.meta(name), valueHeader(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for subject, text := range map[string][]byte{o.shelf.meta("theirs"): theirs, o.shelf.metas() + "=Z": []byte("{}")} {
		if err := handle.publish(ctx, subject, valueHeader(), text); err != nil {
			t.Fatal(err)
		}
	}
	list, err := o.List(ctx)
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
		if _, is := wrong[one.Name]; is != (one.SHA256 == "") {
			t.Errorf("listed: %+v", one)
		}
	}
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"other", "text", "theirs", "there", "wild"}) {
		t.Errorf("listed: %q, %v", names, err)
	}
	for name := range wrong {
		if _, err := o.Info(ctx, name); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := o.Put(ctx, "text", strings.NewReader("good"), "", nil); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(mustGet(t, o, "text")); err != nil || string(got) != "good" {
		t.Errorf("put again: %q, %v", got, err)
	}
	for _, name := range []string{"other", "text", "theirs", "wild"} {
		if err := o.Delete(ctx, name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if list, err := o.List(ctx); err != nil || len(list) != 1 {
		t.Errorf("left: %+v, %v", list, err)
	}
	if got, err := io.ReadAll(mustGet(t, o, "there")); err != nil || string(got) != "since the beginning" {
		t.Errorf("the parts of another went with what named them: %q, %v", got, err)
	}
}

// TestReadingFromTheMiddle: what is before is not read, and who reads goes on when the object
// is deleted.
func TestReadingFromTheMiddle(t *testing.T) {
	s := newSite(t, false)
	ctx := patient(t)
	set, err := s.client("", "").Objects(ctx, "o")
	if err != nil {
		t.Fatal(err)
	}
	o := set.(*objects)
	content := bytes.Repeat([]byte("0123456789abcdef"), 3*partBytes/16)
	if _, err := o.Put(ctx, "x", bytes.NewReader(content), "", nil); err != nil {
		t.Fatal(err)
	}
	whole := mustGet(t, o, "x")
	r, _, err := o.find(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.purge(ctx, o.shelf.data(r.Upload)+"0"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(whole); err == nil || !strings.Contains(err.Error(), "part 1 is gone") {
		t.Errorf("read without the first part: %v", err)
	}
	rest, _, err := o.GetFrom(ctx, "x", partBytes+5)
	if err != nil {
		t.Fatal(err)
	}
	shorter, _, err := o.GetFrom(ctx, "x", partBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Delete(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(rest); err != nil || !bytes.Equal(got, content[partBytes+5:]) {
		t.Errorf("%d bytes are read from the second part on, %v", len(got), err)
	}
	if err := o.publish(ctx, o.shelf.data(r.Upload)+"2", valueHeader(), []byte("shorter")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(shorter); err == nil || len(got) != partBytes || !strings.Contains(err.Error(), "part 3 has 7 bytes") {
		t.Errorf("%d bytes are read of what is shorter now, %v", len(got), err)
	}
	if uploads, err := o.orphaned(ctx); err != nil || len(uploads) != 1 {
		t.Errorf("orphaned: %q, %v", uploads, err)
	}
}
