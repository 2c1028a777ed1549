package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
	"github.com/isobar-io/isobar/engine/cluster/nimbus"
	"github.com/isobar-io/isobar/engine/config"
)

// testCluster is a cluster in a bubble: a nimbus, and a machine sup-a on which nothing runs.
// What would run there, a test plays.
type testCluster struct {
	t       *testing.T
	server  *memcluster.Server
	ctx     context.Context
	running sync.WaitGroup
	nimbus  *memcluster.Store // the connections of both
	machine *memcluster.Store

	mu        sync.Mutex
	processes []cluster.ProcessStatus
	logs      map[string][]byte // by "master" or "worker PORT"
}

// withCluster runs a test in a bubble, from midnight 2000-01-01 on.
func withCluster(t *testing.T, test func(c *testCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &testCluster{t: t, server: memcluster.New(), logs: map[string][]byte{}}
		ctx, stop := context.WithCancel(context.Background())
		c.ctx = ctx
		defer c.running.Wait()
		defer stop()
		c.machine, c.nimbus = c.server.Connect("supervisor:sup-a"), c.server.Connect("nimbus")
		c.beat(0)
		flags, err := daemonconf.Table.ParseAssignments([]string{"nimbus.admins=root", "checkpoint.store=file:///nowhere/ck"})
		c.must(err)
		n, err := nimbus.New(nimbus.Options{
			ID: "n1", Store: c.nimbus, Conf: config.Merge(daemonconf.Defaults(), flags), Version: "0.1.0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		c.must(err)
		c.running.Go(func() { n.Run(ctx) })
		c.running.Go(func() {
			for beat := uint64(1); ctx.Err() == nil; beat++ {
				select {
				case <-time.After(5 * time.Second):
					c.beat(beat)
				case <-ctx.Done():
				}
			}
		})
		_, err = c.machine.Serve(cluster.SupervisorService("sup-a"), c.readLog)
		c.must(err)
		synctest.Wait() // the nimbus leads
		c.beat(0)
		synctest.Wait() // and knows that the supervisor is alive
		test(c)
	})
}

func (c *testCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// put writes a record.
func (c *testCluster) put(bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b, err := c.machine.Bucket(context.Background(), bucket, true)
	if err == nil {
		_, err = b.Put(context.Background(), key, text)
	}
	return err
}

// tell writes a record and waits until everybody has heeded it.
func (c *testCluster) tell(bucket, key string, v any) {
	c.t.Helper()
	c.must(c.put(bucket, key, v))
	synctest.Wait()
}

// beat writes a heartbeat, if the server lets it.
func (c *testCluster) beat(beat uint64) {
	c.mu.Lock()
	s := cluster.Supervisor{
		ID: "sup-a", Host: "a.example", Machine: "a", Ports: []int{6700, 6701, 6702, 6703, 6704}, Used: []int{6700}, Beat: beat, OS: "linux/amd64", Version: "0.1.0",
		Started: time.Date(1999, 12, 31, 12, 0, 0, 0, time.UTC), CPU: 800, MemoryMB: 16000, Labels: map[string]string{"pool": "batch"}, Processes: c.processes,
	}
	c.mu.Unlock()
	_ = c.put(cluster.BucketSupervisors, s.ID, s)
}

// readLog is what a supervisor answers.
func (c *testCluster) readLog(_ context.Context, _ string, body []byte) ([]byte, error) {
	var call cluster.Call
	var ask cluster.Logs
	if err := errors.Join(json.Unmarshal(body, &call), json.Unmarshal(call.Body, &ask)); err != nil {
		return nil, err
	}
	name := string(ask.Role)
	if ask.Role == cluster.RoleWorker {
		name = fmt.Sprintf("worker %d", ask.Slot.Port)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	log, ok := c.logs[name]
	if !ok {
		return nil, fmt.Errorf("there is no log of %s here", name)
	}
	begin := max(int64(bytes.IndexByte(log, '!')), 0) // what is before a ! is not kept any more
	size := int64(len(log))
	at, end := min(max(ask.Offset, begin), size), size
	if ask.Offset < 0 {
		at = max(size+ask.Offset, begin)
	} else {
		end = min(at+7, size) // parts end anywhere
	}
	return json.Marshal(cluster.LogPart{Data: log[at:end], Offset: at, Size: size})
}

func (c *testCluster) log(name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[name] = append(c.logs[name], text...)
}

// call runs a command line as ann; text output must fit the columns.
func (c *testCluster) call(args ...string) (code int, out, errOut string) {
	c.t.Helper()
	return c.callAs(context.Background(), "ann", args...)
}

func (c *testCluster) callAs(ctx context.Context, user string, args ...string) (code int, out, errOut string) {
	c.t.Helper()
	var o, e bytes.Buffer
	code = run(ctx, c.dial(user), args, &o, &e)
	for line := range strings.Lines(o.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns && !strings.HasPrefix(line, "{") && !strings.Contains(strings.Join(args, " "), "--json") {
			c.t.Errorf("isobar %s prints a line of %d columns: %q", strings.Join(args, " "), n, line)
		}
	}
	return code, o.String(), e.String()
}

func (c *testCluster) dial(user string) dial {
	return func(cluster.StoreAccess) (*client.Client, error) { return client.Over(c.server.Connect(user)), nil }
}

// prints demands exit code 0 and the whole output.
func (c *testCluster) prints(want string, args ...string) {
	c.t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if code, out, errOut := c.call(args...); code != exitOK || errOut != "" || out != want {
		c.t.Errorf("isobar %s: exit code %d, %s\n%s\nwant\n%s", strings.Join(args, " "), code, errOut, out, want)
	}
}

// fails demands an exit code, no output and texts in the error.
func (c *testCluster) fails(code int, line string, want ...string) {
	c.t.Helper()
	got, out, errOut := c.call(strings.Fields(line)...)
	if got != code || out != "" || !strings.HasPrefix(errOut, "isobar: ") {
		c.t.Errorf("isobar %s: exit code %d, want %d, prints %q and %q", line, got, code, out, errOut)
	}
	for _, w := range want {
		if !strings.Contains(errOut, w) {
			c.t.Errorf("isobar %s: error %q lacks %q", line, errOut, w)
		}
	}
}

// json decodes what a command prints with --json.
func (c *testCluster) json(v any, args ...string) {
	c.t.Helper()
	code, out, errOut := c.call(append(args, "--json")...)
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); code != exitOK || errOut != "" || err != nil {
		c.t.Fatalf("isobar %s --json: exit code %d, %s, %v\n%s", strings.Join(args, " "), code, errOut, err, out)
	}
}

// submit submits a topology of two components and two workers as ann, and waits until
// processes are wanted for it.
func (c *testCluster) submit(name string, set ...string) cluster.Assignment {
	c.t.Helper()
	return c.submitAs("ann", name, set...)
}

func (c *testCluster) submitAs(user, name string, set ...string) cluster.Assignment {
	c.t.Helper()
	program := "program of " + name
	sum := sha256.Sum256([]byte(program))
	conf, err := config.ParseAssignments(set)
	c.must(err)
	own := map[string]any{"topology.workers": 2}
	for key, value := range conf.Set() {
		own[key] = value
	}
	s := cluster.Submission{
		Name: name, Binary: cluster.Binary{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(program))},
		Platform: "linux/amd64", Engine: "0.1.0", Config: own,
		Components: []cluster.ComponentSpec{
			{ID: "lines", Spout: true, FirstTask: 1, Tasks: 1},
			{ID: "count", FirstTask: 2, Tasks: 3, Inputs: []string{"lines"}},
		},
	}
	cl := client.Over(c.server.Connect(user))
	objects, err := cl.Store.Objects(context.Background(), cluster.ObjectsBinaries)
	c.must(err)
	_, err = objects.Put(context.Background(), s.Binary.SHA256, io.Reader(strings.NewReader(program)), s.Binary.SHA256, nil)
	c.must(err)
	done, err := request[cluster.Submitted](context.Background(), cl, cluster.VerbSubmit, s)
	c.must(err)
	c.must(cl.Close())
	synctest.Wait()
	a, err := c.assignment(done.ID)
	c.must(err)
	return a
}

func (c *testCluster) assignment(id string) (a cluster.Assignment, err error) {
	b, err := c.machine.Bucket(context.Background(), cluster.BucketAssignments, true)
	if err != nil {
		return a, err
	}
	e, err := b.Get(context.Background(), id)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(e.Value, &a)
}

// sleep lets time pass.
func (c *testCluster) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runs plays a topology master: it tells that all workers are connected, and what edit
// makes of that.
func (c *testCluster) runs(a cluster.Assignment, edit func(*cluster.RunStatus)) {
	c.t.Helper()
	s := cluster.RunStatus{
		Epoch: a.Version.Epoch, Incarnation: 1, Beat: 1, Phase: cluster.PhaseRunning, Active: true, Committed: 12, Restarts: 1, UptimeSecs: 62,
		Regions:    []cluster.RegionState{{Name: "count", Generation: 3, Last: "3.17", Running: true, Restarts: 1}},
		Components: []cluster.ComponentCounts{{ID: "lines", Tasks: 1, Emitted: 1000}, {ID: "count", Tasks: 3, Executed: 9000}},
	}
	for _, w := range a.Workers {
		s.Workers = append(s.Workers, w.ID())
	}
	if edit != nil {
		edit(&s)
	}
	c.tell(cluster.TopologyBucket(a.ID), cluster.KeyStatus, s)
}

// started plays a supervisor that has started all processes but the last worker, and knows
// of that one of an older epoch.
func (c *testCluster) started(a cluster.Assignment) {
	c.mu.Lock()
	for i, w := range a.Workers[:len(a.Workers)-1] {
		c.processes = append(c.processes, cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleWorker, Port: w.Port, Epoch: a.Version.Epoch, PID: 4001 + i, Running: true})
	}
	c.processes = append(c.processes, cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleMaster, Epoch: a.Version.Epoch, PID: 4000, Running: true, Restarts: 2, Exit: "exit\nstatus 2"})
	c.processes = append(c.processes, cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleWorker, Port: a.Workers[len(a.Workers)-1].Port, PID: 3999},
		cluster.ProcessStatus{ID: a.ID, Role: cluster.RoleWorker, Port: 6704})
	c.mu.Unlock()
	c.beat(1 << 40)
	synctest.Wait()
}
