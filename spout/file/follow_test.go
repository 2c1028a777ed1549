package file

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/spout/spouttest"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func rename(t tester, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t tester, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t tester, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(data))
}

func TestFollowConformance(t *testing.T) {
	dir := t.TempDir()
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, "line %d of many\r\n", i)
	}
	write(t, filepath.Join(dir, "many.log"), many.String()+"no line feed at the end")
	write(t, filepath.Join(dir, "more.log"), many.String()+"another end\n")
	write(t, filepath.Join(dir, "empty.log"), "")
	write(t, filepath.Join(dir, "blank.log"), "\n\n\n")
	write(t, filepath.Join(dir, "long.log"), strings.Repeat("long ", 300_000)+"\nz\n")
	spouttest.Run(t, func(testing.TB) txn.Spout { return NewSpout([]string{filepath.Join(dir, "*.log")}, WithFollow()) })
}

func TestFollowedLinesComeWhenTheyEnd(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "a.log")
	w := newTailer(t, filepath.Join(dir, "*.log"))
	w.expect()
	write(t, log, "")
	w.expect()
	appendTo(t, log, "one\ntw")
	w.expect("one")
	appendTo(t, log, "o")
	w.expect()
	appendTo(t, log, "\r\n")
	w.expect("two")
	write(t, filepath.Join(dir, "b.log"), "new\n")
	w.expect("new")
	w.crash()
	appendTo(t, log, strings.Repeat("x", 2*bufferBytes))
	w.expect()
	appendTo(t, log, "\nlast\n")
	w.expect(strings.Repeat("x", 2*bufferBytes), "last")
	w.crash()
	w.expect()
}

// Each step changes the files; what a spout that runs and one that is started again
// read then must be the same.
func TestRotation(t *testing.T) {
	type step struct {
		do   func(t *testing.T, dir string)
		want []string
	}
	at := func(name string, f func(t tester, path string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { f(t, filepath.Join(dir, name)) }
	}
	put := func(name, content string) func(*testing.T, string) {
		return at(name, func(t tester, path string) { write(t, path, content) })
	}
	add := func(name, content string) func(*testing.T, string) {
		return at(name, func(t tester, path string) { appendTo(t, path, content) })
	}
	move := func(from, to string) func(*testing.T, string) {
		return at(from, func(t tester, path string) { rename(t, path, filepath.Join(filepath.Dir(path), to)) })
	}
	cp := func(from, to string) func(*testing.T, string) {
		return at(from, func(t tester, path string) { copyFile(t, path, filepath.Join(filepath.Dir(path), to)) })
	}
	cut := at("log", func(t tester, path string) { write(t, path, "") })
	all := func(fs ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, f := range fs {
				f(t, dir)
			}
		}
	}
	big := strings.Repeat("0123456789abcdef\n", blockBytes/17+1000)
	for name, steps := range map[string][]step{
		"rename": {
			{put("log", "1\n2\n"), []string{"1", "2"}},
			{all(add("log", "3\n"), move("log", "log.1"), put("log", "4\n")), []string{"3", "4"}},
			{all(add("log.1", "5\n"), add("log", "6\n")), []string{"5", "6"}},
		},
		"rename with the same first line": {
			{put("log", "head\n1\n"), []string{"head", "1"}},
			{all(move("log", "log.1"), put("log", "head\n")), nil},
			{add("log", "2\n"), []string{"head", "2"}},
			{all(move("log.1", "log.2"), move("log", "log.1"), put("log", "head\n3\n")), []string{"head", "3"}},
		},
		"copy and truncate": {
			{put("log", "1\n2\n"), []string{"1", "2"}},
			{all(add("log", "3\n"), cp("log", "log.1")), []string{"3"}},
			{cut, nil},
			{add("log", "4\n"), []string{"4"}},
			{all(add("log", "5\n"), cp("log", "log.2"), cut, add("log", "6\n7\n8\n9\n")), []string{"5", "6", "7", "8", "9"}},
			{add("log.2", "late\n"), []string{"late"}},
		},
		"copy and truncate with the same first line": {
			{put("log", "head\n1\n"), []string{"head", "1"}},
			{all(add("log", "2\n"), cp("log", "log.1"), cut, add("log", "head\n3\n4\n5\n6\n")), []string{"2", "head", "3", "4", "5", "6"}},
		},
		"copy that lacks the last lines": {
			{put("log", "1\n2\n"), []string{"1", "2"}},
			{cp("log", "log.1"), nil},
			{add("log", "3\n"), []string{"3"}},
			{all(cut, add("log", "4\n")), []string{"4"}},
		},
		"copy of a large file": {
			{put("log", big), lines(big)},
			{all(add("log", "1\n"), cp("log", "log.1"), cut, add("log", "2\n")), []string{"2", "1"}},
		},
		"truncated without a copy": {
			{put("log", "1\n2\n"), []string{"1", "2"}},
			{all(cut, add("log", "3\n")), []string{"3"}},
			{all(cut, add("log", "3\n")), nil}, // nobody can tell
			{all(cut, add("log", "4\n5\n")), []string{"4", "5"}},
		},
		"removed": {
			{put("log", "1\n"), []string{"1"}},
			{at("log", remove), nil},
			{put("log", "2\n"), []string{"2"}},
		},
		"two names": {
			{put("log", "1\n"), []string{"1"}},
			{at("log", func(t tester, path string) {
				if err := os.Link(path, path+".too"); err != nil {
					t.Fatal(err)
				}
			}), nil},
			{add("log", "2\n"), []string{"2"}},
		},
		"packed afterwards": {
			{put("log", "1\n"), []string{"1"}},
			{all(move("log", "log.1"), at("log.1", func(t tester, path string) { write(t, path+".gz", "\x1f\x8bpacked\n"); remove(t, path) })), nil},
		},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarts %v", name, restarts), func(t *testing.T) {
				dir := t.TempDir()
				w := newTailer(t, filepath.Join(dir, "log*"))
				for i, s := range steps {
					s.do(t, dir)
					if restarts {
						w.crash()
					}
					w.drain()
					got, want := slices.Sorted(slices.Values(w.committed)), slices.Sorted(slices.Values(s.want))
					if !slices.Equal(got, want) {
						t.Fatalf("step %d: read %.100q, want %.100q", i+1, got, want)
					}
					w.committed = nil
				}
			})
		}
	}
}

