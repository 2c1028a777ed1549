package cli

import (
	"strings"
	"testing"

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
