//go:build linux || darwin

package crash

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/app"
)

var operationsFlag = flag.Int("crash.operations", 4, "how many of the deaths in an operation to try (0: all)")

// prepared is a topology in the middle of its input: there is an older checkpoint and a
// current one, and all that is committed is published.
type prepared struct {
	input          *studied
	place          place
	older, current checkpoint.Ref
}

const preparedCalls = 3 // before each of the two checkpoints

func prepare(t *testing.T) prepared {
	t.Helper()
	d := prepared{input: study(t, 12), place: newPlace(t, "changer")}
	d.place.session(t, d.input, false, preparedCalls, "--tasks", "2")
	d.older = *d.place.committed(t)
	d.place.session(t, d.input, false, preparedCalls, "--tasks", "2")
	d.current = *d.place.committed(t)
	return d
}

// copied returns another place that is in the same state.
func (d prepared) copied(t *testing.T) prepared {
	t.Helper()
	to := newPlace(t, "changer")
	if err := os.CopyFS(filepath.Dir(to.output), os.DirFS(filepath.Dir(d.place.output))); err != nil {
		t.Fatal(err)
	}
	d.place = to
	return d
}

// undone returns the lines that were published on a branch which has been left, up to
// its checkpoint tip.
func (d prepared) undone(t *testing.T, tip int) []string {
	for _, r := range d.place.head(t).Regions {
		if len(r.Superseded) > 0 {
			return d.input.lines[d.place.read(t, d.input, &d.older):tip]
		}
	}
	return nil
}

// renamed reports whether something is committed under the keeper's new name.
func (d prepared) renamed(t *testing.T) bool {
	_, ok := d.place.current(t).Components["tally"]
	return ok
}

// operation is something that an operator does to a prepared topology, and during which
// the process dies.
type operation struct {
	// begin starts the process that is to die. tip is how many lines were published
	// before that.
	begin func(t *testing.T, d prepared, death []string) (v *process, tip int)
	// args are those of the starts that follow.
	args func(t *testing.T, d prepared) []string
	// from is the first of the lines that are kept in the end.
	from func(t *testing.T, d prepared) int
	// steps are those to die at, and the occurrences.
	steps map[string][]int
}

func plainly(args ...string) func(t *testing.T, d prepared, death []string) (*process, int) {
	return func(t *testing.T, d prepared, death []string) (*process, int) {
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "OLDER", d.older.String())
		}
		return changer.start(t, d.place.changerArgs(d.input, args...), death...), d.place.read(t, d.input, &d.current)
	}
}

func always(args ...string) func(*testing.T, prepared) []string {
	return func(*testing.T, prepared) []string { return args }
}

// unlessRenamed repeats the flags of a start that has not committed anything.
func unlessRenamed(args ...string) func(*testing.T, prepared) []string {
	return func(t *testing.T, d prepared) []string {
		if d.renamed(t) {
			return []string{"--keeper", "tally"}
		}
		return append([]string{"--keeper", "tally"}, args...)
	}
}

func all(*testing.T, prepared) int { return 0 }

var operations = map[string]operation{
	"rescale": {plainly("--tasks", "8"), always("--tasks", "3"), all, startSteps},
	"from":    {plainly("--from", "OLDER"), always(), all, startSteps},
	"map":     {plainly("--keeper", "tally", "--map", "keeper=tally"), unlessRenamed("--map", "keeper=tally"), all, startSteps},
	"drop": {plainly("--keeper", "tally", "--drop", "keeper"), unlessRenamed("--drop", "keeper"),
		func(t *testing.T, d prepared) int { return d.place.read(t, d.input, &d.current) }, startSteps},
	"rollback":  {operated("rollback?to=OLDER"), always(), all, startSteps},
	"savepoint": {operated("savepoint?name=here"), always(), all, savepointSteps},
}

// startSteps are those that a start comes by.
var startSteps = map[string][]int{
	"restore":   {1, 5},
	"finish":    {1, 7},
	"commit":    {1, 9},
	"sst.store": {1},
	"ingest":    {1},
	"manifest":  {1},
	"head":      {1, 2, 3},
	"ack":       {1},
}

// savepointSteps are those of a savepoint while nothing else happens.
var savepointSteps = map[string][]int{"finish": {1, 7}, "commit": {1}, "manifest": {1}, "head": {1, 2}, "ack": {1}}

var listening = regexp.MustCompile(`metrics at (http://.*)/metrics`)