func lines(text string) []string {
	var all []string
	for l := range strings.Lines(text) {
		all = append(all, strings.TrimSuffix(l, "\n"))
	}
	return all
}

func TestOpenFileIsReadOnAfterItsNameHasGone(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "a.log")
	w := newTailer(t, log)
	write(t, log, "1\n")
	w.expect("1")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(s string) {
		t.Helper()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	put("2\n")
	remove(t, log)
	w.expect("2")
	put("3\n")
	w.expect("3")
	w.clock = w.clock.Add(linger - 1)
	put("4\n")
	w.expect("4")
	w.clock = w.clock.Add(linger)
	w.expect()
	if n := len(w.follow.kept); n > 0 {
		t.Errorf("%d files are still open", n)
	}
}

func TestPositionsOfLostFilesAreForgotten(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "a.log")
	w := newTailer(t, filepath.Join(dir, "*"))
	write(t, log, "1\n")
	w.expect("1")
	remove(t, log)
	w.expect()
	w.clock = w.clock.Add(linger)
	w.expect()
	if len(w.positions) != 1 {
		t.Fatalf("%d positions while a copy may still turn up", len(w.positions))
	}
	w.clock = w.clock.Add(forgetAfter - time.Second)
	w.crash()
	w.expect()
	if len(w.positions) != 1 {
		t.Fatal("forgotten too early")
	}
	w.clock = w.clock.Add(2 * time.Second)
	w.expect()
	if len(w.positions) != 0 {
		t.Errorf("positions %q are left", w.positions)
	}
	write(t, log, "1\n2\n")
	w.expect("1", "2")
	w.crash()
	w.expect()
}

func TestOpenFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	w := newTailer(t, filepath.Join(dir, "*"))
	var want []string
	for i := range openMax + 50 {
		write(t, filepath.Join(dir, fmt.Sprintf("%04d", i)), fmt.Sprintf("%04d\n", i))
		want = append(want, fmt.Sprintf("%04d", i))
	}
	w.drain()
	if got := slices.Sorted(slices.Values(w.committed)); !slices.Equal(got, want) {
		t.Fatalf("read %d lines, want %d", len(got), len(want))
	}
	w.committed = nil
	if n := len(w.follow.kept); n > openMax {
		t.Errorf("%d files are open", n)
	}
	appendTo(t, filepath.Join(dir, "0000"), "more\n")
	w.expect("more")
}

