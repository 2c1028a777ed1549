//go:build linux || darwin

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// rig is a cluster.
type rig struct {
	testing.TB
	dir         string // of all its files; hosts share it
	checkpoints string // the folder of checkpoints
	nats        []*daemon
	nimbus      []*daemon
	supervisors []*daemon
	urls        []string
	client      *client.Client
	topologies  []string
}

// conf is how the daemons of a test are told to hurry.
var hurry = []string{
	"nimbus.monitor.freq.secs=1",
	"nimbus.task.timeout.secs=5",
	"nimbus.supervisor.timeout.secs=6",
	"supervisor.heartbeat.frequency.secs=1",
	"supervisor.worker.timeout.secs=4",
	"supervisor.worker.lease.secs=3",
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
	r.addNATS(local, freePorts(t, 1)[0])
	for range nimbi {
		r.addNimbus(local)
	}
	for range supervisors {
		r.addSupervisor(local, 4)
	}
	r.connect()
	return r
}

func (r *rig) add(kind, name string, h *host, confs []string, flags ...string) *daemon {
	r.Helper()
	d := &daemon{TB: r.TB, name: name, host: h, path: built(r, isobar), log: filepath.Join(r.dir, name+".log")}
	d.args = append([]string{kind}, flags...)
	for _, c := range confs {
		d.args = append(d.args, "-c", c)
	}
	d.start()
	return d
}

// addNATS adds a NATS server that is alone.
func (r *rig) addNATS(h *host, port int) {
	r.Helper()
	r.nats = append(r.nats, r.add("nats", "nats", h, []string{
		fmt.Sprintf("nats.server.port=%d", port), "nats.server.host=" + h.address,
		"nats.server.dir=" + filepath.Join(r.dir, "nats"),
	}))
	r.urls = append(r.urls, fmt.Sprintf("nats://%s:%d", h.address, port))
	r.nats[0].says("msg=started")
}

func (r *rig) addNimbus(h *host, more ...string) {
	r.Helper()
	name := fmt.Sprintf("nimbus-%d", len(r.nimbus))
	confs := append([]string{
		"nats.urls=" + strings.Join(r.urls, ","), "storm.local.hostname=" + name,
		"checkpoint.store=file://" + r.checkpoints, "checkpoint.store.shared=true",
	}, hurry[:3]...)
	r.nimbus = append(r.nimbus, r.add("nimbus", name, h, append(confs, more...)))
}

func (r *rig) addSupervisor(h *host, slots int, more ...string) {
	r.Helper()
	name := fmt.Sprintf("supervisor-%d", len(r.supervisors))
	var ports []string
	for _, p := range freePorts(r, slots) {
		ports = append(ports, fmt.Sprint(p))
	}
	confs := append([]string{
		"nats.urls=" + strings.Join(r.urls, ","), "storm.local.hostname=" + h.address,
		"storm.local.dir=" + filepath.Join(r.dir, name), "supervisor.slots.ports=" + strings.Join(ports, ","),
	}, hurry[3:]...)
	r.supervisors = append(r.supervisors, r.add("supervisor", name, h, append(confs, more...)))
}

// connect connects the test to the cluster, as commands do.
func (r *rig) connect() {
	r.Helper()
	c, err := client.Connect(cluster.StoreAccess{URLs: r.urls})
	if err != nil {
		r.Fatal(err)
	}
	r.client = c
	await(r, "all supervisors", func() bool {
		for _, d := range slices.Concat(r.nats, r.nimbus, r.supervisors) {
			if !d.running() {
				r.Fatalf("%s has ended", d.name)
			}
		}
		h, err := ask[cluster.Health](r, cluster.VerbHealth, nil)
		return err == nil && h.Supervisors == len(r.supervisors)
	})
}

func ask[T any](r *rig, verb string, body any) (reply T, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	return reply, r.client.Call(ctx, verb, body, &reply)
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
	h, err := ask[cluster.Health](r, cluster.VerbHealth, nil)
	if err != nil {
		r.Fatal(err)
	}
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
	for _, all := range [][]*daemon{r.supervisors, r.nimbus, r.nats} {
		for _, d := range all {
			d.kill()
		}
	}
	for _, name := range r.topologies {
		await(r, "the end of what is left of "+name, func() bool {
			left := topologyProcesses(name)
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

// shownBytes is how much of the end of each log is shown.
const shownBytes = 6 << 10

func (r *rig) showLogs() {
	err := filepath.WalkDir(r.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".log") {
			return nil //nolint:nilerr // what is there is shown
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Size() > shownBytes {
			f.Seek(-shownBytes, io.SeekEnd) //nolint:errcheck // then all of it is shown
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
