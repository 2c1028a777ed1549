package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestSupervisors(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.tell(cluster.BucketSupervisors, "sup-b", cluster.Supervisor{ID: "sup-b", Host: "b.example", Machine: "b", Unhealthy: "disk: ERROR\nfull"})
		c.prints(`
SUPERVISOR  HOST       SLOTS  USED  CPU   MEMORY    VERSION  STARTED (UTC)        NOTES
sup-a       a.example  5      1     800%  16000 MB  0.1.0    1999-12-31 12:00:00  pool=batch
sup-b       b.example  0      0     0%    0 MB               0001-01-01 00:00:00  disk: ERROR full
`, "supervisors")
		var all []cluster.Supervisor
		if c.json(&all, "supervisors"); len(all) != 2 || all[0].ID != "sup-a" || all[1].Unhealthy == "" {
			t.Errorf("JSON holds %+v", all)
		}
	})
}

func TestHealthHasAnExitCode(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		c.prints("Nimbus n1 leads. Supervisors: 1. Slots used: 2 of 5. Topologies: 1.\nNo problems.\n", "health")
		var h cluster.Health
		if c.json(&h, "health"); h.Slots != 5 || h.Leader != "n1" {
			t.Errorf("JSON holds %+v", h)
		}
		c.tell(cluster.BucketSupervisors, "sup-b", cluster.Supervisor{ID: "sup-b", Machine: "b", Unhealthy: strings.Repeat("the disk is full, ", 8)})
		code, out, errOut := c.call("health")
		want := "Nimbus n1 leads. Supervisors: 2. Slots used: 2 of 5. Topologies: 1.\n  - supervisor sup-b is not healthy: the disk is full, the disk is full, the disk is full, the disk\n    is full,"
		if code != exitFailed || !strings.HasPrefix(out, want) || errOut != "isobar: the cluster has problems\n" {
			t.Errorf("exit code %d, %q\n%s\nwant\n%s", code, errOut, out, want)
		}
		if code, out, _ := c.call("health", "--json"); code != exitFailed || !strings.Contains(out, `"problems": [`) {
			t.Errorf("with --json: exit code %d\n%s", code, out)
		}
	})
}

func TestNobodyAnswers(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.nimbus.Cut()
		c.fails(exitFailed, "list", "no nimbus answers at", "isobar dev")
		c.server.Stop()
		c.fails(exitFailed, "list", "nothing answers at", "isobar dev", "--nats URL")
		c.server.Start()
		c.nimbus.Heal()
		c.prints("No topologies running.\n", "list")
	})
}

// What runs and is not known, as after NATS has lost everything, holds slots.
func TestHealthNamesWhatIsNotKnown(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		known := c.submit("lines")
		c.mu.Lock()
		c.processes = append(c.processes, []cluster.ProcessStatus{
			{ID: "words-3-1796062563", Role: cluster.RoleMaster, Running: true}, {ID: "words-3-1796062563", Role: cluster.RoleWorker, Port: 6703, Running: true},
			{ID: "gone-1-1", Role: cluster.RoleMaster}, {ID: "lines-1-1", Role: cluster.RoleMaster, Running: true}, {ID: known.ID, Role: cluster.RoleMaster, Running: true},
		}...)
		c.mu.Unlock()
		c.sleep(6 * time.Second)
		var h cluster.Health
		code, out, _ := c.call("health", "--json")
		c.must(json.Unmarshal([]byte(out), &h))
		want := "supervisor sup-a runs words-3-1796062563, which is not known here (NATS has lost its records?): submit words again with --from latest, and kill it then if it is not wanted"
		if code != exitFailed || len(h.Problems) != 1 || h.Problems[0] != want {
			t.Errorf("exit code %d, problems %q", code, h.Problems)
		}
	})
}
