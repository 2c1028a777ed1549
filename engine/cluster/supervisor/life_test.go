//go:build unix

package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isobar-io/isobar/engine/cluster"
)

const topology = "w-1-2"

func TestProcessesAreStartedAsAssigned(t *testing.T) {
	t.Setenv("MOON_PHASE", "full")
	t.Setenv("NOT_FOR_YOU", "x")
	r := newRig(t)
	r.cfg.Environment = []string{"MOON_*"}
	r.cfg.WorkerMemoryMB, r.cfg.WorkerCPU = 512, 150
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	r.running(topology, 0)
	worker := r.running(topology, 6700)
	p, path := r.spec(topology, 6700)
	if p.Role != cluster.RoleWorker || p.Worker != "s1/6700" || p.Listen != "127.0.0.1:6700" || p.Host != "localhost" ||
		p.Epoch != 1 || p.Supervisor != "s1" || p.Secret != "s3cret-of-"+topology {
		t.Errorf("the worker was told %+v", p)
	}
	if m, _ := r.spec(topology, 0); m.Role != cluster.RoleMaster || m.Worker != "" || m.Listen != "127.0.0.1:0" {
		t.Errorf("the topology master was told %+v", m)
	}
	creds, err := os.ReadFile(p.Store.Creds)
	if err != nil || string(creds) != "cr3ds-of-"+topology {
		t.Errorf("credentials %q, %v", creds, err)
	}
	for _, private := range []string{path, p.Store.Creds, filepath.Join(r.cfg.Dir, "state.json")} {
		if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", private, info.Mode(), err)
		}
	}
	got, err := os.ReadFile(filepath.Join(p.Dir, "environment"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"GOMAXPROCS=1", "GOMEMLIMIT=512MiB", "HOME=" + p.Dir, "ISOBAR_PROCESS=" + path, "MOON_PHASE=full", "TMPDIR=" + filepath.Join(p.Dir, own, "tmp")}
	if names := slices.Sorted(strings.SplitSeq(string(got), "\n")); !slices.Equal(names, want) {
		t.Errorf("environment %q, want %q", names, want)
	}
	if session, err := unix.Getsid(worker.PID); err != nil || session != worker.PID {
		t.Errorf("process %d is not in a session of its own but in %d, %v", worker.PID, session, err)
	}
	command, err := exec.Command("ps", "-o", "args=", "-p", itoa(worker.PID)).Output()
	if want := "isobar-" + topology + "/6700\n"; err != nil || string(command) != want {
		t.Errorf("command line %q, %v; want %q", command, err, want)
	}
	if log := r.log.String(); strings.Contains(log, "s3cret") || strings.Contains(log, "cr3ds") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
	if programs := glob(r.cfg.Dir, binariesDir, "*"); len(programs) != 1 {
		t.Errorf("programs %q", programs)
	} else if info, _ := os.Stat(programs[0]); info.Mode().Perm() != 0o500 {
		t.Errorf("the program's mode is %v", info.Mode())
	}
}

func TestWorkerIsToldWhereItsMasterWasLast(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	r.running(topology, 0)
	first := r.running(topology, 6700)
	before, _ := r.spec(topology, 0)
	own, err := r.admin.Bucket(t.Context(), cluster.TopologyBucket(topology), true)
	if err != nil {
		t.Fatal(err)
	}
	// The record is of a master on a machine whose clock is ahead.
	ahead := before.Incarnation + uint64(time.Hour)
	record := fmt.Sprintf(`{"epoch":1,"incarnation":%d,"address":"moon:1"}`, ahead)
	if _, err := own.Put(t.Context(), cluster.KeyMaster, []byte(record)); err != nil {
		t.Fatal(err)
	}
	r.condition("it is noted", func() bool { return r.knows("moon:1") })
	r.server.Stop()
	for _, pid := range []int{first.PID, r.running(topology, 0).PID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	r.condition("both were started again", func() bool { return strings.Count(r.log.String(), "a process was started") == 4 })
	r.server.Start()
	if p, _ := r.spec(topology, 6700); p.Master == nil || p.Master.Address != "moon:1" {
		t.Errorf("the worker was told %+v", p.Master)
	}
	if p, _ := r.spec(topology, 0); p.Master != nil || p.Incarnation <= ahead {
		t.Errorf("the topology master has incarnation %d, not above %d", p.Incarnation, ahead)
	}
}

func TestFailingProcessIsStartedAgainLaterAndLater(t *testing.T) {
	r := newRig(t).start()
	began := time.Now()
	r.assign(assignment(topology, 1, 1, []string{"exit", "7"}, 6700))
	p := r.process(topology, 6700, "has failed 4 times", func(p cluster.ProcessStatus) bool { return p.Restarts >= 4 })
	if p.Exit != "exit status 7" {
		t.Errorf("exit %q", p.Exit)
	}
	// The pauses between the first four are 20, 40 and 80 ms.
	if took := time.Since(began); took < 140*time.Millisecond {
		t.Errorf("4 failures within %s", took)
	}
}

func TestProcessThatEndsInOrderIsNotStartedAgainInItsEpoch(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"exit", "0"}, 6700))
	r.assign(assignment("v-2-2", 1, 1, []string{"exit", "3"}, 6701))
	p := r.process(topology, 6700, "has ended", func(p cluster.ProcessStatus) bool { return p.Exit != "" })
	if p.Exit != "exit status 0" || p.Restarts != 0 {
		t.Errorf("%+v", p)
	}
	// Meanwhile another one fails, and is started, again and again.
	n, _ := processIn(r.await("the other has failed", func(s cluster.Supervisor) bool {
		p, _ := processIn(s, "v-2-2", 6701)
		return p.Restarts > 2
	}), topology, 6700)
	if n.Running || n.Restarts != 0 || len(glob(r.folder(topology, 6700), own, "process-*")) != 1 {
		t.Errorf("%+v", n)
	}
	r.shutdown()
	r.start()
	r.await("the other has failed again", func(s cluster.Supervisor) bool {
		p, _ := processIn(s, "v-2-2", 6701)
		return p.Restarts > 4
	})
	if n, _ := processIn(r.record, topology, 6700); n.Running || n.Restarts != 0 {
		t.Errorf("after a restart of the supervisor: %+v", n)
	}
	r.assign(assignment(topology, 2, 2, []string{"run"}, 6700))
	if p := r.running(topology, 6700); p.Epoch != 2 {
		t.Errorf("%+v", p)
	}
}

