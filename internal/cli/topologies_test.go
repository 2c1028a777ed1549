package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestListOfTopologies(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.prints("No topologies running.\n", "list")
		var all []cluster.Summary
		if c.json(&all, "list"); all == nil || len(all) != 0 {
			t.Errorf("without topologies the JSON is %+v", all)
		}
		words := c.submit("words")
		c.runs(words, func(s *cluster.RunStatus) { s.Workers = s.Workers[:1] })
		c.sleep(2 * time.Second)
		long := c.submitAs("bob-with-a-long-name", strings.Repeat("very-", 6)+"long", "topology.readonly.users=ann")
		c.prints(`
Topology_name         Status  Num_tasks  Num_workers  Uptime_secs  Topology_Id            Owner
very-very-very-very…  ACTIVE  4          0            0            `+clipFront(long.ID, 21)+`  bob-with-…
words                 ACTIVE  4          1            2            `+words.ID+`      ann
`, "list")
		if c.json(&all, "list"); len(all) != 2 || all[1].Name != "words" || all[1].ID != words.ID || all[1].Workers != 1 || all[1].Wanted != 2 {
			t.Errorf("JSON holds %+v", all)
		}
	})
}

func TestListShowsWhatTheUserMaySee(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submitAs("bob", "hidden")
		c.prints("No topologies running.\n", "list")
		c.fails(exitFailed, "status hidden", `user "ann" may not do this with topology hidden`)
	})
}

func TestStatusShowsRegionsComponentsAndProcesses(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.prints(`
Topology words is ACTIVE
    id `+a.ID+`, owner ann, submitted 2000-01-01 00:00:00 UTC
    epoch 1, program 6ae1d31958a0, 4 tasks, 0 of 2 workers
PROCESS  SUPERVISOR  PORT  TASKS  PID  STATE        RESTARTS  LAST END
master   sup-a       -     -      -    not started  0
worker   sup-a       6700  2      -    not started  0
worker   sup-a       6701  2      -    not started  0
`, "status", "words")
		c.started(a)
		c.runs(a, func(s *cluster.RunStatus) {
			s.Workers = s.Workers[:1]
			s.Errors = []cluster.ErrorReport{{Component: "count"}}
			s.Regions = append(s.Regions, cluster.RegionState{Name: "idle", Generation: 3, Running: true, Idle: true}, cluster.RegionState{Name: "new", Degraded: []string{"count/1"}})
		})
		c.sleep(1500 * time.Millisecond)
		c.prints(`
Topology words is ACTIVE
    id `+a.ID+`, owner ann, submitted 2000-01-01 00:00:00 UTC
    epoch 1, program 6ae1d31958a0, 4 tasks, 1 of 2 workers
    running, up 1m2s, 12 checkpoints, 1 restarts, heard of 1.5 s ago
    components have reported errors, see: isobar get-errors words
REGION  CHECKPOINT  GENERATION  STATE       RESTARTS  NOTES
count   3.17        3           running     1
idle    -           3           idle        0
new     -           0           restarting  0         count/1

COMPONENT  TASKS  EMITTED  EXECUTED
lines      1      1,000    0
count      3      0        9,000

PROCESS  SUPERVISOR  PORT  TASKS  PID   STATE              RESTARTS  LAST END
master   sup-a       -     -      4000  running            2         exit status 2
worker   sup-a       6700  2      4001  connected          0
worker   sup-a       6701  2      -     not started        0
worker   sup-a       6701  -      3999  ended, epoch 0     0
worker   sup-a       6704  -      -     starting, epoch 0  0
`, "status", "words")
		var d cluster.Detail
		if c.json(&d, "status", "words"); d.Topology.ID != a.ID || d.Run.Committed != 12 || len(d.Processes) != 4 || d.Processes[0].Supervisor != "sup-a" {
			t.Errorf("JSON holds %+v", d)
		}
		d.Run.Epoch = 0 // the new one has not told anything yet
		var old strings.Builder
		if err := printStatus(&old, d); err != nil {
			t.Error(err)
		}
		if out := old.String(); !strings.Contains(out, "0 of 2 workers\n    epoch 0 was last: running, up 1m2s") || strings.Contains(out, "connected") {
			t.Errorf("with the status of an old epoch it prints\n%s", out)
		}
		c.fails(exitFailed, "status wrods", `topology "wrods" is not there, did you mean words?`)
	})
}

