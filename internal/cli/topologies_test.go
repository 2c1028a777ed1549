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
		c.submitAs("bob-with-a-long-name", strings.Repeat("very-", 6)+"long", "topology.readonly.users=ann")
		c.submitAs("bob", "hidden")
		c.prints(`
Topology_name         Status  Num_tasks  Num_workers  Uptime_secs  Topology_Id         Owner
very-very-very-very…  ACTIVE  4          0            1            …y-long-2-946684801  bob-with-…
words                 ACTIVE  4          1            2            words-1-946684800   ann
`, "list")
		if c.json(&all, "list"); len(all) != 2 || all[1].Name != "words" || all[1].ID != words.ID || all[1].Workers != 1 || all[1].Wanted != 2 {
			t.Errorf("JSON holds %+v", all)
		}
	})
}

func TestStatusShowsRegionsComponentsAndProcesses(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		a := c.submit("words")
		c.prints(`
`, "status", "words")
		c.started(a)
		c.runs(a, func(s *cluster.RunStatus) {
			s.Errors = []cluster.ErrorReport{{Component: "count"}}
			s.Regions = append(s.Regions, cluster.RegionState{Name: "idle", Generation: 3, Running: true, Idle: true}, cluster.RegionState{Name: "new", Degraded: []string{"count/1"}})
		})
		time.Sleep(1500 * time.Millisecond)
		c.prints(`
`, "status", "words")
		var d cluster.Detail
		if c.json(&d, "status", "words"); d.Topology.ID != a.ID || d.Run.Committed != 12 || len(d.Processes) != 2 || d.Processes[0].Supervisor != "sup-a" {
			t.Errorf("JSON holds %+v", d)
		}
		c.fails(exitFailed, "status wrods", `topology "wrods" is not there, did you mean words?`)
	})
}