func TestHangingProcessIsKilledWithItsStacks(t *testing.T) {
	r := newRig(t)
	r.cfg.WorkerTimeout = 100 * time.Millisecond
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"hang"}, 6700))
	r.process(topology, 6700, "was started again", func(p cluster.ProcessStatus) bool {
		return p.Restarts > 0 && strings.HasPrefix(p.Exit, "it gave no sign: ")
	})
	var part cluster.LogPart
	ask := cluster.Logs{ID: topology, Role: cluster.RoleWorker, Slot: cluster.Slot{Port: 6700}}
	if err := r.ask(cluster.VerbLogs, ask, &part); err != nil || !strings.Contains(string(part.Data), "SIGQUIT: quit") ||
		!strings.Contains(string(part.Data), "supervisor.live") {
		t.Errorf("there are no stacks in the log: %v\n%s", err, part.Data)
	}
}

func TestProcessWithoutAnyBeatIsGivenTheStartTimeout(t *testing.T) {
	r := newRig(t)
	r.cfg.WorkerTimeout, r.cfg.StartTimeout = 50*time.Millisecond, 600*time.Millisecond
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"mute"}, 6700))
	r.process(topology, 6700, "runs", func(p cluster.ProcessStatus) bool { return p.Running })
	began := time.Now()
	r.process(topology, 6700, "was ended", func(p cluster.ProcessStatus) bool { return p.Restarts > 0 })
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it was ended after %s", took)
	}
}

func TestProcessThatIgnoresSIGTERMIsKilled(t *testing.T) {
	r := newRig(t)
	r.cfg.Grace = 100 * time.Millisecond
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"deaf"}, 6700))
	p := r.running(topology, 6700)
	stopped := assignment(topology, 1, 2, []string{"deaf"}, 6700)
	stopped.Stop = true
	r.assign(stopped)
	r.empty(topology)
	if alive(p.PID) {
		t.Error("it lives")
	}
	if left := glob(r.cfg.Dir, topologiesDir, "*"); len(left) != 0 {
		t.Errorf("folders are left: %q", left)
	}
	if !r.log.has("signal: killed") {
		t.Errorf("it was not killed:\n%s", r.log)
	}
}

func TestAssignmentMoves(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700, 6701))
	master, stays, leaves := r.running(topology, 0), r.running(topology, 6700), r.running(topology, 6701)
	// 6701 goes, 6702 comes: what is not touched goes on.
	r.assign(assignment(topology, 1, 2, []string{"run"}, 0, 6700, 6702))
	r.running(topology, 6702)
	r.await("6701 is gone", func(s cluster.Supervisor) bool { return !slices.Contains(s.Used, 6701) })
	if alive(leaves.PID) || r.running(topology, 6700).PID != stays.PID || r.running(topology, 0).PID != master.PID {
		t.Errorf("%+v", r.record.Processes)
	}
	if _, err := os.Stat(r.folder(topology, 6701)); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	// A new epoch makes all anew, in empty folders.
	mark := filepath.Join(r.folder(topology, 6700), "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.assign(assignment(topology, 2, 3, []string{"run"}, 0, 6700))
	p := r.process(topology, 6700, "is of epoch 2", func(p cluster.ProcessStatus) bool { return p.Running && p.Epoch == 2 })
	if p.PID == stays.PID || alive(stays.PID) {
		t.Errorf("%+v after %+v", p, stays)
	}
	if _, err := os.Stat(mark); !os.IsNotExist(err) {
		t.Errorf("what the old epoch left is there: %v", err)
	}
	r.await("the master is of epoch 2", func(s cluster.Supervisor) bool {
		p, _ := processIn(s, topology, 0)
		return p.Running && p.Epoch == 2
	})
	if alive(master.PID) {
		t.Error("the old topology master lives")
	}
}

