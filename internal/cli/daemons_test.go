package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/config"
)

// configured returns the configuration of a daemon that was told key=value.
func configured(t *testing.T, assignments ...string) config.Values {
	t.Helper()
	c, err := daemonconf.Read("", nil, append(assignments, "storm.local.dir="+t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSupervisorConfig(t *testing.T) {
	const host = "storm.local.hostname=127.0.0.1"
	c, err := supervisorConfig(configured(t, host, "supervisor.worker.cpu.cores=4", "supervisor.slots.ports=6700-6702"), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.WorkerCPU != 400 {
		t.Errorf("4 cores are %d, want 400", c.WorkerCPU)
	}
	if c.Bind != "127.0.0.1" || !slices.Equal(c.Ports, []int{6700, 6701, 6702}) {
		t.Errorf("it binds to %q, ports %v", c.Bind, c.Ports)
	}
	if _, err := supervisorConfig(configured(t), 0, false); err == nil || !strings.Contains(err.Error(), "supervisor.links.cert.file") {
		t.Errorf("for other machines, without TLS: %v", err)
	}
	if _, err := supervisorConfig(configured(t), 0, true); err != nil {
		t.Errorf("--insecure: %v", err)
	}
}

func TestNATSOptions(t *testing.T) {
	o, err := natsOptions(configured(t, "storm.local.hostname=a.example.org", "nats.group.name=g", "nats.group.routes=b:1"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Name == "" || o.Group.Advertise != "a.example.org" || o.Group.Host != o.Host || filepath.Base(o.StoreDir) != "nats" {
		t.Errorf("a server of a group has the options %+v", o)
	}
}
