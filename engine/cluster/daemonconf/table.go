package daemonconf

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/config"
)

// The scopes: which daemon reads a key.
const (
	scopeAll        config.Scope = "all"
	scopeNimbus     config.Scope = "nimbus"
	scopeSupervisor config.Scope = "supervisor"
	scopeNATS       config.Scope = "nats"
)

const noMax = math.MaxInt32

// daemons is ordered as the reference page shows it.
var daemons = slices.Concat(access, nats, nimbus, supervisor)

func secs(name string, def, least int, scope config.Scope, meaning string) config.Key {
	return config.Key{Name: name, Type: config.Int, Default: def, Min: least, Max: noMax, Unit: time.Second, Scope: scope, Meaning: meaning}
}

func number(name string, def, least, most int, scope config.Scope, meaning string) config.Key {
	return config.Key{Name: name, Type: config.Int, Default: def, Min: least, Max: most, Scope: scope, Meaning: meaning}
}

func text(name, def string, scope config.Scope, meaning string) config.Key {
	return config.Key{Name: name, Type: config.String, Default: def, Scope: scope, Meaning: meaning}
}

func list(name, def string, scope config.Scope, meaning string) config.Key {
	return config.Key{Name: name, Type: config.String, List: true, Default: def, Scope: scope, Meaning: meaning}
}

func checked(k config.Key, check func(string) error) config.Key {
	k.Check = check
	return k
}

var access = []config.Key{
	text("storm.local.dir", "", scopeAll, "Folder of the daemons' own files, with one for each: `supervisor` has what it knows and the working folders of its processes. Empty: `isobar` in the user's folder for state."),
	text("storm.local.hostname", "", scopeAll, "Host name or address at which other machines reach this one. Empty: the machine's host name."),
	checked(list("nats.urls", "nats://127.0.0.1:4222", scopeAll, "Servers of the coordination store, as `nats://HOST:PORT` or `tls://HOST:PORT`."), checkURLs),
	text("nats.creds.file", "", scopeAll, "File with the credentials of this daemon. Empty: none."),
	text("nats.ca.file", "", scopeAll, "PEM file of the certificate authority of the servers. Empty: the system's."),
	text("nats.cert.file", "", scopeAll, "PEM file of this daemon's certificate. Empty: it shows none."),
	text("nats.key.file", "", scopeAll, "PEM file of its private key."),
	text("nats.keys.dir", "", "nimbus, nats", "Folder of the keys of the cluster, as `isobar nats init` makes it. The server lets in whom they have signed; nimbus signs the processes of topologies, and needs the secret keys for that. Empty: everybody may do everything."),
	number("nats.replicas", 1, 1, 5, scopeNimbus, "Servers that keep each record; 3 with three servers or more."),
}

var nats = []config.Key{
	text("nats.server.host", "127.0.0.1", scopeNATS, "Address that `isobar nats` listens at for clients. Other than this machine's own takes TLS (nats.cert.file and the keys beside it) and nats.keys.dir."),
	number("nats.server.port", 4222, 0, 65535, scopeNATS, "Port for clients. 0: any free one."),
	text("nats.server.dir", "", scopeNATS, "Folder of its data. Empty: `nats` in storm.local.dir."),
	text("nats.server.name", "", scopeNATS, "Name of the server, different for each of a group. Empty: the machine's host name."),
	text("nats.group.name", "", scopeNATS, "Name of the group of servers that keep the same data, the same for all of them. Empty: the server is alone."),
	text("nats.group.host", "", scopeNATS, "Address that it listens at for the others of the group. Empty: as for clients."),
	number("nats.group.port", 6222, 1, 65535, scopeNATS, "Port for the others of the group."),
	list("nats.group.routes", "", scopeNATS, "Addresses, HOST:PORT, of the others of the group."),
}

