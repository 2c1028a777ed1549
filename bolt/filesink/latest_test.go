package filesink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// nothing is the backend of a state that never held a key.
type nothing struct{}

func (nothing) Get([]byte) ([]byte, txn.BatchID, error) { return nil, 0, nil }
func (nothing) Empty() bool                             { return true }

func (nothing) Range(_, _ []byte, _ func(_, _ []byte) error) error { return nil }

// rig drives a sink as the engine does.
type rig struct {
	*Latest
	state *txn.State
	clock time.Time
}

func open(path string) (*rig, error) {
	return openIn(path, txn.NewContext(context.Background(), txn.Context{Component: "sink", TaskCount: 1}, nil))
}

func openIn(path string, ctx *txn.Context) (*rig, error) {
	r := &rig{Latest: NewLatest(path), clock: time.Unix(1000, 0)}
	r.now = func() time.Time { return r.clock }
	r.state = txn.NewState(txn.StateConfig{Component: "sink", Groups: 16, To: 16, Backend: nothing{}, CacheBytes: 1 << 20})
	if err := r.Open(ctx, r.state); err != nil {
		return nil, err
	}
	return r, r.state.Seal()
}

func (r *rig) put(t *testing.T, vals ...any) {
	t.Helper()
	s := &tuple.Stream{Component: "c", ID: tuple.DefaultStream}
	var values []tuple.Value
	for i, v := range vals {
		s.Fields = append(s.Fields, fmt.Sprint("f", i))
		values = append(values, tuple.Any(v))
	}
	if err := r.Execute(tuple.New(s, values...), nil); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) publish(t *testing.T, n txn.BatchID, last bool) {
	t.Helper()
	if err := r.Publish(t.Context(), n, r.state.Live(), last); err != nil && (last || !errors.Is(err, txn.ErrPostponed)) {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFileShowsTheLatestOfEachKeyInByteOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	r, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "the", 1)
	r.put(t, "and", 7, true, 2.5, nil, time.Unix(0, 0).UTC())
	r.put(t, "the", 2)
	r.put(t, []byte("Zoe"), uint64(1<<63))
	r.put(t, "a\tb\\", "x\ny\r")
	r.put(t, "only a key")
	r.put(t, 12, "number")
	r.put(t, "é", struct{ A string }{"o\tbject"})
	r.publish(t, 1, false)
	want := "12\tnumber\n" +
		"Zoe\t9223372036854775808\n" +
		`a\tb\\` + "\t" + `x\ny\r` + "\n" +
		"and\t7\ttrue\t2.5\t\t1970-01-01T00:00:00Z\n" +
		"only a key\n" +
		"the\t2\n" +
		"é\t" + `{o\tbject}` + "\n"
	if got := content(t, path); got != want {
		t.Errorf("file holds\n%s\nwant\n%s", got, want)
	}
}

func TestWritesAtMostOnceASecondButFirstAndLastAlways(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	r, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	step := func(after time.Duration, n txn.BatchID, last bool, want string) {
		t.Helper()
		r.clock = r.clock.Add(after)
		r.put(t, "n", int(n))
		r.publish(t, n, last)
		if got := content(t, path); got != want {
			t.Errorf("after batch %d the file holds %q, want %q", n, got, want)
		}
	}
	step(0, 1, false, "n\t1\n")
	step(400*time.Millisecond, 2, false, "n\t1\n")
	step(700*time.Millisecond, 3, false, "n\t3\n")
	step(400*time.Millisecond, 4, false, "n\t3\n")
	step(0, 5, true, "n\t5\n")
}

func TestUnchangedContentIsNotRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	old := time.Unix(1e9, 0)
	for incarnation := range 2 {
		r, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		r.put(t, "a", 1)
		r.publish(t, 1, false)
		if incarnation == 0 {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
		r.publish(t, 2, true)
		if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(old) {
			t.Fatalf("incarnation %d rewrote an unchanged file, error %v", incarnation, err)
		}
	}
	for name, other := range map[string]string{"longer": "a\t1\nb\t2\n", "shorter": "a\t", "other": "a\t2\n", "empty": ""} {
		if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		r.put(t, "a", 1)
		r.publish(t, 1, true)
		if got := content(t, path); got != "a\t1\n" {
			t.Errorf("over a %s file: %q", name, got)
		}
	}
}

func TestEmptyStateMakesAnEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	r, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	r.publish(t, 1, true)
	if got := content(t, path); got != "" {
		t.Errorf("file holds %q", got)
	}
}

func TestOpenRefusesWhatCannotBeReplaced(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                    "is not a regular file",
		filepath.Join(dir, "missing", "o.tsv"): "no folder for",
	} {
		if _, err := open(path); !txn.IsFatal(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
	two := txn.NewContext(t.Context(), txn.Context{Component: "sink", TaskCount: 2}, nil)
	if err := NewLatest(filepath.Join(dir, "o")).Open(two, nil); err == nil || !strings.Contains(err.Error(), "has 2 tasks") {
		t.Errorf("two tasks: error %v", err)
	}
}

func TestSymbolicLinkStaysAndLeftOversGo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	dir := t.TempDir()
	link, file := filepath.Join(dir, "link.tsv"), filepath.Join(dir, "file.tsv")
	leftover := filepath.Join(dir, ".file.tsv.XYZ.isobar-tmp")
	for _, p := range []string{file, leftover} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("file.tsv", link); err != nil {
		t.Fatal(err)
	}
	r, err := open(link)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "k", "v")
	r.publish(t, 1, true)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v %v", info, err)
	}
	if got := content(t, file); got != "k\tv\n" {
		t.Errorf("the file behind the link holds %q", got)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("the left-over temporary file is still there")
	}
}

func TestPublishReportsAnUnwritableFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := open(filepath.Join(dir, "out.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), 1, r.state.Live(), true); err == nil || !strings.Contains(err.Error(), "out.tsv") {
		t.Errorf("error %v", err)
	}
}

// Every line can be taken apart again, whatever the texts hold.
func TestEscapingIsReversible(t *testing.T) {
	unescape := strings.NewReplacer(`\t`, "\t", `\n`, "\n", `\r`, "\r", `\\`, `\`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\t\n\r\\tnr\x00\xff"))).Draw(t, "text")
		escaped := appendEscaped(nil, text)
		if bytes.ContainsAny(escaped, "\t\n\r") {
			t.Fatalf("%q is escaped as %q", text, escaped)
		}
		if back := unescape.Replace(string(escaped)); back != string(text) {
			t.Fatalf("%q is escaped as %q, which reads %q", text, escaped, back)
		}
	})
}

func TestRowsSortByTheKeyItself(t *testing.T) {
	var r rows
	for _, k := range []string{"a\tb", "a", "a b", "a\\"} {
		if err := r.add([]tuple.Value{tuple.String(k)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.sort()
	var got []string
	for _, row := range r.index {
		got = append(got, string(r.key(row)))
	}
	if want := []string{"a", "a\tb", "a b", "a\\"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}
