package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// steps are the named steps of the commit protocol, each with a before and an after,
// and the occurrences at which to die: the first one, and one some batches later.
var steps = map[string][]int{
	"restore":   {1, 4}, // there are six tasks
	"finish":    {1, 38},
	"commit":    {1, 26},
	"sst":       {1, 20},
	"sst.store": {1, 20},
	"ingest":    {1, 20},
	"base":      nil, // only in the wide corpus
	"manifest":  {1, 7},
	"head":      {1, 7}, // the first raises the generation
	"ack":       {1, 12},
	"publish":   {1, 2}, // the file is written at most once a second, and at the end
	"delete":    {1, 5},
}

// wideSteps are those to die at with the wide corpus. There are fewer manifests to
// delete than that: what came before a new base is being deleted then.
var wideSteps = map[string][]int{
	"base":   {1},
	"delete": {wideBatches},
}

// TestEveryStepCanBeTheLast kills a process at every step, and the next one at the
// same step, and expects a third one to finish the work.
func TestEveryStepCanBeTheLast(t *testing.T) {
	dieAtEach(t, "narrow", narrowCorpus(t), steps)
	dieAtEach(t, "wide", wideCorpus(t), wideSteps)
}

func dieAtEach(t *testing.T, name string, c *corpus, steps map[string][]int) {
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		occurrences := steps[step]
		if testing.Short() && len(occurrences) > 1 {
			occurrences = occurrences[1:]
		}
		for _, n := range occurrences {
			for _, edge := range []string{".before", ".after"} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, step+edge, n), func(t *testing.T) {
					t.Parallel()
					dieTwice(t, c, newPlace(t, "victim"), step+edge, n)
				})
			}
		}
	}
}

func dieTwice(t *testing.T, c *corpus, p place, step string, n int) {
	t.Helper()
	for _, n := range []int{n, 1} {
		v := victim.start(t, p.victimArgs(c), "CRASH_STEP="+step, "CRASH_OCCURRENCE="+strconv.Itoa(n))
		code := v.wait()
		log := v.stderr.String()
		if last := fmt.Sprintf("dies at %s %d\n", step, n); code == 0 || !strings.Contains(log, last) {
			t.Fatalf("it did not die at occurrence %d of %s: %v\n%s", n, step, v.cmd.ProcessState, log)
		}
		v.checkLog(t)
		checkSteps(t, log)
		p.check(t, c)
	}
	v := victim.run(t, 0, p.victimArgs(c))
	checkSteps(t, v.stderr.String())
	p.checkAll(t, c)
}

func (p place) victimArgs(c *corpus) []string {
	return append([]string{
		"--input", c.glob(), "--output", p.output, "--data", p.data,
		"-c", "transaction.schedule.batch.delay.ms=5",
		"-c", "checkpoint.retained=2",
		"-c", "checkpoint.orphan.grace.secs=0",
		"-c", "topology.debug.poison.frames=true",
	}, p.conf...)
}

// checkSteps returns the steps that a process has come by, and fails if one is not
// in the list of steps.
func checkSteps(t *testing.T, log string) []string {
	t.Helper()
	var seen []string
	for line := range strings.Lines(log) {
		step, ok := strings.CutPrefix(strings.TrimSpace(line), "step ")
		if !ok {
			continue
		}
		seen = append(seen, step)
		name, before := strings.CutSuffix(step, ".before")
		name, after := strings.CutSuffix(name, ".after")
		if _, known := steps[name]; !known || before == after {
			t.Errorf("step %s is not in the list of steps: nothing dies there", step)
		}
	}
	return seen
}

// TestUndisturbed is the reference for all others: without a kill, the engine counts
// what the loop in this package counts, and comes by every step.
func TestUndisturbed(t *testing.T) {
	c := wideCorpus(t)
	p := newPlace(t, "victim")
	v := victim.run(t, 0, p.victimArgs(c))
	if seen := checkSteps(t, v.stderr.String()); len(seen) != 2*len(steps) {
		t.Errorf("came by %d steps, want %d: %q", len(seen), 2*len(steps), seen)
	}
	p.checkAll(t, c)
}

// narrowCorpus is small, and ends its lines in every way that there is.
func narrowCorpus(t *testing.T) *corpus {
	return newCorpus(t, map[string]string{
		"a.txt": verses(0, 500),
		"b.txt": strings.ReplaceAll(verses(500, 1000), "\n", "\r\n"),
		"c.txt": "",
		"d.txt": strings.ReplaceAll(verses(1000, 1500), "e", "\x00\xff"),
		"e.txt": strings.TrimSuffix(verses(1500, 1540), "\n"),
	})
}

// wideBatches is how many batches the wide corpus makes.
const wideBatches = 20

// wideCorpus has so many different words that soon the deltas are large and a new
// base is written.
func wideCorpus(t *testing.T) *corpus {
	rnd := rand.New(rand.NewPCG(1, 2))
	var sb strings.Builder
	for range wideBatches * 64 {
		for range 100 {
			for range 9 {
				sb.WriteByte('a' + byte(rnd.IntN(26)))
			}
			sb.WriteByte(' ')
		}
		sb.WriteByte('\n')
	}
	return newCorpus(t, map[string]string{"wide.txt": sb.String()})
}