var nimbus = []config.Key{
	secs("nimbus.lease.secs", 15, 15, scopeNimbus, "Seconds after which another nimbus leads if the leader does not renew its lease. A group of three NATS servers may need 9 to elect one of them, so less would flap."),
	secs("nimbus.monitor.freq.secs", 10, 1, scopeNimbus, "Seconds between two looks at everything, besides those that a change brings about."),
	secs("nimbus.supervisor.timeout.secs", 15, 5, scopeNimbus, "Seconds without a heartbeat after which a supervisor is taken for dead, three heartbeats or more. Its workers that are connected to their topology master stay where they are."),
	secs("nimbus.task.timeout.secs", 30, 5, scopeNimbus, "Seconds without a sign of a topology master after which it is moved to another machine, and for which a worker is cut off from it, or from another worker, until that one is."),
	secs("nimbus.task.launch.secs", 120, 5, scopeNimbus, "The same for one that was just assigned, and has a binary to fetch first."),
	secs("nimbus.stop.timeout.secs", 120, 1, scopeNimbus, "Seconds that a topology has for its last checkpoint. One that is killed ends without it then; a rebalance or an update is given up."),
	secs("nimbus.update.timeout.secs", 120, 1, scopeNimbus, "Seconds in which an updated or rebalanced topology must commit its first checkpoint, if the command does not say it. Otherwise what ran before takes its place again."),
	number("nimbus.slots.perTopology", 0, 0, noMax, scopeNimbus, "The most workers that a topology may ask for. 0: no limit."),
	number("nimbus.executors.perTopology", 0, 0, noMax, scopeNimbus, "The most tasks that a topology may have. 0: no limit."),
	secs("nimbus.inbox.jar.expiration.secs", 3600, 1, scopeNimbus, "Seconds that a topology program or the content of a blob is kept which nothing names."),
	text("storm.scheduler", "even", scopeNimbus, "How topologies are spread: `even`, by number; `isolation`, with machines for some of them alone; `resource`, by the memory and CPU that tasks declare."),
	checked(list("isolation.scheduler.machines", "", scopeNimbus, "Topologies that `isolation` gives machines of their own, and how many, as in `payments=2`."), func(v string) error { _, err := Machines(v); return err }),
	list("nimbus.admins", "", scopeNimbus, "Users who may do everything."),
	list("nimbus.users", "", scopeNimbus, "Users who may submit topologies. Empty: everybody who may use the coordination store."),
	list("nimbus.supervisor.users", "", scopeNimbus, "Users that supervisors are, who may ask how the cluster is even if `nimbus.users` does not name them."),
	checked(list("nimbus.protected.keys", "", scopeNimbus, "Keys of topologies that no topology may set to another value than the cluster does."), checkKeys),
}

var supervisor = []config.Key{
	checked(list("supervisor.slots.ports", "6700-6703", scopeSupervisor, "Ports of the workers that this machine may run, one for each; `6700-6703` are four."), func(v string) error { _, err := Ports(v); return err }),
	text("supervisor.id", "", scopeSupervisor, "Name of the supervisor in its cluster. Empty: one is made up and kept in its folder."),
	text("supervisor.bind", "", scopeSupervisor, "Address that processes listen at for each other. Empty: that of `storm.local.hostname` if it is of this machine alone, else all."),
	text("supervisor.links.ca.file", "", scopeSupervisor, "PEM file of the authority of the certificates that processes show each other."),
	text("supervisor.links.cert.file", "", scopeSupervisor, "PEM file of the certificate that processes of this machine show. Empty: their links are not encrypted, which is allowed on one machine only."),
	text("supervisor.links.key.file", "", scopeSupervisor, "PEM file of its private key."),
	secs("supervisor.worker.lease.secs", 15, 2, scopeSupervisor, "Seconds without a word after which a worker and its topology master take each other for lost. The same on all machines."),
	number("supervisor.worker.memory.mb", 0, 0, noMax, scopeSupervisor, "Megabytes that each process keeps its memory to (GOMEMLIMIT). 0: no limit."),
	number("supervisor.worker.cpu.cores", 0, 0, 1<<10, scopeSupervisor, "Cores that each process uses at most (GOMAXPROCS). 0: no limit."),
	checked(list("supervisor.master.ports", "", scopeSupervisor, "Ports that topology masters listen on for their workers, one for each that runs here, as in `6600-6619`; where a firewall is. Empty: any free one."), func(v string) error { _, err := Ports(v); return err }),
	secs("supervisor.heartbeat.frequency.secs", 5, 1, scopeSupervisor, "Seconds between two heartbeats."),
	secs("supervisor.monitor.frequency.secs", 60, 1, scopeSupervisor, "Seconds after which all assignments are read again, in case a change was not heard of."),
	secs("supervisor.worker.timeout.secs", 30, 1, scopeSupervisor, "Seconds without a sign of life after which a process is ended and started again."),
	secs("supervisor.worker.start.timeout.secs", 120, 1, scopeSupervisor, "The same for a process that was just started."),
	number("supervisor.memory.capacity.mb", 0, 0, noMax, scopeSupervisor, "Megabytes of memory for workers. 0: what the machine has."),
	number("supervisor.cpu.capacity", 0, 0, noMax, scopeSupervisor, "Processor time for workers; 100 is one core. 0: what the machine has."),
	checked(list("supervisor.labels", "", scopeSupervisor, "What is special about the machine, as in `pool=batch`, for topologies that ask for it."), checkLabels),
	list("supervisor.environment", "", scopeSupervisor, "Environment variables that are passed on to the processes of topologies. Nothing else of the environment is."),
	number("supervisor.localizer.cache.target.size.mb", 10240, 1, noMax, scopeSupervisor, "Megabytes of programs and blobs that are kept although nothing uses them."),
	secs("supervisor.localizer.update.blob.interval.secs", 30, 1, scopeSupervisor, "Seconds between two looks for new versions of blobs."),
	text("storm.health.check.dir", "", scopeSupervisor, "Folder of programs that say whether the machine is healthy: each must exit 0 and print no line that begins with ERROR. Empty: none."),
	{Name: "storm.health.check.timeout.ms", Type: config.Int, Default: 5000, Min: 1, Max: noMax, Unit: time.Millisecond, Scope: scopeSupervisor,
		Meaning: "Milliseconds that each of them has."},
}