func TestFollowRefusesWhatItCannotFollow(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ glob, want string }{
		{filepath.Join(dir, "a.gz"), "gzip data cannot be followed"},
		{filepath.Join(dir, "*.zst"), "zstd data cannot be followed"},
		{filepath.Join(dir, "["), "syntax error in pattern"},
	} {
		if _, err := NewSpout([]string{tc.glob}, WithFollow()).Partitions(t.Context()); !txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.glob, err, tc.want)
		}
	}
	if _, err := NewSpout(nil, WithFollow()).Partitions(t.Context()); !txn.IsFatal(err) {
		t.Errorf("no input at all: error %v", err)
	}
	path := write(t, filepath.Join(dir, "f"), "1\n")
	positions := map[txn.PartitionID][]byte{}
	run(t, positions, path)
	w := newTailer(t, path)
	if err := w.Seek("p", positions[txn.PartitionID(path)]); !txn.IsFatal(err) || !strings.Contains(err.Error(), "was not followed") {
		t.Errorf("a position of a file that was not followed: error %v", err)
	}
	w.expect("1")
	for p, pos := range w.positions {
		if err := newReader(path).Seek(p, pos); !txn.IsFatal(err) || !strings.Contains(err.Error(), "followed") {
			t.Errorf("a position of a file that was followed: error %v", err)
		}
	}
}

func FuzzDecodeFamily(f *testing.F) {
	fam := &family{id: "p"}
	for i := range 3 {
		m := &member{fam: fam, pos: position{id: identity{true, 1, uint64(i)}}}
		m.pos.count([]byte(strings.Repeat("some bytes\n", 200*i+1)))
		fam.members = append(fam.members, m)
	}
	fam.members[1].lost = time.Unix(1000, 0)
	b, err := fam.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		fam, err := decodeFamily("p", b)
		if err != nil || len(fam.members) == 0 {
			return
		}
		again, err := fam.encode()
		if err != nil || len(again) != len(b) {
			t.Fatalf("%x decodes and encodes to %x (%v)", b, again, err)
		}
		if back, err := decodeFamily("p", again); err != nil || len(back.members) != len(fam.members) {
			t.Fatalf("%x does not decode: %v", again, err)
		}
	})
}

func BenchmarkFollow(b *testing.B) {
	const count = 200_000
	path := filepath.Join(b.TempDir(), "f")
	write(b, path, string(bytes.Repeat([]byte("In the beginning God created the heaven and the earth and some more words here.\n"), count)))
	out := txn.NewCollector([]*tuple.Stream{{Component: "lines", ID: tuple.DefaultStream, Fields: tuple.Fields{"line"}}}, nil, nil)
	for b.Loop() {
		s := NewSpout([]string{path}, WithFollow())
		ids, err := s.Partitions(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Seek(ids[0], nil); err != nil {
			b.Fatal(err)
		}
		for status := txn.Emitted; status == txn.Emitted; {
			if status, err = s.NextTuple(out); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "lines/s")
}

// A file is copied and cut, and written anew with the same first line, after the spout has
// seen its size and before it reads on.
func TestFileThatIsCutWhileItIsLookedAtIsReadOnce(t *testing.T) {
	for _, rest := range []string{"", "five\n", "five\nsix\nseven\neight\nnine and more\n"} {
		for after := range 6 {
			dir := t.TempDir()
			log := filepath.Join(dir, "log")
			w := newTailer(t, filepath.Join(dir, "log*"))
			write(t, log, "header\none\ntwo\n")
			w.expect("header", "one", "two")
			appendTo(t, log, "three\nfour\n")
			w.after, w.meanwhile = after+1, func() {
				copyFile(t, log, log+".1")
				write(t, log, "header\n"+rest)
			}
			for range 3 {
				w.read(2)
			}
			if w.after > 0 {
				w.meanwhile()
			}
			w.meanwhile = nil
			w.drain()
			appendTo(t, log, "last\n")
			w.drain()
			got := slices.Sorted(slices.Values(w.committed))
			want := slices.Sorted(slices.Values(append([]string{"header", "last", "three", "four"}, strings.Split(strings.TrimSuffix(rest, "\n"), "\n")...)))
			want = slices.DeleteFunc(want, func(l string) bool { return l == "" })
			if !slices.Equal(got, want) {
				t.Errorf("cut at call %d, with %q: read %q, want %q", after+1, rest, got, want)
			}
		}
	}
}

// What was found equal of a file before it was cut says nothing about its new content.
func TestNewContentIsComparedFromItsBeginning(t *testing.T) {
	dir := t.TempDir()
	log, old := filepath.Join(dir, "log"), filepath.Join(dir, "log.1")
	write(t, old, "header\nline 13\nline 14\nline 15\n")
	write(t, log, "header\nline 16\nline 17\n")
	w := newTailer(t, filepath.Join(dir, "log*"))
	w.read(0) // the files are found equal up to "line 1"
	write(t, log, "header\nline 23\n")
	w.drain()
	slices.Sort(w.committed)
	if want := []string{"header", "header", "line 13", "line 14", "line 15", "line 23"}; !slices.Equal(w.committed, want) {
		t.Errorf("read %q, want %q", w.committed, want)
	}
}
