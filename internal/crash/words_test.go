package crash

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/internal/kjv"
)

// text is the content of a file and its words as counted here: one byte after the
// other, in one loop, with nothing of the engine.
type text struct {
	data   []byte
	counts map[string]int
	total  int
}

func newText(data []byte) *text {
	t := &text{data: data, counts: map[string]int{}}
	var word []byte
	for _, c := range append(bytes.Clone(data), '\n') {
		switch {
		case 'a' <= c && c <= 'z':
			word = append(word, c)
		case 'A' <= c && c <= 'Z':
			word = append(word, c-'A'+'a')
		case len(word) > 0:
			t.counts[string(word)]++
			t.total++
			word = word[:0]
		}
	}
	return t
}

// corpus is the input of a run: files in the order in which they are read.
type corpus struct {
	dir   string
	paths []string
	texts []*text
}

// glob matches all files of the corpus.
func (c *corpus) glob() string { return filepath.Join(c.dir, "*") }

// add writes one more file. Names must come in order.
func (c *corpus) add(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	c.paths, c.texts = append(c.paths, path), append(c.texts, newText(data))
}

func newCorpus(t *testing.T, files map[string]string) *corpus {
	t.Helper()
	c := &corpus{dir: t.TempDir()}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		c.add(t, name, []byte(files[name]))
	}
	return c
}

// bibles returns a corpus that holds the bundled text many times, on disk once.
func bibles(t *testing.T, copies int) *corpus {
	t.Helper()
	c := &corpus{dir: t.TempDir()}
	c.add(t, "0000.txt", []byte(kjv.Text))
	for i := 1; i < copies; i++ {
		path := filepath.Join(c.dir, fmt.Sprintf("%04d.txt", i))
		if err := os.Link(c.paths[0], path); err != nil {
			t.Fatal(err)
		}
		c.paths, c.texts = append(c.paths, path), append(c.texts, c.texts[0])
	}
	return c
}

// verses returns lines [from, to) of the bundled text.
func verses(from, to int) string {
	return strings.Join(strings.SplitAfter(kjv.Text, "\n")[from:to], "")
}

// all returns the output that counts everything.
func (c *corpus) all() string {
	total := 0
	for _, x := range c.texts {
		total += x.total
	}
	return render(c.first(total))
}

// first counts the first total words, if a line ends there; else the lines that are
// in them as a whole.
func (c *corpus) first(total int) map[string]int {
	whole := map[*text]int{}
	counts := map[string]int{}
	for _, x := range c.texts {
		if total < x.total {
			for line := range bytes.Lines(x.data) {
				l := newText(line)
				if total -= l.total; total < 0 {
					break
				}
				merge(counts, l.counts, 1)
			}
			break
		}
		total -= x.total
		whole[x]++
	}
	for x, n := range whole {
		merge(counts, x.counts, n)
	}
	return counts
}

func merge(into, from map[string]int, times int) {
	for w, n := range from {
		into[w] += n * times
	}
}

func render(counts map[string]int) string {
	var sb strings.Builder
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&sb, "%s\t%d\n", w, counts[w])
	}
	return sb.String()
}

// totalOf adds up the counts of an output.
func totalOf(t *testing.T, output string) int {
	t.Helper()
	total := 0
	for line := range strings.Lines(output) {
		_, count, _ := strings.Cut(line, "\t")
		n, err := strconv.Atoi(strings.TrimSuffix(count, "\n"))
		if err != nil {
			t.Fatalf("the output has line %q: %v", line, err)
		}
		total += n
	}
	return total
}

// differ says where two outputs differ first.
func differ(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is %.80q, want %.80q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