// operated starts a process, lets it publish some more, and then sends it a request: from
// there on the steps count.
func operated(request string) func(t *testing.T, d prepared, death []string) (*process, int) {
	return func(t *testing.T, d prepared, death []string) (*process, int) {
		p, c := d.place, d.input
		armed := filepath.Join(filepath.Dir(p.output), "armed")
		goal := p.read(t, c, &d.current) + preparedCalls*callLines
		v := changer.start(t, p.changerArgs(c, "--listen", "127.0.0.1:0", "--armed", armed, "--calls", strconv.Itoa(preparedCalls)), death...)
		if !v.await(t, "what is published", func() bool { return len(p.copied(t)) == goal }) {
			t.Fatalf("it ended: %v\n%s", v.cmd.ProcessState, &v.stderr)
		}
		address := listening.FindStringSubmatch(v.stderr.String())
		if address == nil {
			t.Fatalf("it does not listen:\n%s", &v.stderr)
		}
		if err := os.WriteFile(armed, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address[1]+"/operate/"+strings.ReplaceAll(request, "OLDER", d.older.String()), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(app.OperatorHeader, "test")
		if resp, err := http.DefaultClient.Do(r); err == nil { // else it is dead
			body, _ := io.ReadAll(resp.Body)
			if err := resp.Body.Close(); resp.StatusCode != http.StatusOK || err != nil {
				t.Fatalf("%s: %s %s %v", request, resp.Status, body, err)
			}
			d.promised(t, request)
		}
		return v, goal
	}
}

// promised fails unless what the process said to have done is in the head.
func (d prepared) promised(t *testing.T, request string) {
	t.Helper()
	h := d.place.head(t)
	if strings.HasPrefix(request, "savepoint") && len(h.Pins) != 1 || strings.HasPrefix(request, "rollback") && d.undone(t, len(d.input.lines)) == nil {
		t.Errorf("%s was done, and the head says %+v", request, h)
	}
}

// A process dies at every step of a start from an older checkpoint, of one with renamed
// or dropped components, of one with other numbers of tasks, of a rollback while it runs,
// and of a savepoint. The next one dies at the same step, and a plain start finishes.
func TestOperationsSurviveDeath(t *testing.T) {
	d := prepare(t)
	type death struct {
		operation, step string
		n               int
	}
	var deaths []death
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		steps := operations[name].steps
		for _, step := range slices.Sorted(maps.Keys(steps)) {
			for _, n := range steps[step] {
				for _, edge := range []string{".before", ".after"} {
					deaths = append(deaths, death{name, step + edge, n})
				}
			}
		}
	}
	if n := *operationsFlag; n > 0 {
		rand.Shuffle(len(deaths), func(i, j int) { deaths[i], deaths[j] = deaths[j], deaths[i] })
		deaths = deaths[:n]
	}
	for _, death := range deaths {
		t.Run(fmt.Sprintf("%s/%s/%d", death.operation, death.step, death.n), func(t *testing.T) {
			t.Parallel()
			d.copied(t).die(t, operations[death.operation], death.step, death.n)
		})
	}
}

func (d prepared) die(t *testing.T, o operation, step string, n int) {
	env := func(n int) []string { return []string{"CRASH_STEP=" + step, "CRASH_OCCURRENCE=" + strconv.Itoa(n)} }
	v, tip := o.begin(t, d, env(n))
	d.died(t, v, step, n)
	if undone := d.undone(t, tip); undone == nil && d.place.read(t, d.input, d.place.committed(t)) < d.place.read(t, d.input, &d.current) {
		t.Error("the head has gone back, and does not keep what it has undone")
	}
	d.died(t, changer.start(t, d.place.changerArgs(d.input, o.args(t, d)...), env(1)...), step, 1)
	from := o.from(t, d)
	changer.run(t, 0, d.place.changerArgs(d.input, o.args(t, d)...))
	d.place.checkChanged(t, d.input, from, d.undone(t, tip))
}

// died waits for a death.
func (d prepared) died(t *testing.T, v *process, step string, n int) {
	t.Helper()
	code, log := v.wait(), v.stderr.String()
	if last := fmt.Sprintf("dies at %s %d\n", step, n); code == 0 || !strings.Contains(log, last) {
		t.Fatalf("it did not die at occurrence %d of %s: %v\n%s", n, step, v.cmd.ProcessState, log)
	}
	v.checkLog(t)
}

// A topology goes back to checkpoints at which files were incomplete that show now: what
// they held then shows once, and what came after it once more.
func TestGoingBackToAnIncompleteFile(t *testing.T) {
	c, p := numberedCorpus(t), newPlace(t, "roller")
	args := []string{"--input", c.glob(), "--output", p.output, "--data", p.data, "--batches=3",
		"-c", "transaction.schedule.batch.delay.ms=5", "-c", "checkpoint.retained=100", "-c", "topology.debug.poison.frames=true"}
	roller.run(t, 0, args)
	p.checkAllFiles(t, c)
	for i, ref := range p.head(t).Regions["lines"].Retained[3:6] {
		before := linesIn(t, filepath.Join(p.output, "roller~*"))
		roller.run(t, 0, append(slices.Clone(args), "--from", ref.String()))
		mf, err := checkpoint.ReadManifest(t.Context(), p.open(t), ref)
		if err != nil {
			t.Fatal(err)
		}
		old := committedLines(mf, c)
		for line, n := range linesIn(t, filepath.Join(p.output, "roller~*")) {
			want := before[line]
			if !old[line] {
				want++
			}
			if n != want {
				t.Fatalf("start %d, from %s: line %q shows %d times, want %d", i, ref, line, n, want)
			}
		}
	}
}

// committedLines returns the lines that a checkpoint has read.
func committedLines(mf *checkpoint.Manifest, c *corpus) map[string]bool {
	lines := map[string]bool{}
	for _, task := range mf.Tasks {
		for _, pos := range task.Positions {
			data := c.texts[slices.Index(c.paths, string(pos.Partition))].data
			for line := range bytes.Lines(data[:binary.BigEndian.Uint64(pos.Data[2:])]) {
				lines[string(line)] = true
			}
		}
	}
	return lines
}
