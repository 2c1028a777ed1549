package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// Config is what a supervisor is told. Of what has a default, zero is that.
type Config struct {
	// Dir is the data folder (supervisor.data.dir). One supervisor uses it at a time.
	Dir string
	// ID names the supervisor in its cluster; by default it is made up once and kept in
	// Dir.
	ID string
	// Host is how other machines reach this one (supervisor.hostname); by default its name.
	Host string
	// Bind is the address that processes listen at (supervisor.bind); by default all.
	Bind string
	// Ports are the slots (supervisor.slots.ports).
	Ports []int
	// MasterPorts are those that topology masters listen on (supervisor.master.ports); by
	// default any.
	MasterPorts []int
	// Labels choose machines for isolation (supervisor.labels).
	Labels map[string]string
	// Machine is the same for supervisors on one machine; by default the machine's name.
	Machine string
	// MemoryMB and CPU (100 = one core) are what the machine has for topologies
	// (supervisor.memory.capacity.mb, supervisor.cpu.capacity); by default all of it.
	MemoryMB, CPU int
	Version       string // of Isobar

	Store  cluster.Store
	Access cluster.StoreAccess // how processes reach the store; credentials are their own
	Links  cluster.LinkTLS
	Logger *slog.Logger // by default nothing is logged

	// Environment names the variables that are passed on to processes, as in AWS_* and
	// SSL_CERT_FILE (supervisor.environment).
	Environment []string
	// WorkerMemoryMB and WorkerCPU (100 = one core) limit each process (worker.memory.size,
	// worker.cpu.slot.num): by GOMEMLIMIT and GOMAXPROCS, so these are no hard limits. A
	// topology's topology.worker.max.heap.size.mb goes before the former. 0: no limit.
	WorkerMemoryMB, WorkerCPU int

	HeartbeatEvery time.Duration // supervisor.heartbeat.frequency.secs, 5
	ResyncEvery    time.Duration // supervisor.monitor.frequency.secs: assignments are listed anew, 60
	WorkerTimeout  time.Duration // supervisor.worker.timeout.secs, 30
	StartTimeout   time.Duration // supervisor.worker.start.timeout.secs, 120
	BeatEvery      time.Duration // worker.heartbeat.frequency.secs, 1
	Lease          time.Duration // how long a worker goes on without its topology master, 30 s
	Grace          time.Duration // between SIGTERM and SIGKILL, 10 s
	CloseGrace     time.Duration // the same for a topology master's last checkpoint, 30 s
	DumpTime       time.Duration // between SIGQUIT and SIGKILL, 5 s
	RestartMin     time.Duration // the pause after a failure, which doubles, 1 s
	RestartMax     time.Duration // 30 s
	Settled        time.Duration // after which the pause is short again, 60 s

	// HealthDir has executables that are run each HealthEvery, 30 s, each for no longer
	// than HealthTimeout, 5 s (storm.health.check.dir, .timeout.ms). One that exits with
	// another code than 0, takes too long, or prints a line that begins with ERROR makes
	// the machine unhealthy: its processes are ended. "" is none.
	HealthDir                  string
	HealthEvery, HealthTimeout time.Duration

	CacheMB    int           // supervisor.localizer.cache.target.size.mb, 10240
	BlobEvery  time.Duration // supervisor.localizer.update.blob.interval.secs, 30
	LogMB      int           // a log is cut when it is that large, 64
	LogParts   int           // how many older parts are kept, 3
	LogAge     time.Duration // logviewer.cleanup.age.mins: of ended topologies, 7 days
	HouseEvery time.Duration // how often logs and cache are looked at, 10 s

	// StopProcesses ends all processes with the supervisor. The next one starts them again.
	StopProcesses bool
}

