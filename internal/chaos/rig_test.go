//go:build linux || darwin

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// rig is a cluster.
type rig struct {
	testing.TB
	dir         string    // of all its files; hosts share it
	checkpoints string    // the folder of checkpoints
	daemons     []*daemon // all of them, and by kind
	nats        []*daemon
	nimbus      []*daemon
	supervisors []*daemon
	urls        []string
	security    *security // nil: none
	client      *client.Client
	topologies  []string
}

// newRig returns a cluster without daemons. All that ever runs of it ends with the test.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, dir: t.TempDir()}
	r.checkpoints = filepath.Join(r.dir, "checkpoints")
	t.Cleanup(r.end)
	return r
}

// newLocalRig returns a cluster on this machine, with one NATS server.
func newLocalRig(t testing.TB, nimbi, supervisors int) *rig {
	t.Helper()
	r := newRig(t)
	port := freePorts(t, 1)[0]
	r.urls = []string{fmt.Sprintf("nats://%s:%d", local.address, port)}
	r.addNATS(local, fmt.Sprintf("nats.server.port=%d", port))
	for range nimbi {
		r.addNimbus(local)
	}
	for range supervisors {
		r.addSupervisor(local)
	}
	r.connect()
	return r
}

// newWideRig returns a cluster on the hosts of a network, with a group of NATS servers, a
// supervisor on each of them and two nimbi.
func newWideRig(t testing.TB, n *network, secure bool) *rig {
	t.Helper()
	r := newRig(t)
	scheme := "nats"
	if secure {
		scheme = "tls"
		r.security = newSecurity(t, filepath.Join(r.dir, "security"), n.hosts)
	}
	var routes []string
	for _, h := range n.hosts {
		r.urls = append(r.urls, scheme+"://"+h.address+":4222")
		routes = append(routes, h.address+":6222")
	}
	for _, h := range n.hosts {
		others := slices.DeleteFunc(slices.Clone(routes), func(route string) bool { return route == h.address+":6222" })
		r.addNATS(h, "nats.server.host="+h.address, "nats.server.name="+h.name, "nats.group.name=chaos",
			"nats.group.routes="+strings.Join(others, ","))
	}
	for i, h := range n.hosts {
		if i < 2 {
			r.addNimbus(h, "nats.replicas=3")
		}
		r.addSupervisor(h)
	}
	r.connect()
	return r
}

func (r *rig) add(kind, name string, h *host, confs []string) *daemon {
	r.Helper()
	d := &daemon{TB: r.TB, name: name, host: h, path: built(r, isobar), log: filepath.Join(r.dir, name+".log"), started: "msg=started"}
	d.args = []string{kind}
	if kind != "nimbus" && h != local && r.security == nil {
		d.args = append(d.args, "--insecure")
	}
	for _, c := range append(confs, "nats.urls="+strings.Join(r.urls, ",")) {
		d.args = append(d.args, "-c", c)
	}
	r.daemons = append(r.daemons, d)
	d.start()
	return d
}

func (r *rig) addNATS(h *host, more ...string) {
	r.Helper()
	name := fmt.Sprintf("nats-%d", len(r.nats))
	confs := append(more, "nats.server.dir="+filepath.Join(r.dir, name))
	if s := r.security; s != nil {
		confs = append(confs, "nats.keys.dir="+s.keysDir(), "nats.ca.file="+s.ca, "nats.cert.file="+s.cert, "nats.key.file="+s.key)
	}
	r.nats = append(r.nats, r.add("nats", name, h, confs))
}

func (r *rig) addNimbus(h *host, more ...string) {
	r.Helper()
	name := fmt.Sprintf("nimbus-%d", len(r.nimbus))
	confs := append(more, "storm.local.hostname="+name, "checkpoint.store=file://"+r.checkpoints, "checkpoint.store.shared=true")
	if !*defaultsFlag {
		confs = append(confs, "nimbus.monitor.freq.secs=1", "nimbus.task.timeout.secs=5", "nimbus.task.launch.secs=15",
			"nimbus.supervisor.timeout.secs=6")
	}
	if s := r.security; s != nil {
		confs = append(confs, "nats.keys.dir="+s.keysDir(), "nats.ca.file="+s.ca, "nats.creds.file="+s.creds(natscluster.RoleNimbus, name))
	}
	r.nimbus = append(r.nimbus, r.add("nimbus", name, h, confs))
}

// slotsEach is how many workers a supervisor may run.
const slotsEach = 4

func (r *rig) addSupervisor(h *host) {
	r.Helper()
	name := fmt.Sprintf("supervisor-%d", len(r.supervisors))
	var ports []string
	for _, p := range freePorts(r, slotsEach) {
		ports = append(ports, fmt.Sprint(p))
	}
	confs := []string{
		"supervisor.localizer.update.blob.interval.secs=1",
		"supervisor.id=" + name, "storm.local.hostname=" + h.address, "storm.local.dir=" + filepath.Join(r.dir, name),
		"supervisor.slots.ports=" + strings.Join(ports, ","),
	}
	if !*defaultsFlag {
		confs = append(confs, "supervisor.heartbeat.frequency.secs=1", "supervisor.worker.timeout.secs=4", "supervisor.worker.lease.secs=3")
	}
	if s := r.security; s != nil {
		confs = append(confs, "nats.ca.file="+s.ca, "nats.creds.file="+s.creds(natscluster.RoleSupervisor, name),
			"supervisor.links.ca.file="+s.ca, "supervisor.links.cert.file="+s.cert, "supervisor.links.key.file="+s.key)
	}
	r.supervisors = append(r.supervisors, r.add("supervisor", name, h, confs))
}