func TestRemovalAfterStopForgetsTheTopology(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	r.running(topology, 6700)
	stopped := assignment(topology, 1, 1, []string{"run"}, 6700)
	stopped.Stop = true
	r.assign(stopped)
	r.empty(topology)
	if !r.knows(topology) {
		t.Error("it was forgotten before it was removed")
	}
	if err := r.assignments.Delete(t.Context(), topology, 0); err != nil {
		t.Fatal(err)
	}
	r.condition("it is forgotten", func() bool { return !r.knows(topology) })
	if _, err := os.Stat(filepath.Join(r.cfg.Dir, logsDir, topology, "worker-6700.log")); err != nil {
		t.Errorf("its log is not kept: %v", err)
	}
}

// knows reports whether something about a topology is on disk.
func (r *rig) knows(id string) bool {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.cfg.Dir, "state.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Contains(string(text), id)
}

func TestAssignmentThatCannotBeReadIsNoOrder(t *testing.T) {
	r := newRig(t).start()
	if _, err := r.assignments.Put(t.Context(), cluster.KeyMark, []byte("one")); err != nil {
		t.Fatal(err)
	}
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	p := r.running(topology, 6700)
	r.condition("the mark is noted", func() bool { return r.knows(`"mark":"one"`) })
	for _, text := range []string{"{", `{"id":"v-1-2"}`} {
		if _, err := r.assignments.Put(t.Context(), topology, []byte(text)); err != nil {
			t.Fatal(err)
		}
		n := strings.Count(r.log.String(), "an assignment cannot be read")
		r.condition("it was listed again and again", func() bool {
			return strings.Count(r.log.String(), "an assignment cannot be read") > n+4
		})
	}
	if now := r.running(topology, 6700); now.PID != p.PID {
		t.Errorf("%+v after %+v", now, p)
	}
}

// blind is a store that does not tell of changes in the buckets of topologies.
type blind struct{ cluster.Store }

type blindBucket struct{ cluster.Bucket }

func (b blind) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	bucket, err := b.Store.Bucket(ctx, name, create)
	if name == cluster.TopologyBucket(topology) && err == nil {
		bucket = blindBucket{bucket}
	}
	return bucket, err
}

func (blindBucket) Watch(ctx context.Context, _ string) (<-chan cluster.Entry, error) {
	out := make(chan cluster.Entry)
	context.AfterFunc(ctx, func() { close(out) })
	return out, nil
}

// A topology master is asked for before its successor gets its incarnation; no change of
// its record needs to have been seen.
func TestIncarnationIsAboveThatOfAMasterElsewhere(t *testing.T) {
	r := newRig(t)
	r.wrap = func(store cluster.Store) cluster.Store { return blind{store} }
	own, err := r.admin.Bucket(t.Context(), cluster.TopologyBucket(topology), true)
	if err != nil {
		t.Fatal(err)
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	if _, err := own.Put(t.Context(), cluster.KeyMaster, fmt.Appendf(nil, `{"epoch":1,"incarnation":%d}`, ahead)); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0))
	r.running(topology, 0)
	if p, _ := r.spec(topology, 0); p.Incarnation != ahead+1 {
		t.Errorf("incarnation %d after %d", p.Incarnation, ahead)
	}
}

func TestWipeOfTheStoreStopsNothing(t *testing.T) {
	r := newRig(t).start()
	if _, err := r.assignments.Put(t.Context(), cluster.KeyMark, []byte("one")); err != nil {
		t.Fatal(err)
	}
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	master, worker := r.running(topology, 0), r.running(topology, 6700)
	// It has been listed by the store that has the mark.
	r.condition("the mark is noted", func() bool { return r.knows(`"mark":"one"`) })
	r.server.Wipe()
	if err := r.furnish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.assignments.Put(t.Context(), cluster.KeyMark, []byte("two")); err != nil {
		t.Fatal(err)
	}
	r.condition("it is noted that the assignment is gone", func() bool { return r.knows(`"gone":true`) })
	// What dies is started again, from what is known.
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := r.process(topology, 6700, "runs again", func(p cluster.ProcessStatus) bool { return p.PID != 0 && p.PID != worker.PID })
	// Another topology is assigned by the new store, which is listed again and again.
	r.assign(assignment("v-1-3", 1, 1, []string{"run"}, 6701))
	r.running("v-1-3", 6701)
	r.condition("the new store was listed", func() bool { return r.knows(`"mark":"two"`) })
	if !alive(master.PID) || !alive(again.PID) {
		t.Errorf("the wipe has ended something: %+v", r.record.Processes)
	}
	// In the new store a removal is one, also if Stop was missed.
	r.server.Stop()
	r.server.Start()
	if err := r.assignments.Delete(t.Context(), "v-1-3", 0); err != nil {
		t.Fatal(err)
	}
	r.empty("v-1-3")
	// The name of the lost one is given to another: that is an order.
	r.assign(assignment("w-2-3", 1, 1, []string{"run"}, 6702))
	r.empty(topology)
	r.running("w-2-3", 6702)
}
