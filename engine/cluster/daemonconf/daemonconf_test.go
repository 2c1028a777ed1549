package daemonconf

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/config"
)

var rewrite = flag.Bool("rewrite", false, "write the reference page instead of comparing it")

func TestReferencePageIsFresh(t *testing.T) {
	const page = "../../../docs/daemons.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Markdown() {
		t.Error("docs/daemons.md is stale: run go generate ./engine/cluster/daemonconf")
	}
}

func TestTableIsConsistent(t *testing.T) {
	for _, k := range daemons {
		if k.Meaning == "" || k.Scope == "" {
			t.Errorf("key %q lacks a meaning or a scope", k.Name)
		}
		if _, err := Table.Of("x", map[string]any{k.Name: k.Default}); err != nil {
			t.Errorf("the default of %s is not accepted: %v", k.Name, err)
		}
		if _, err := config.Lookup(k.Name); err == nil || !strings.Contains(err.Error(), "daemons") {
			t.Errorf("%s as a key of a topology: %v, want an error that sends to the daemons", k.Name, err)
		}
		want := time.Duration(0)
		switch {
		case strings.HasSuffix(k.Name, ".secs"):
			want = time.Second
		case strings.HasSuffix(k.Name, ".ms"):
			want = time.Millisecond
		}
		if k.Unit != want {
			t.Errorf("%s is in units of %v, its name says %v", k.Name, k.Unit, want)
		}
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "isobar.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLayers(t *testing.T) {
	path := file(t, "nimbus.lease.secs: 20\nnimbus.monitor.freq.secs: 20\nnimbus.task.timeout.secs: 20\n"+
		"nimbus.admins: [alice, bob]\ncheckpoint.retained: 7\nuser.team: data\nsupervisor.slots.ports: [6700, 6710-6711]\n")
	environ := []string{"HOME=/", "ISOBAR_NIMBUS_MONITOR_FREQ_SECS=30", "ISOBAR_NIMBUS_TASK_TIMEOUT_SECS=31", "ISOBAR_PROCESS=/x",
		"ISOBAR_TOPOLOGY_WORKERS=4", "ISOBAR_NIMBUS_SLOTS_PERTOPOLOGY=9",
		// What Kubernetes sets for services with these names.
		"ISOBAR_SERVICE_HOST=10.0.0.1", "ISOBAR_NATS_SERVICE_PORT_CLIENT=4222", "ISOBAR_PORT=tcp://10.0.0.1:1", "ISOBAR_NATS_PORT_4222_TCP_ADDR=10.0.0.1"}
	v, err := Read(path, environ, []string{"nimbus.task.timeout.secs=40", "nats.urls=nats://a:1,tls://b:2"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"nimbus.lease.secs": 20, "nimbus.monitor.freq.secs": 30, "nimbus.task.timeout.secs": 40,
		"nimbus.supervisor.timeout.secs": 15, "nimbus.slots.perTopology": 9, "topology.workers": 4,
	} {
		if v.Int(name) != want {
			t.Errorf("%s is %d, want %d", name, v.Int(name), want)
		}
	}
	if v.Origin("nimbus.monitor.freq.secs") != "$ISOBAR_NIMBUS_MONITOR_FREQ_SECS" {
		t.Errorf("origin %q", v.Origin("nimbus.monitor.freq.secs"))
	}
	if got := v.List("nimbus.admins"); !slices.Equal(got, []string{"alice", "bob"}) {
		t.Errorf("admins are %q", got)
	}
	if ports, err := Ports(v.String("supervisor.slots.ports")); !slices.Equal(ports, []int{6700, 6710, 6711}) || err != nil {
		t.Errorf("ports are %v, %v", ports, err)
	}
	want := map[string]any{"checkpoint.retained": 7, "user.team": "data", "topology.workers": 4}
	if got := ForTopologies(v); !maps.Equal(got, want) {
		t.Errorf("for topologies: %v, want %v", got, want)
	}
	if len(Shown(v)) != len(Table.Keys())+1 {
		t.Errorf("%d values are shown", len(Shown(v)))
	}
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	for _, c := range []struct{ file, environ, flag, want string }{
		{file: "nimbus.lease.sec: 20", want: "did you mean nimbus.lease.secs?"},
		{file: "nimbus.lease.secs: 5", want: "nimbus.lease.secs is 5, must be a whole number, 15 or more"},
		{file: `nimbus.task.timeout.secs: "30"`, want: `is the text "30", must be a whole number`},
		{file: "nimbus.topology.validator: x", want: "nimbus.topology.validator is not supported yet"},
		{file: "nimbus.admins: [a, [b]]", want: "must be a list of texts without commas"},
		{file: "nimbus.admins: [\"a,b\"]", want: "must be a list of texts without commas"},
		{file: "storm.local.dir: [a]", want: "storm.local.dir is a list, must be a text"},
		{file: "supervisor.slots.ports: 6703-6700", want: `has "6703-6700", must be a port from 1 to 65535 or a range`},
		{flag: "supervisor.slots.ports=6700,6699-6701", want: "has port 6700 twice"},
		{flag: "supervisor.labels=pool", want: `has "pool", must be NAME=VALUE`},
		{flag: "isolation.scheduler.machines=a=0", want: `has "a=0", must be TOPOLOGY=MACHINES`},
		{flag: "nats.urls=http://x", want: "must be nats://HOST:PORT"},
		{file: "nats.urls: nats://me:secret@x:4222", want: "put the credentials into nats.creds.file"},
		{flag: "nimbus.protected.keys=checkpoint.stor", want: "did you mean checkpoint.store?"},
		{environ: "ISOBAR_NIMBUS_LEASE_SEC=20", want: "environment variable ISOBAR_NIMBUS_LEASE_SEC is no configuration key, did you mean ISOBAR_NIMBUS_LEASE_SECS?"},
		{environ: "ISOBAR_NIMBUS_LEASE_SECS=2s", want: `ISOBAR_NIMBUS_LEASE_SECS: nimbus.lease.secs is "2s", must be`},
	} {
		var path string
		if c.file != "" {
			path = file(t, c.file)
		}
		var flags []string
		if c.flag != "" {
			flags = []string{c.flag}
		}
		_, err := Read(path, []string{c.environ}, flags)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("a secret is in the error %v", err)
		}
	}
}