func checkURLs(v string) error {
	for u := range strings.SplitSeq(v, ",") {
		parsed, err := url.Parse(strings.TrimSpace(u))
		if err != nil || parsed.Scheme != "nats" && parsed.Scheme != "tls" || parsed.Host == "" {
			return fmt.Errorf("nats.urls has %q, must be nats://HOST:PORT or tls://HOST:PORT", u)
		}
		if parsed.User != nil {
			return fmt.Errorf("nats.urls has a user in the address of %s: put the credentials into nats.creds.file", parsed.Host)
		}
	}
	return nil
}

func checkKeys(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if _, err := config.Lookup(name); err != nil {
			return fmt.Errorf("nimbus.protected.keys: %w", err)
		}
	}
	return nil
}

func checkLabels(v string) error {
	_, err := Labels(v)
	return err
}

// Machines reads the value of isolation.scheduler.machines.
func Machines(v string) (map[string]int, error) {
	machines := map[string]int{}
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, count, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(count)
		if _, twice := machines[name]; err != nil || n < 1 || name == "" || twice {
			return nil, fmt.Errorf("isolation.scheduler.machines has %q, must be TOPOLOGY=MACHINES, each topology once", part)
		}
		machines[name] = n
	}
	return machines, nil
}

// Labels reads the value of supervisor.labels.
func Labels(v string) (map[string]string, error) {
	labels := map[string]string{}
	for label := range strings.SplitSeq(v, ",") {
		if label = strings.TrimSpace(label); label == "" {
			continue
		}
		name, value, ok := strings.Cut(label, "=")
		if _, twice := labels[name]; !ok || name == "" || twice {
			return nil, fmt.Errorf("supervisor.labels has %q, must be NAME=VALUE, each name once", label)
		}
		labels[name] = value
	}
	return labels, nil
}

// portsMax keeps a slip of the pen from becoming a thousand slots.
const portsMax = 256

// Ports reads the value of supervisor.slots.ports: ports and ranges of ports.
func Ports(v string) ([]int, error) {
	var ports []int
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || first < 1 || last > 65535 || first > last || last-first >= portsMax {
			return nil, fmt.Errorf("supervisor.slots.ports has %q, must be a port from 1 to 65535 or a range such as 6700-6703, of at most %d", part, portsMax)
		}
		for p := first; p <= last; p++ {
			if slices.Contains(ports, p) {
				return nil, fmt.Errorf("supervisor.slots.ports has port %d twice", p)
			}
			ports = append(ports, p)
		}
	}
	return ports, nil
}