// What is the matter is told, however long it is.
func TestStatusTellsWhatIsTheMatter(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.started(a)
		c.runs(a, func(s *cluster.RunStatus) {
			s.Phase, s.Error = cluster.PhaseFailed, "restore checkpoint 3.17:\n"+strings.Repeat("data/3/count is damaged, ", 6)+"and the restart limit is reached"
		})
		c.sleep(15 * time.Second)
		code, out, _ := c.call("status", "words")
		if code != exitOK {
			t.Fatal(out)
		}
		for _, want := range []string{
			"Topology words is FAILED\n", "    error: restore checkpoint 3.17: data/3/count is damaged, data/3", "\n        data/3/count is damaged,", "and the restart limit is reached\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("status prints\n%s\nwithout %q", out, want)
			}
		}
		big := c.submitAs("ann", "big", "topology.workers=9")
		c.runs(big, nil)
		code, out, _ = c.call("status", "big")
		if want := "    note: wants 9 workers, "; code != exitOK || !strings.Contains(out, want) {
			t.Errorf("status prints\n%s\nwithout %q", out, want)
		}
		c.runs(big, func(s *cluster.RunStatus) {
			s.Unlinked = [][2]string{{"sup-a/6700", "sup-a/6701"}, {"sup-a/6700", "sup-a/6702"}, {"sup-a/6701", "sup-a/6702"}}
		})
		code, out, _ = c.call("status", "big")
		if want := "    note: workers sup-a/6700 and sup-a/6701 do not reach each other, nor do 2 other pairs\n"; code != exitOK || !strings.Contains(out, want) {
			t.Errorf("status prints\n%s\nwithout %q", out, want)
		}
	})
}

func TestGetErrorsShowsTheLatestOfEachComponent(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.prints("Topology words has no errors.\n", "get-errors", "words")
		at := func(secs int) time.Time { return time.Date(2000, 1, 1, 0, 0, secs, 0, time.UTC) }
		c.runs(a, func(s *cluster.RunStatus) {
			s.Errors = []cluster.ErrorReport{
				{Time: at(1), Component: "lines", Task: 1, Error: "older"}, {Time: at(3), Component: "count", Task: 4, Error: "last\n" + strings.Repeat("of many words ", 9)},
				{Time: at(2), Component: "count", Task: 3, Error: "first"}, {Time: at(2), Component: "lines", Task: 1, Error: "open /data: no such file"},
			}
		})
		c.prints(`
count, task 4, 2000-01-01 00:00:03 UTC
    last of many words of many words of many words of many words of many words of many words of many
    words of many words of many words
lines, task 1, 2000-01-01 00:00:02 UTC
    open /data: no such file
`, "get-errors", "words")
		var got latestErrors
		if c.json(&got, "get-errors", "words"); got.Topology != "words" || len(got.Components) != 2 || got.Components["count"].Task != 4 || got.Error != "" {
			t.Errorf("JSON holds %+v", got)
		}
		c.runs(a, func(s *cluster.RunStatus) { s.Phase, s.Error = cluster.PhaseFailed, "gave up" })
		c.sleep(time.Second)
		c.prints("Topology words\n    gave up\n", "get-errors", "words")
		if c.json(&got, "get-errors", "words"); got.Error != "gave up" {
			t.Errorf("JSON holds %+v", got)
		}
		if got := latestOf(cluster.Detail{Run: &cluster.RunStatus{Error: "of the run"}}); got.Error != "of the run" {
			t.Errorf("before nimbus knows it, the error is %q", got.Error)
		}
		c.fails(exitFailed, "get-errors other", `topology "other" is not there`)
	})
}

// A program that dies at its start reports nothing by itself.
func TestGetErrorsShowsHowProcessesEnd(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.mu.Lock()
		c.processes = append(c.processes, cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleWorker, Port: 6703, Restarts: 3, Exit: "of an older epoch"},
			cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleWorker, Port: 6704, Epoch: a.Version.Epoch, Exit: "exit status 0"})
		c.mu.Unlock()
		c.started(a)
		c.prints(`
master on supervisor sup-a, started again 2 times; see: isobar logs words
    it ended last with: exit status 2
`, "get-errors", "words")
		var got latestErrors
		if c.json(&got, "get-errors", "words"); len(got.Processes) != 1 || got.Processes[0] != (processEnd{"master", "sup-a", 2, "exit status 2"}) {
			t.Errorf("JSON holds %+v", got)
		}
	})
}

// What is taken back because its processes crash says so.
func TestTakenBackTellsHowProcessesEnd(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.runs(a, nil)
		c.prints("Topology words is rebalancing\n", "rebalance", "words", "-w", "0")
		c.runs(a, func(s *cluster.RunStatus) { s.Beat, s.Phase = 2, cluster.PhaseStopped })
		c.mu.Lock()
		c.processes = append(c.processes, cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleMaster, Epoch: a.Version.Epoch + 1, Restarts: 4, Exit: "exit status 2"})
		c.mu.Unlock()
		c.sleep(20 * time.Minute)
		want := "its topology master has not come up: its master on sup-a was started 5 times and ended at last with exit status 2; see isobar logs words"
		if is := c.is("words"); !strings.HasPrefix(is.Error, "the rebalance was taken back: ") || !strings.HasSuffix(is.Error, want) {
			t.Errorf("the error is %q, want %q", is.Error, want)
		}
	})
}