// complete returns the configuration with its defaults; the error has all that is wrong.
func (c Config) complete() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	name, err := os.Hostname()
	if err != nil && (c.Host == "" || c.Machine == "") {
		wrong("the machine does not tell its name (%w): set host and machine", err)
	}
	c.Host, c.Machine = cmp.Or(c.Host, name), cmp.Or(c.Machine, name)
	c.CPU = cmp.Or(c.CPU, 100*runtime.NumCPU())
	c.MemoryMB = cmp.Or(c.MemoryMB, memoryMB())
	c.Environment = slices.Clone(c.Environment)
	c.Labels = maps.Clone(c.Labels)
	c.Ports = slices.Sorted(slices.Values(c.Ports))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	durations := []struct {
		to      *time.Duration
		name    string
		missing time.Duration
	}{
		{&c.HeartbeatEvery, "HeartbeatEvery", 5 * time.Second},
		{&c.ResyncEvery, "ResyncEvery", time.Minute},
		{&c.WorkerTimeout, "WorkerTimeout", 30 * time.Second},
		{&c.StartTimeout, "StartTimeout", 2 * time.Minute},
		{&c.BeatEvery, "BeatEvery", time.Second},
		{&c.Lease, "Lease", 30 * time.Second},
		{&c.Grace, "Grace", 10 * time.Second},
		{&c.CloseGrace, "CloseGrace", 30 * time.Second},
		{&c.DumpTime, "DumpTime", 5 * time.Second},
		{&c.RestartMin, "RestartMin", time.Second},
		{&c.RestartMax, "RestartMax", 30 * time.Second},
		{&c.Settled, "Settled", time.Minute},
		{&c.HealthEvery, "HealthEvery", 30 * time.Second},
		{&c.HealthTimeout, "HealthTimeout", 5 * time.Second},
		{&c.BlobEvery, "BlobEvery", 30 * time.Second},
		{&c.LogAge, "LogAge", 7 * 24 * time.Hour},
		{&c.HouseEvery, "HouseEvery", 10 * time.Second},
	}
	for _, d := range durations {
		*d.to = cmp.Or(*d.to, d.missing)
		if *d.to < 0 {
			wrong("%s is %s: a time is above 0", d.name, *d.to)
		}
	}
	for _, n := range []struct {
		to      *int
		name    string
		missing int
	}{{&c.CacheMB, "CacheMB", 10240}, {&c.LogMB, "LogMB", 64}, {&c.LogParts, "LogParts", 3}} {
		*n.to = cmp.Or(*n.to, n.missing)
		if *n.to < 0 {
			wrong("%s is %d: it must not be below 0", n.name, *n.to)
		}
	}
	errs = append(errs, c.check())
	return c, errors.Join(errs...)
}

// check returns all that is wrong with what has no default.
func (c Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Dir == "" {
		wrong("a supervisor needs a data folder")
	}
	if c.Store == nil {
		wrong("a supervisor needs a coordination store")
	}
	if c.ID != "" && !isName(c.ID) {
		wrong("the supervisor's id %q is no name: it takes letters, digits, - and _", c.ID)
	}
	for i, p := range c.Ports {
		if p < 1 || p > 65535 {
			wrong("slot %d is no port: it takes 1 to 65535", p)
		}
		if i > 0 && c.Ports[i-1] == p {
			wrong("slot %d is there twice", p)
		}
	}
	if c.RestartMin > c.RestartMax {
		wrong("RestartMin %s is above RestartMax %s", c.RestartMin, c.RestartMax)
	}
	for _, pattern := range c.Environment {
		if name := strings.TrimSuffix(pattern, "*"); name == "" || strings.ContainsAny(name, "*=") {
			wrong("environment %q is not the name of a variable, and no beginning of names with * after it", pattern)
		}
	}
	return errors.Join(errs...)
}

// isName reports whether s may be part of a path, of a key and of a subject.
func isName(s string) bool {
	return s != "" && len(s) <= 200 && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

func (c Config) limits() slots.Limits {
	return slots.Limits{
		Supervisor: c.ID, Ports: c.Ports,
		BeatTimeout: c.WorkerTimeout, StartTimeout: c.StartTimeout,
		Grace: c.Grace, CloseGrace: c.CloseGrace, DumpTime: c.DumpTime,
		RestartMin: c.RestartMin, RestartMax: c.RestartMax, Settled: c.Settled,
	}
}

func (c Config) processor() string { return runtime.GOOS + "/" + runtime.GOARCH }

// SlotPorts returns n ports for slots, from base on.
func SlotPorts(base, n int) []int {
	ports := make([]int, n)
	for i := range ports {
		ports[i] = base + i
	}
	return ports
}