// access returns how users reach the cluster.
func (r *rig) access() cluster.StoreAccess {
	a := cluster.StoreAccess{URLs: r.urls}
	if s := r.security; s != nil {
		a.CA, a.Creds = s.ca, s.creds(natscluster.RoleAdmin, "tester")
	}
	return a
}

// connect connects the test to the cluster, as commands do.
func (r *rig) connect() {
	r.Helper()
	c, err := client.Connect(r.access())
	if err != nil {
		r.Fatal(err)
	}
	r.client = c
	await(r, "all supervisors", func() bool {
		for _, d := range r.daemons {
			if !d.running() {
				r.Fatalf("%s has ended", d.name)
			}
		}
		return ask[cluster.Health](r, cluster.VerbHealth, nil).Supervisors == len(r.supervisors)
	})
}

// askTime is how long one question may take: who has it may have died with it.
const askTime = 5 * time.Second

// ask asks nimbus until it answers: it may be waiting for the coordination store, or
// another may be about to lead.
func ask[T any](r *rig, verb string, body any) (reply T) {
	r.Helper()
	told := ""
	await(r, "a reply to "+verb, func() bool {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		var try T
		err := r.client.Call(ctx, verb, body, &try)
		if err != nil && err.Error() != told {
			told = err.Error()
			r.Logf("%s: %v", verb, err)
		}
		reply = try
		return err == nil
	})
	return reply
}

// tell asks for something that has no reply.
func (r *rig) tell(verb string, body any) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := r.client.Call(ctx, verb, body, nil); err != nil {
		r.Fatalf("%s: %v", verb, err)
	}
}

// leader returns the nimbus that leads.
func (r *rig) leader() *daemon {
	r.Helper()
	h := ask[cluster.Health](r, cluster.VerbHealth, nil)
	for _, d := range r.nimbus {
		if h.Leader == fmt.Sprintf("%s-%d", d.name, d.pid()) {
			return d
		}
	}
	r.Fatalf("%q leads, which is no nimbus of the test", h.Leader)
	return nil
}

// process is a process of a topology, as its supervisor knows it.
type process struct {
	slots.Slot
	supervisor *daemon
}

// processes returns the processes that the supervisors have noted as running.
func (r *rig) processes() []process {
	r.Helper()
	var all []process
	for _, d := range r.supervisors {
		text, err := os.ReadFile(filepath.Join(r.dir, d.name, "supervisor", "state.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var s slots.State
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			r.Fatal(err)
		}
		for _, slot := range s.Slots {
			if slot.PID != 0 {
				all = append(all, process{slot, d})
			}
		}
	}
	return all
}

// end kills everything, and shows what it has written if the test has failed.
func (r *rig) end() {
	if r.client != nil {
		if err := r.client.Close(); err != nil {
			r.Error(err)
		}
	}
	for _, d := range r.daemons {
		if r.Failed() && *stacksFlag && d.cmd != nil && d.running() {
			d.dump()
		}
		d.kill()
	}
	for _, name := range r.topologies {
		await(r, "the end of what is left of "+name, func() bool {
			left := topologyProcesses(name + "-")
			for pid := range left {
				syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
			}
			return len(left) == 0
		})
	}
	if r.Failed() {
		r.showLogs()
	}
}

var (
	logsFlag   = flag.Int64("chaos.logs", 8<<10, "show so many bytes of the end of each log after a failure")
	stacksFlag = flag.Bool("chaos.stacks", false, "let daemons write their stacks after a failure")
)

func (r *rig) showLogs() {
	err := filepath.WalkDir(r.dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err == nil && e.IsDir() && (e.Name() == "topologies" || path == r.checkpoints):
			return fs.SkipDir
		case err != nil || e.IsDir() || !strings.HasSuffix(path, ".log"):
			return nil //nolint:nilerr // what is there is shown
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Size() > *logsFlag {
			f.Seek(-*logsFlag, io.SeekEnd) //nolint:errcheck // then all of it is shown
		}
		text, err := io.ReadAll(f)
		name, _ := filepath.Rel(r.dir, path)
		r.Logf("%s:\n%s", name, text)
		return err
	})
	if err != nil {
		r.Log(err)
	}
}

// given are the ports that tests were given: what listens at one may just have been killed.
var given sync.Map

// freePorts returns ports that nothing listens at, and that the system gives nobody by
// itself.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("found no %d free ports", n)
	return nil
}

// run runs a command to its end.
func (r *rig) run(h *host, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	cmd := h.command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) //nolint:errcheck // it may have ended
	defer stop()
	err := cmd.Wait()
	return out.String(), errors.Join(err, ctx.Err())
}
