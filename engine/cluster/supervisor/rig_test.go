//go:build unix

package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// patience is how long anything may take before it counts as hanging.
const patience = time.Minute

// inVain sends when patience has come to its end. It counts what the process has lived
// through: a machine that stood still makes nobody hang.
func inVain(ctx context.Context) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		const step = 50 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		for range patience / step {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		close(out)
	}()
	return out
}

// program is the test binary, as an object.
var program = sync.OnceValues(func() ([]byte, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// world is a coordination store with what nimbus puts there.
type world struct {
	server                            *memcluster.Server
	admin                             *memcluster.Store
	assignments, supervisors, secrets cluster.Bucket
	blobs                             cluster.Bucket
	binary                            cluster.Binary
}

func newWorld(ctx context.Context) (*world, error) {
	w := &world{server: memcluster.New()}
	w.admin = w.server.Connect("nimbus")
	return w, w.furnish(ctx)
}

// furnish makes what an empty store needs.
func (w *world) furnish(ctx context.Context) (err error) {
	for name, b := range map[string]*cluster.Bucket{
		cluster.BucketAssignments: &w.assignments, cluster.BucketSupervisors: &w.supervisors, cluster.BucketSecrets: &w.secrets,
		cluster.BucketBlobs: &w.blobs,
	} {
		if *b, err = w.admin.Bucket(ctx, name, true); err != nil {
			return err
		}
	}
	content, err := program()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	w.binary = cluster.Binary{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	objects, err := w.admin.Objects(ctx, cluster.ObjectsBinaries)
	if err != nil {
		return err
	}
	_, err = objects.Put(ctx, w.binary.SHA256, bytes.NewReader(content), "", nil)
	return err
}

// assign writes an assignment, and the secrets of its epoch before. Without a binary of
// its own it has the test binary.
func (w *world) assign(ctx context.Context, a cluster.Assignment) error {
	if a.Version.Binary.SHA256 == "" {
		a.Version.Binary = w.binary
	}
	secrets, err := json.Marshal(cluster.Secrets{Epoch: a.Version.Epoch, Secret: "s3cret-of-" + a.ID, Creds: "cr3ds-of-" + a.ID})
	if err != nil {
		return err
	}
	if _, err := w.secrets.Put(ctx, a.ID, secrets); err != nil {
		return err
	}
	return w.assignOnly(ctx, a)
}

// assignOnly writes an assignment.
func (w *world) assignOnly(ctx context.Context, a cluster.Assignment) error {
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = w.assignments.Put(ctx, a.ID, value)
	return err
}

// rig is a supervisor under test.
type rig struct {
	t *testing.T
	*world
	cfg   Config
	store *memcluster.Store // the supervisor's
	wrap  func(cluster.Store) cluster.Store
	log   *journal

	mu     sync.Mutex
	record cluster.Supervisor // the newest heartbeat
	gone   bool               // it was removed
	change chan struct{}      // closed, and made anew, at each change

	stop  context.CancelFunc
	ended chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	w, err := newWorld(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, world: w, cfg: testConfig(t.TempDir()), log: &journal{}, change: make(chan struct{})}
	r.cfg.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	entries, err := w.supervisors.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for e := range entries {
			r.see(e)
		}
	}()
	t.Cleanup(r.killAll)
	return r
}

func (r *rig) see(e cluster.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Key == "" {
		return
	}
	r.gone = e.Value == nil
	if !r.gone {
		r.record = cluster.Supervisor{}
		if err := json.Unmarshal(e.Value, &r.record); err != nil {
			r.t.Error(err)
		}
	}
	close(r.change)
	r.change = make(chan struct{})
}

// start runs a supervisor until shutdown.
func (r *rig) start() *rig {
	r.t.Helper()
	r.store = r.server.Connect("supervisor")
	r.mu.Lock()
	r.record = cluster.Supervisor{} // of a former one
	r.mu.Unlock()
	r.cfg.Store = r.store
	if r.wrap != nil {
		r.cfg.Store = r.wrap(r.store)
	}
	s, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	r.stop, r.ended = stop, make(chan error, 1)
	go func() { r.ended <- s.Run(ctx) }()
	r.t.Cleanup(r.shutdown)
	return r
}

// shutdown ends the supervisor in order, once.
func (r *rig) shutdown() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Error(err)
		}
	case <-inVain(context.Background()):
		r.t.Errorf("the supervisor does not end\n%s", r.log)
	}
	r.store.Close()
}

