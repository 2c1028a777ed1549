//go:build linux || darwin

package crash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
)

var changer = newProgram("changer", "changer")

// callLines is how many lines one call of the file spout emits.
const callLines = 64

// studied is the input of the changer, one file, and what is kept of each line of it.
type studied struct {
	path  string
	lines []string
}

// study returns an input of so many calls. Its lines are all different.
func study(t *testing.T, calls int) *studied {
	t.Helper()
	c := &studied{path: filepath.Join(t.TempDir(), "input.txt")}
	for i, verse := range strings.Split(verses(0, calls*callLines), "\n")[:calls*callLines] {
		c.lines = append(c.lines, fmt.Sprintf("%d %s\n", i, verse))
	}
	if err := os.WriteFile(c.path, []byte(strings.Join(c.lines, "")), 0o666); err != nil {
		t.Fatal(err)
	}
	return c
}

// kept returns what the changer shows for lines: computed one line after the other, with
// nothing of the engine.
func kept(lines []string) string {
	type words struct {
		total, length int
		rests         [7]int
	}
	all := map[string]*words{}
	for _, line := range lines {
		n := len(line) - 1
		for word, times := range newText([]byte(line)).counts {
			w := all[word]
			if w == nil {
				w = &words{}
				all[word] = w
			}
			w.total, w.length, w.rests[n%7] = w.total+times, w.length+times*n, w.rests[n%7]+times
		}
	}
	var sb strings.Builder
	for _, word := range slices.Sorted(maps.Keys(all)) {
		w := all[word]
		fmt.Fprintf(&sb, "%s\t%d %d false%v %d %d\n", word, w.total, w.length, w.rests, w.total, w.length)
	}
	return sb.String()
}

func (p place) rolled() string { return filepath.Join(filepath.Dir(p.output), "rolled") }

func (p place) changerArgs(c *studied, more ...string) []string {
	return append([]string{
		"--input", c.path, "--output", p.output, "--rolled", p.rolled(), "--data", p.data,
		"-c", "topology.key.groups=8",
		"-c", "transaction.schedule.batch.delay.ms=5",
		"-c", "checkpoint.retained=100",
		"-c", "checkpoint.orphan.grace.secs=0",
		"-c", "topology.debug.poison.frames=true",
	}, more...)
}

// copied returns how often each line is in the files that show.
func (p place) copied(t *testing.T) map[string]int {
	t.Helper()
	return linesIn(t, filepath.Join(p.rolled(), "changer~*"))
}

func linesIn(t *testing.T, files string) map[string]int {
	t.Helper()
	paths, err := filepath.Glob(files)
	if err != nil {
		t.Fatal(err)
	}
	copied := map[string]int{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			copied[string(line)]++
		}
	}
	return copied
}

// read returns how many lines a checkpoint has read.
func (p place) read(t *testing.T, c *studied, ref *checkpoint.Ref) int {
	t.Helper()
	if ref == nil {
		return 0
	}
	mf, err := checkpoint.ReadManifest(t.Context(), p.open(t), *ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range mf.Tasks {
		for _, pos := range task.Positions {
			at := binary.BigEndian.Uint64(pos.Data[2:])
			return strings.Count(strings.Join(c.lines, "")[:at], "\n")
		}
	}
	return 0
}

// checkChanged fails unless all lines from one on are kept, and copied once, those of
// again once more.
func (p place) checkChanged(t *testing.T, c *studied, from int, again []string) {
	t.Helper()
	if got, want := p.shown(t), kept(c.lines[from:]); got != want {
		t.Errorf("what is kept differs: %s", differ(got, want))
	}
	want := map[string]int{}
	for _, line := range slices.Concat(c.lines, again) {
		want[line]++
	}
	got, wrong := p.copied(t), 0
	for i, line := range c.lines {
		if got[line] != want[line] {
			if wrong++; wrong < 4 {
				t.Errorf("line %d was copied %d times, want %d", i, got[line], want[line])
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d different lines were copied, want %d", len(got), len(want))
	}
}

// session runs the changer for some calls and then stops it in order, or kills it after
// the first of them.
func (p place) session(t *testing.T, c *studied, killed bool, calls int, more ...string) {
	t.Helper()
	goal := p.read(t, c, p.committed(t)) + callLines
	if !killed {
		goal += (calls - 1) * callLines
	}
	v := changer.start(t, p.changerArgs(c, append(more, "--calls", strconv.Itoa(calls))...))
	if !v.await(t, "a commit", func() bool { return p.read(t, c, p.committed(t)) >= goal }) {
		t.Fatalf("it ended: %v\n%s", v.cmd.ProcessState, &v.stderr)
	}
	if killed {
		if !v.kill(t) {
			t.Fatal("it ended before it was killed")
		}
		return
	}
	v.interrupt(t)
	if code := v.wait(); code != 0 {
		t.Fatalf("it stopped with exit code %d\n%s", code, &v.stderr)
	}
}

// Case: after scaling out and in again deleted keys came back, merges were counted twice,
// and work in flight was done by several tasks. State of every kind and a sink go through
// 1, 2, 3, 8, 1 tasks and back in the middle of the input, killed and stopped in order.
func TestOtherNumbersOfTasksCountTheSame(t *testing.T) {
	c := study(t, 24)
	parities := []int{0, 1}
	if *operationsFlag > 0 {
		parities = parities[rand.IntN(2):][:1]
	}
	for _, parity := range parities {
		t.Run(fmt.Sprint("kills ", parity), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "changer")
			for i, tasks := range []int{1, 2, 3, 8, 1, 8, 3, 2} {
				p.session(t, c, i%2 == parity, 2, "--tasks", strconv.Itoa(tasks))
			}
			v := changer.run(t, 1, p.changerArgs(c, "--tasks", "9"))
			if log := v.stderr.String(); !strings.Contains(log, "keeper") || !strings.Contains(log, "topology.key.groups") {
				t.Errorf("more tasks than key groups are refused with %s", log)
			}
			changer.run(t, 0, p.changerArgs(c, "--tasks", "1"))
			p.checkChanged(t, c, 0, nil)
		})
	}
}
