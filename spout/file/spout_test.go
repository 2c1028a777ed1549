package file

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/spout/spouttest"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// reader drives a spout and keeps what it emits.
type reader struct {
	*Spout
	out   *txn.Collector
	lines []string
}

func newReader(globs ...string) *reader {
	r := &reader{Spout: NewSpout(globs)}
	var d txn.OutputDeclarer
	r.DeclareOutputFields(&d)
	streams, _ := d.Streams()
	r.out = txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) {
		r.lines = append(r.lines, vals[0].Str())
	})
	return r
}

type tester interface {
	Helper()
	Fatal(args ...any)
}

// take gives the reader all partitions, at the positions that are known of them.
func (r *reader) take(t tester, positions map[txn.PartitionID][]byte) {
	t.Helper()
	for p, pos := range positions {
		if err := r.Seek(p, pos); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := r.Partitions(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ids {
		if _, known := positions[p]; !known {
			if err := r.Seek(p, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (r *reader) finish(t tester, positions map[txn.PartitionID][]byte) {
	t.Helper()
	moved, err := r.FinishBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range moved {
		positions[m.Partition] = m.Data
	}
}

// run reads to the end, and returns the lines; it moves positions.
func run(t tester, positions map[txn.PartitionID][]byte, globs ...string) []string {
	t.Helper()
	r := newReader(globs...)
	r.take(t, positions)
	for {
		status, err := r.NextTuple(r.out)
		if err != nil {
			t.Fatal(err)
		}
		if status == txn.Finished {
			break
		}
	}
	r.finish(t, positions)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.lines
}

func write(t tester, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func appendTo(t tester, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(content)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, "line %d of many\r\n", i)
	}
	write(t, filepath.Join(dir, "many.txt"), many.String()+"no line feed at the end")
	write(t, filepath.Join(dir, "empty.txt"), "")
	write(t, filepath.Join(dir, "blank.txt"), "\n\n\n")
	write(t, filepath.Join(dir, "long.txt"), "a\n"+strings.Repeat("long ", 300_000)+"\nz\n")
	write(t, filepath.Join(dir, "bytes.txt"), "\x00\x00\n\xff\xfe\n\r\r\n")
	spouttest.Run(t, func(testing.TB) txn.Spout { return NewSpout([]string{filepath.Join(dir, "*.txt")}) })
}

func TestLinesAreWhatLiesBetweenLineFeeds(t *testing.T) {
	huge := strings.Repeat("x", 5<<20)
	for content, want := range map[string][]string{
		"":                     nil,
		"a":                    {"a"},
		"a\n":                  {"a"},
		"a\r\nb":               {"a", "b"},
		"a\r\r\n\rb\r":         {"a\r", "\rb"},
		"\n\na\n":              {"", "", "a"},
		"\x00\xff\xfe\n":       {"\x00\xff\xfe"},
		"a\n" + huge + "\nb\n": {"a", huge, "b"},
		"a\n" + huge:           {"a", huge},
	} {
		path := write(t, filepath.Join(t.TempDir(), "f"), content)
		if got := run(t, map[txn.PartitionID][]byte{}, path); !slices.Equal(got, want) {
			t.Errorf("%.20q: %d lines, want %d", content, len(got), len(want))
		}
	}
}

// Whatever is in a file, however large the buffer, wherever it is interrupted, and
// whatever is appended between two runs: each line comes once.
func TestEveryLineComesOnce(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "f")
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\r\n\n"))).Draw(t, "text")
		write(t, path, "")
		positions := map[txn.PartitionID][]byte{}
		var got []string
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "append")
			// A run ends behind a line feed, or at the end of all.
			if i := bytes.IndexByte(text[n-1:], '\n'); i >= 0 {
				n += i
			} else {
				n = len(text)
			}
			appendTo(t, path, string(text[:n]))
			text = text[n:]
			r := newReader(path)
			r.take(t, positions)
			r.Spout.lines.buf = make([]byte, rapid.IntRange(1, 8).Draw(t, "buffer"))
			for calls := rapid.IntRange(0, 40).Draw(t, "lines before the crash"); calls > 0; calls-- {
				line, ok, err := r.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				r.lines = append(r.lines, string(line))
				if calls%3 == 0 {
					r.finish(t, positions)
					got = append(got, r.lines...)
					r.lines = nil
				}
			}
			if err := r.Close(); err != nil { // what was emitted since is void
				t.Fatal(err)
			}
		}
		got = append(got, run(t, positions, path)...)
		got = append(got, run(t, positions, path)...)
		all, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(all)) {
			line = strings.TrimSuffix(line, "\n")
			want = append(want, strings.TrimSuffix(line, "\r"))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q gave lines %q, want %q", all, got, want)
		}
	})
}

func TestSecondRunReadsOnlyWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	positions := map[txn.PartitionID][]byte{}
	a, glob := filepath.Join(dir, "a"), filepath.Join(dir, "*")
	write(t, a, "1\n2\n")
	check := func(want ...string) {
		t.Helper()
		if got := run(t, positions, glob); !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	check("1", "2")
	check()
	appendTo(t, a, "3")
	write(t, filepath.Join(dir, "b"), "new\n")
	check("3", "new")
	appendTo(t, a, "\n")
	check()
	appendTo(t, a, "4")
	check("4")
	appendTo(t, a, "\r\n5\r")
	check("5")
	appendTo(t, a, "\n6\n")
	check("6")
	if err := os.Remove(a); err != nil { // counted to its end
		t.Fatal(err)
	}
	check()
}

