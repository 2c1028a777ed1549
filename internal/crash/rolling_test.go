package crash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var roller = newProgram("roller", "roller")

// rollingSteps are the steps that a topology with a rolling sink comes by, and the
// occurrences at which to die. There are three tasks and about sixteen batches.
var rollingSteps = map[string][]int{
	"restore":  {1, 3},
	"finish":   {1, 20},
	"commit":   {1, 19},
	"manifest": {1, 7},
	"head":     {1, 7},
	"ack":      {1, 8, 20},
	"delete":   {1, 5},
}

// TestRollingSinkDies kills a process with a rolling sink at every step, and the next
// one at the same step, and expects a third one to have each line in one file.
func TestRollingSinkDies(t *testing.T) {
	c := numberedCorpus(t)
	for _, roll := range []string{"--batches=1", "--batches=3", "--bytes=2000"} {
		for _, step := range slices.Sorted(maps.Keys(rollingSteps)) {
			occurrences := rollingSteps[step]
			if testing.Short() || roll != "--batches=3" {
				occurrences = occurrences[len(occurrences)-1:]
			}
			for _, n := range occurrences {
				for _, edge := range []string{".before", ".after"} {
					t.Run(fmt.Sprintf("%s/%s/%d", roll, step+edge, n), func(t *testing.T) {
						t.Parallel()
						rollerDiesTwice(t, c, roll, step+edge, n)
					})
				}
			}
		}
	}
}

func rollerDiesTwice(t *testing.T, c *corpus, roll, step string, n int) {
	p := newPlace(t, "roller")
	args := append(p.victimArgs(c), roll)
	for _, n := range []int{n, 1} {
		v := roller.start(t, args, "CRASH_STEP="+step, "CRASH_OCCURRENCE="+strconv.Itoa(n))
		code, log := v.wait(), v.stderr.String()
		if last := fmt.Sprintf("dies at %s %d\n", step, n); code == 0 || !strings.Contains(log, last) {
			t.Fatalf("it did not die at occurrence %d of %s: %v\n%s", n, step, v.cmd.ProcessState, log)
		}
		p.checkFiles(t, c)
	}
	roller.run(t, 0, args)
	p.checkAllFiles(t, c)
	roller.run(t, 0, args) // takes away what the last one still had to keep
	p.checkAllFiles(t, c)
	fence := func(name string) bool { return strings.HasSuffix(name, ".fence") }
	if hidden := slices.DeleteFunc(p.files(t, "."), fence); len(hidden) > 0 {
		t.Errorf("hidden files %q are left", hidden)
	}
}

// numberedCorpus holds lines that are all different.
func numberedCorpus(t *testing.T) *corpus {
	t.Helper()
	files := map[string]string{}
	line := 0
	for _, name := range []string{"a.txt", "b.txt"} {
		var sb strings.Builder
		for range 500 {
			line++
			fmt.Fprintf(&sb, "line %d is one of many\n", line)
		}
		files[name] = sb.String()
	}
	return newCorpus(t, files)
}

// files returns the names in the output folder that begin with a prefix.
func (p place) files(t *testing.T, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(p.output)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// checkFiles fails unless what shows is what it may be at any moment: whole lines that
// are committed (invariant I1), none twice.
func (p place) checkFiles(t *testing.T, c *corpus) (lines int) {
	t.Helper()
	committed := map[string]bool{}
	if mf := p.current(t); mf != nil {
		for _, task := range mf.Tasks {
			for _, pos := range task.Positions {
				data := c.texts[slices.Index(c.paths, string(pos.Partition))].data
				for line := range bytes.Lines(data[:binary.BigEndian.Uint64(pos.Data[2:])]) {
					committed[string(line)] = true
				}
			}
		}
	}
	in := map[string]string{}
	for _, name := range p.files(t, "roller~") {
		data, err := os.ReadFile(filepath.Join(p.output, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			t.Errorf("file %s is empty", name)
		}
		for line := range bytes.Lines(data) {
			lines++
			if !committed[string(line)] {
				t.Errorf("file %s shows %q, which is not committed", name, line)
			}
			if other, twice := in[string(line)]; twice {
				t.Errorf("line %q is in %s and in %s", line, other, name)
			}
			in[string(line)] = name
		}
	}
	return lines
}

// checkAllFiles fails unless each line shows, once.
func (p place) checkAllFiles(t *testing.T, c *corpus) {
	t.Helper()
	want := 0
	for _, x := range c.texts {
		want += bytes.Count(x.data, []byte("\n"))
	}
	if lines := p.checkFiles(t, c); lines != want {
		t.Errorf("%d lines show, want %d", lines, want)
	}
	if ref := p.committed(t); ref == nil || !ref.Ended {
		t.Errorf("the newest checkpoint, %v, is not that of the end of the input", ref)
	}
}