// killAll ends what the test has left running.
func (r *rig) killAll() { killIn(r.cfg.Dir) }

func killIn(dir string) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	for pid := range startedIn(resolved) {
		syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	}
}

// assign writes an assignment.
func (r *rig) assign(a cluster.Assignment) {
	r.t.Helper()
	if err := r.world.assign(r.t.Context(), a); err != nil {
		r.t.Fatal(err)
	}
}

// await waits for a heartbeat in which a condition holds, and returns it.
func (r *rig) await(what string, holds func(cluster.Supervisor) bool) cluster.Supervisor {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	deadline := inVain(ctx)
	for {
		r.mu.Lock()
		record, change := r.record, r.change
		r.mu.Unlock()
		if record.ID != "" && holds(record) {
			return record
		}
		select {
		case <-change:
		case <-deadline:
			r.t.Fatalf("waited %s in vain until %s; the last heartbeat: %+v\n%s", patience, what, record, r.log)
		}
	}
}

// process waits until the process of a port, 0 for the topology master, is such that a
// condition holds.
func (r *rig) process(id string, port int, what string, holds func(cluster.ProcessStatus) bool) cluster.ProcessStatus {
	r.t.Helper()
	var found cluster.ProcessStatus
	r.await(fmt.Sprintf("%s/%d %s", id, port, what), func(s cluster.Supervisor) bool {
		p, ok := processIn(s, id, port)
		found = p
		return ok && holds(p)
	})
	return found
}

func processIn(s cluster.Supervisor, id string, port int) (cluster.ProcessStatus, bool) {
	for _, p := range s.Processes {
		if p.ID == id && p.Port == port {
			return p, true
		}
	}
	return cluster.ProcessStatus{}, false
}

// running waits until a process runs and has beaten.
func (r *rig) running(id string, port int) cluster.ProcessStatus {
	r.t.Helper()
	p := r.process(id, port, "runs", func(p cluster.ProcessStatus) bool { return p.PID != 0 })
	r.condition("it beats", func() bool { return len(glob(r.folder(id, port), own, "beat-*")) > 0 })
	return p
}

// empty waits until the supervisor has no process of a topology.
func (r *rig) empty(id string) {
	r.t.Helper()
	r.await("nothing is left of "+id, func(s cluster.Supervisor) bool {
		for _, p := range s.Processes {
			if p.ID == id {
				return false
			}
		}
		return true
	})
}

// condition waits for what nothing tells of.
func (r *rig) condition(what string, holds func() bool) {
	r.t.Helper()
	if !awaitCondition(holds) {
		r.t.Fatalf("waited %s in vain until %s\n%s", patience, what, r.log)
	}
}

func awaitCondition(holds func() bool) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	deadline := inVain(ctx)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func (r *rig) folder(id string, port int) string { return folderIn(r.cfg.Dir, id, port) }

func folderIn(dir, id string, port int) string {
	name := "master"
	if port != 0 {
		name = fmt.Sprint(port)
	}
	return filepath.Join(dir, topologiesDir, id, name)
}

func glob(elem ...string) []string {
	found, _ := filepath.Glob(filepath.Join(elem...))
	return found
}

// spec reads what the present process of a port was told.
func (r *rig) spec(id string, port int) (cluster.Process, string) {
	r.t.Helper()
	paths := glob(r.folder(id, port), own, "process-*.json")
	if len(paths) != 1 {
		r.t.Fatalf("process files: %q", paths)
	}
	text, err := os.ReadFile(paths[0])
	var p cluster.Process
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p, paths[0]
}

// alive reports whether a process runs.
func alive(pid int) bool { return birth(pid) != "" }

// ask sends a request to the supervisor.
func (r *rig) ask(verb string, body, reply any) error {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	call, err := json.Marshal(cluster.Call{Verb: verb, Body: text})
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.admin.Request(r.t.Context(), cluster.SupervisorService("s1"), call)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, reply)
}

// journal is a log that can be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) has(text string) bool { return strings.Contains(j.String(), text) }