func TestPartitionsAreRegularFilesByAbsolutePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "a.txt", "")
	write(t, "b[1].txt", "")
	write(t, ".hidden.txt", "")
	if err := os.MkdirAll("sub.txt", 0o700); err != nil {
		t.Fatal(err)
	}
	want := []txn.PartitionID{txn.PartitionID(filepath.Join(dir, "a.txt")), txn.PartitionID(filepath.Join(dir, "b[1].txt"))}
	if runtime.GOOS != "windows" {
		for link, target := range map[string]string{"link.txt": "a.txt", "dangling.txt": "none", "loop.txt.d": "."} {
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, txn.PartitionID(filepath.Join(dir, "link.txt")))
	}
	for _, globs := range [][]string{{"*.txt"}, {"./a.txt", "*.txt", "b[1].txt", filepath.Join(dir, "a.txt")}} {
		got, err := NewSpout(globs).Partitions(t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: partitions %q, error %v, want %q", globs, got, err, want)
		}
	}
	if got, err := NewSpout([]string{".h*.txt"}).Partitions(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("a glob that begins with a dot: %q, %v", got, err)
	}
	for glob, text := range map[string]string{
		"*.csv":    `no regular file matches "*.csv"`,
		"none.txt": `input "none.txt" is not a regular file`,
		"sub.txt":  `input "sub.txt" is not a regular file`,
		"[":        "syntax error in pattern",
	} {
		if _, err := NewSpout([]string{glob}).Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: error %v, want one with %q", glob, err, text)
		}
	}
	if _, err := NewSpout([]string{"a.txt", "none.txt"}).Partitions(t.Context()); err == nil {
		t.Error("a missing file beside one that is there is accepted")
	}
	if _, err := NewSpout(nil).Partitions(t.Context()); err == nil {
		t.Error("no input at all is accepted")
	}
}

func TestSeekAgainGoesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	pos := half(t, path)
	r := newReader(path)
	r.take(t, nil)
	for range 5 {
		if _, err := r.NextTuple(r.out); err != nil {
			t.Fatal(err)
		}
	}
	r.lines = nil
	r.take(t, map[txn.PartitionID][]byte{txn.PartitionID(path): pos})
	for {
		status, err := r.NextTuple(r.out)
		if err != nil {
			t.Fatal(err)
		}
		if status == txn.Finished {
			break
		}
	}
	if len(r.lines) != 9*linesPerCall {
		t.Errorf("%d lines after going back", len(r.lines))
	}
}

func TestPositionSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := position{
			complete: rapid.Bool().Draw(t, "complete"),
			id:       identity{true, rapid.Uint64().Draw(t, "device"), rapid.Uint64().Draw(t, "inode")},
		}
		chunk := make([]byte, 700_000)
		for range rapid.IntRange(0, 5).Draw(t, "chunks") {
			p.count(chunk[:rapid.IntRange(0, len(chunk)).Draw(t, "bytes")])
		}
		b := p.encode()
		q, err := decodePosition(b)
		if err != nil {
			t.Fatal(err)
		}
		if q.offset != p.offset || q.complete != p.complete || q.id != p.id || q.headHash != fingerprint(p.head) || !slices.Equal(q.blocks, p.blocks) {
			t.Fatalf("position %+v came back as %+v", p, q)
		}
		for _, bad := range [][]byte{b[:len(b)-1], append(slices.Clone(b), 0), append([]byte{0}, b[1:]...), append([]byte{1, 4}, b[2:]...)} {
			if _, err := decodePosition(bad); err == nil {
				t.Fatalf("%x is accepted", bad)
			}
		}
		if _, err := decodePosition(append([]byte{3}, b[1:]...)); err == nil || !strings.Contains(err.Error(), "version 3") {
			t.Fatalf("version 3 gives %v", err)
		}
	})
}

func FuzzDecodePosition(f *testing.F) {
	var p position
	p.count([]byte("some bytes\n"))
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b)
		if err != nil {
			return
		}
		if p.offset < 0 || int64(len(p.blocks)) != (p.offset+blockBytes-1)/blockBytes {
			t.Fatalf("%x decodes to offset %d with %d blocks", b, p.offset, len(p.blocks))
		}
	})
}

func TestReadingDoesNotAllocatePerLine(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), strings.Repeat("a line of some words\n", 200_000))
	r := newReader(path)
	r.take(t, nil)
	out := txn.NewCollector([]*tuple.Stream{{Component: "lines", ID: tuple.DefaultStream, Fields: tuple.Fields{"line"}}}, nil, nil)
	next := func() {
		if status, err := r.NextTuple(out); err != nil || status != txn.Emitted {
			t.Fatal(status, err)
		}
	}
	next()
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations a call of NextTuple", n)
	}
}

func BenchmarkLines(b *testing.B) {
	const lines = 200_000
	path := filepath.Join(b.TempDir(), "f")
	write(b, path, strings.Repeat("In the beginning God created the heaven and the earth and some more words here.\n", lines))
	out := txn.NewCollector([]*tuple.Stream{{Component: "lines", ID: tuple.DefaultStream, Fields: tuple.Fields{"line"}}}, nil, nil)
	for b.Loop() {
		r := newReader(path)
		r.take(b, nil)
		for {
			status, err := r.NextTuple(out)
			if err != nil {
				b.Fatal(err)
			}
			if status == txn.Finished {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
}
