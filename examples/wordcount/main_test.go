package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

var (
	lineStream = &tuple.Stream{Component: "lines", ID: tuple.DefaultStream, Fields: tuple.Fields{"line"}}
	wordStream = &tuple.Stream{Component: "split", ID: tuple.DefaultStream, Fields: tuple.Fields{"word"}}
)

func TestWordsAreRunsOfLetters(t *testing.T) {
	for line, want := range map[string][]string{
		"":                                  nil,
		"In the Beginning":                  {"in", "the", "beginning"},
		"Rev22:20 don't  stop-":             {"rev", "don", "t", "stop"},
		"[caf\xc3\xa9] @Z{z}`a\x00\x01\x21": {"caf", "z", "z", "a"},
	} {
		var got []string
		out := txn.NewTestCollector([]*tuple.Stream{wordStream}, func(_ string, vals []tuple.Value) {
			got = append(got, vals[0].Str())
		})
		if err := new(split).Execute(tuple.New(lineStream, tuple.String(line)), out); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has words %q, want %q", line, got, want)
		}
	}
}

func TestSplitDoesNotAllocate(t *testing.T) {
	out := txn.NewCollector([]*tuple.Stream{wordStream}, nil, nil)
	line := tuple.New(lineStream, tuple.String("And the earth was without form, and void"))
	s := new(split)
	if n := testing.AllocsPerRun(100, func() { _ = s.Execute(line, out) }); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

// run counts into a folder and returns the output file.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	output := filepath.Join(dir, "out.tsv")
	args = append([]string{"--data", filepath.Join(dir, "data"), "--output", output, "-c", "topology.debug.poison.frames=true"}, args...)
	if code := app.Run("wordcount", build, args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	counts, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	return string(counts)
}

func TestBundledTextIsCountedExactly(t *testing.T) {
	dir := t.TempDir()
	first := run(t, dir)
	if n := strings.Count(first, "\n"); n != 12_586 || !strings.Contains(first, "\nthe\t63919\n") {
		t.Errorf("%d words counted, or \"the\" wrongly", n)
	}
	counts, err := readCounts(filepath.Join(dir, "out.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, c := range counts {
		total += c.count
	}
	if total != 822_552 {
		t.Errorf("%d words in all, want 822552", total)
	}
	if again := run(t, dir); again != first {
		t.Error("a second run changed the counts")
	}
}

func TestOnlyNewLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	count := func(want string) {
		t.Helper()
		if got := run(t, dir, "--input", filepath.Join(dir, "*.txt"), "--input", filepath.Join(dir, "more")); got != want {
			t.Errorf("counts are %q, want %q", got, want)
		}
	}
	write("a.txt", "one two\n")
	write("more", "two")
	count("one\t1\ntwo\t2\n")
	write("a.txt", "one two\nthree two\n")
	write("b.txt", "One\n")
	count("one\t2\nthree\t1\ntwo\t3\n")
	count("one\t2\nthree\t1\ntwo\t3\n")
}

func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts")
	if err := os.WriteFile(path, []byte("a\t1\nb\t3\nc\t3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]engine.Result{
		"": {Outcome: engine.Stopped},
		"3 different words, 7 in all; the most frequent:\n        3  b\n        3  c\n        1  a\nAll counts are in " + path + "\n":                                                      {Committed: 2},
		"All input is already counted; there is nothing new.\n3 different words, 7 in all; the most frequent:\n        3  b\n        3  c\n        1  a\nAll counts are in " + path + "\n": {},
	} {
		var out bytes.Buffer
		report(&out, r, path)
		if out.String() != want {
			t.Errorf("%+v is reported as %q, want %q", r, out.String(), want)
		}
	}
	var out bytes.Buffer
	report(&out, engine.Result{}, path+"x")
	if !strings.Contains(out.String(), "The counts cannot be read") {
		t.Errorf("a missing file is reported as %q", out.String())
	}
}
