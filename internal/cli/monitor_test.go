package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// goesOn plays a topology master that tells every 2 seconds how much its components have
// processed: 10 and 2500 tuples a second.
func (c *testCluster) goesOn(a cluster.Assignment, seconds int) {
	for n := uint64(2); n <= uint64(seconds)/2+1; n++ {
		c.sleep(2 * time.Second)
		c.runs(a, func(s *cluster.RunStatus) {
			s.Beat = n
			s.Components[0].Emitted, s.Components[1].Executed = 1000+20*(n-1), 9000+5000*(n-1)
		})
	}
}

func TestMonitorPrintsLines(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.runs(a, nil)
		began := time.Now()
		b := c.background("monitor", "words", "-i", "3")
		c.goesOn(a, 8)
		if code := b.end(); code != exitOK || b.errOut.take() != "" {
			t.Errorf("exit code %d", code)
		}
		at := func(secs int) string { return moment(began.Add(time.Duration(secs) * time.Second).UnixMilli()) }
		want := "TIME (UTC)           COMPONENT             TASKS      EMITTED/S     EXECUTED/S  CHECKPOINTS\n" +
			at(3) + "  lines                     1             10            0.0           12\n" +
			at(3) + "  count                     3            0.0          2,500           12\n" +
			at(6) + "  lines                     1             10            0.0           12\n" +
			at(6) + "  count                     3            0.0          2,500           12\n"
		got := b.out.take()
		if got != want {
			t.Errorf("it prints\n%s\nwant\n%s", got, want)
		}
	})
}

func TestMonitorAsJSONOfOneComponent(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.runs(a, nil)
		b := c.background("monitor", "words", "-i", "1", "--count", "9", "--json", "-m", "count")
		c.goesOn(a, 8)
		if !b.runs() {
			t.Error("it ended too early")
		}
		c.goesOn(a, 2)
		if b.runs() {
			t.Error("it goes on after the last report")
		}
		if code := b.end(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		dec := json.NewDecoder(strings.NewReader(b.out.take()))
		for i := range 9 {
			var r report
			if err := dec.Decode(&r); err != nil || len(r.Components) != 1 || r.Components[0].Component != "count" || r.Phase != cluster.PhaseRunning || r.Workers != 2 {
				t.Errorf("JSON holds %+v, %v", r, err)
			} else if got := r.Components[0].ExecutedS; i >= 2 && got != 2500 { // nothing new each other second
				t.Errorf("report %d: %v tuples a second", i, got)
			}
		}
		if dec.More() {
			t.Error("there are more than 9 reports")
		}
	})
}

func TestMonitorEndsWithItsTopology(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		for name, phase := range map[string]cluster.Phase{"good": cluster.PhaseFinished, "bad": cluster.PhaseFailed} {
			a := c.submit(name)
			b := c.background("monitor", name, "-i", "1")
			c.sleep(1500 * time.Millisecond)
			c.runs(a, func(s *cluster.RunStatus) {
				s.Phase, s.Error = phase, map[cluster.Phase]string{cluster.PhaseFailed: "gave up"}[phase]
			})
			c.sleep(5 * time.Second)
			wantCode, wantErr := exitOK, ""
			if phase == cluster.PhaseFailed {
				wantCode, wantErr = exitFailed, "isobar: topology bad has failed: gave up\n"
			}
			got, gotErr := b.out.take(), b.errOut.take()
			if b.runs() {
				t.Errorf("%s: it goes on", name)
			}
			if code := b.end(); code != wantCode || gotErr != wantErr || !strings.Contains(got, "topology "+name+" is ACTIVE, and its topology master has told nothing yet\n") || !strings.Contains(got, "  count                     3              -              -           12\n") {
				t.Errorf("%s: exit code %d, %q, prints\n%s", name, code, gotErr, got)
			}
		}
		c.submit("words")
		c.fails(exitUsage, "monitor words -i 0", "the interval must be 1 second or more")
		c.fails(exitUsage, "monitor words --count -1", "the count 0 or more")
		c.fails(exitUsage, "monitor")
		c.fails(exitFailed, "monitor words -m cuont", `topology words has no component "cuont", it has lines, count`)
		c.fails(exitFailed, "monitor other", `topology "other" is not there`)
	})
}

func TestMonitorRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	m := &monitor{name: "words", out: &out, terminal: true}
	r := report{Topology: "words", Status: cluster.Active, Phase: cluster.PhaseRunning, Workers: 2, Checkpoints: 7, AgeSecs: 0.25,
		Components: []pace{{Component: "count", Tasks: 3, Executed: 1234, EmittedS: -1, ExecutedS: 99.6}}}
	table := `Topology words is ACTIVE running: 2 workers, 7 checkpoints, 0 restarts, heard of 0.2 s ago
COMPONENT  TASKS  EMITTED/S  EXECUTED/S  EMITTED  EXECUTED
count      3      -          100         0        1,234
`
	for i, want := range []string{table, "\x1b[3A\x1b[J" + table, "\x1b[3A\x1b[J" + table} {
		out.Reset()
		if err := m.show(r); err != nil || out.String() != want {
			t.Errorf("%d: error %v, draws %q, want %q", i, err, out.String(), want)
		}
	}
}

func TestPacesOfRunsThatCannotBeCompared(t *testing.T) {
	at := time.Unix(100, 0)
	counts := func(secs int, incarnation, n uint64) *sample {
		return &sample{at.Add(time.Duration(secs) * time.Second), cluster.Detail{Run: &cluster.RunStatus{
			Incarnation: incarnation, Components: []cluster.ComponentCounts{{ID: "a", Emitted: n}},
		}}}
	}
	for name, x := range map[string]struct {
		before *sample
		want   perSec
	}{
		"the first":           {nil, -1},
		"two seconds before":  {counts(-2, 1, 40), 30},
		"another incarnation": {counts(-2, 2, 40), -1},
		"more before":         {counts(-2, 1, 101), -1},
		"the same moment":     {counts(0, 1, 40), -1},
		"another component":   {&sample{at.Add(-time.Second), cluster.Detail{Run: &cluster.RunStatus{Incarnation: 1}}}, -1},
	} {
		if got := paces(x.before, *counts(0, 1, 100)); len(got) != 1 || got[0].EmittedS != x.want {
			t.Errorf("%s: %+v, want %v", name, got, x.want)
		}
	}
	if text, err := json.Marshal(perSec(-1)); string(text) != "null" || err != nil {
		t.Errorf("what is not known is %s, %v", text, err)
	}
}
