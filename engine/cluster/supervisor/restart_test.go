//go:build unix

package supervisor

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// other is a supervisor in a process of its own.
type other struct {
	t      *testing.T
	cmd    *exec.Cmd
	beats  chan cluster.Supervisor
	stderr *journal
}

// startOther starts a supervisor whose store has these assignments.
func startOther(t *testing.T, o orders) *other {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.json")
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &other{t: t, cmd: exec.Command(self), beats: make(chan cluster.Supervisor), stderr: &journal{}}
	p.cmd.Env = append(os.Environ(), envSupervisor+"="+path)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.beats)
		lines := bufio.NewScanner(out)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			var s cluster.Supervisor
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
			}
			p.beats <- s
		}
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// await waits for a heartbeat in which a condition holds.
func (p *other) await(holds func(cluster.Supervisor) bool) cluster.Supervisor {
	p.t.Helper()
	for s := range p.beats {
		if holds(s) {
			return s
		}
	}
	p.t.Fatalf("the supervisor has ended: %s", p.stderr)
	return cluster.Supervisor{}
}

// end ends it, however.
func (p *other) end(sig syscall.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	p.cmd.Process.Signal(sig) //nolint:errcheck // it may have ended
	for range p.beats {
	}
	p.cmd.Wait() //nolint:errcheck // it was killed
}

func allRun(ports ...int) func(cluster.Supervisor) bool {
	return func(s cluster.Supervisor) bool {
		return !slices.ContainsFunc(ports, func(port int) bool {
			p, _ := processIn(s, topology, port)
			return p.PID == 0
		})
	}
}

func TestProcessesSurviveTheirSupervisorAndAreAdopted(t *testing.T) {
	o := orders{Dir: t.TempDir(), Assignments: []cluster.Assignment{assignment(topology, 1, 1, []string{"run"}, 0, 6700, 6701, 6702)}}
	t.Cleanup(func() { killIn(o.Dir) })
	first := startOther(t, o)
	before := first.await(allRun(0, 6700, 6701, 6702))
	pid := func(s cluster.Supervisor, port int) int {
		p, _ := processIn(s, topology, port)
		return p.PID
	}
	incarnation := func(port int) uint64 {
		var p cluster.Process
		for _, path := range glob(folderIn(o.Dir, topology, port), own, "process-*.json") {
			if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &p) != nil {
				t.Fatal(path)
			}
		}
		return p.Incarnation
	}
	former := incarnation(6701)
	first.end(syscall.SIGKILL)
	// Without a supervisor one dies, and another one ends in order.
	if err := syscall.Kill(pid(before, 6701), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folderIn(o.Dir, topology, 0), "finish"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !awaitCondition(func() bool { return !alive(pid(before, 6701)) && !alive(pid(before, 0)) }) {
		t.Fatal("they do not end")
	}
	// The next one has a store that knows nothing.
	o.Assignments = nil
	second := startOther(t, o)
	after := second.await(allRun(6700, 6701, 6702))
	if pid(after, 6700) != pid(before, 6700) {
		t.Errorf("the worker was not adopted: pid %d after %d", pid(after, 6700), pid(before, 6700))
	}
	if pid(after, 6701) == pid(before, 6701) || incarnation(6701) <= former {
		t.Errorf("pid %d after %d, incarnation %d after %d", pid(after, 6701), pid(before, 6701), incarnation(6701), former)
	}
	if p, _ := processIn(after, topology, 0); p.Running || p.Exit != "exit status 0" || p.Restarts != 0 {
		t.Errorf("the topology master has ended in order, and its supervisor says %+v", p)
	}
	// The end of an adopted process is seen.
	if err := syscall.Kill(pid(after, 6700), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second.await(func(s cluster.Supervisor) bool { return pid(s, 6700) != 0 && pid(s, 6700) != pid(after, 6700) })
	// Its exit code, too, if it has noted it.
	if err := os.WriteFile(filepath.Join(folderIn(o.Dir, topology, 6702), "finish"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := second.await(func(s cluster.Supervisor) bool { p, _ := processIn(s, topology, 6702); return p.Exit != "" })
	if p, _ := processIn(done, topology, 6702); p.Exit != "exit status 0" || p.Restarts != 0 {
		t.Errorf("the adopted worker has ended in order, and its supervisor says %+v", p)
	}
}

// What was started and not noted is found, too: the moment between the two is simulated
// by taking the note away.
func TestProcessThatWasNotNotedIsFound(t *testing.T) {
	if !waitsWell {
		t.Skip("this system does not tell the environment of a process")
	}
	o := orders{Dir: t.TempDir(), Assignments: []cluster.Assignment{assignment(topology, 1, 1, []string{"run"}, 0, 6700)}}
	t.Cleanup(func() { killIn(o.Dir) })
	first := startOther(t, o)
	before := first.await(allRun(0, 6700))
	first.end(syscall.SIGKILL)
	path := filepath.Join(o.Dir, "state.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noted := strings.ReplaceAll(string(text), `"phase":"running"`, `"phase":"starting"`)
	for _, p := range before.Processes {
		noted = strings.ReplaceAll(noted, `"pid":`+itoa(p.PID), `"pid":0`)
	}
	if noted == string(text) {
		t.Fatalf("nothing was noted: %s", text)
	}
	if err := os.WriteFile(path, []byte(noted), 0o600); err != nil {
		t.Fatal(err)
	}
	after := startOther(t, o).await(allRun(0, 6700))
	for _, p := range after.Processes {
		if was, _ := processIn(before, p.ID, p.Port); was.PID != p.PID {
			t.Errorf("%s %d: pid %d after %d", p.Role, p.Port, p.PID, was.PID)
		}
	}
}

// A pid alone does not make a process the one that was started: it may be used again.
func TestOnlyTheSameProcessIsAdopted(t *testing.T) {
	var first process
	if err := first.begin(exec.Command("sleep", "600")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { first.await(t.Context()); close(done) }()
	right, wrong := process{birth: first.birth}, process{birth: birth(os.Getpid())}
	if !right.adopt(first.os.Pid) || wrong.adopt(first.os.Pid) {
		t.Error("the wrong one was adopted, or the right one was not")
	}
	seen := make(chan struct{})
	go func() { right.await(t.Context()); close(seen) }()
	if err := kill(first.os); err != nil {
		t.Fatal(err)
	}
	<-done
	<-seen
	if first.code != -1 || first.how != "signal: killed" || right.code != -1 {
		t.Errorf("%d, %s; %d", first.code, first.how, right.code)
	}
	if again := (&process{birth: first.birth}); again.adopt(first.os.Pid) {
		t.Error("a dead process was adopted")
	}
}

func TestNothingIsStartedThatCannotBeNoted(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	first := r.running(topology, 6700)
	// A folder stands where the notes should be.
	path := filepath.Join(r.cfg.Dir, "state.json")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.assign(assignment("v-1-2", 1, 1, []string{"run"}, 6701))
	r.process("v-1-2", 6701, "waits", func(p cluster.ProcessStatus) bool { return !p.Running && strings.Contains(p.Exit, "cannot be noted") })
	if !alive(first.PID) {
		t.Error("the first was ended")
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	r.running("v-1-2", 6701)
	r.condition("it is noted", func() bool { return r.knows("v-1-2") })
}

func TestSecondSupervisorOfAFolderIsRefused(t *testing.T) {
	r := newRig(t).start()
	r.await("it beats", func(cluster.Supervisor) bool { return true })
	if _, err := New(r.cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v", err)
	}
}

func TestOrderlyShutdownLeavesProcessesRunning(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	master, worker := r.running(topology, 0), r.running(topology, 6700)
	r.shutdown()
	r.condition("the heartbeat is removed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.gone
	})
	if !alive(master.PID) || !alive(worker.PID) {
		t.Fatal("they have ended")
	}
	// The next one finds them while the store is away.
	r.server.Stop()
	r.start()
	r.condition("it has found them", func() bool { return strings.Count(r.log.String(), "a process was found running") == 2 })
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.condition("the worker was started again", func() bool { return strings.Count(r.log.String(), "a process was started") == 3 })
	r.server.Start()
	again := r.running(topology, 6700)
	if p := r.running(topology, 0); p.PID != master.PID || again.PID == worker.PID {
		t.Errorf("master %+v, worker %+v", p, again)
	}
}

func TestStopProcessesEndsThemUntilTheNextStart(t *testing.T) {
	r := newRig(t)
	r.cfg.StopProcesses = true
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
	r.assign(assignment("v-2-2", 1, 1, []string{"exit", "0"}, 6701))
	master, worker := r.running(topology, 0), r.running(topology, 6700)
	r.process("v-2-2", 6701, "has ended", func(p cluster.ProcessStatus) bool { return p.Exit != "" })
	r.shutdown()
	if alive(master.PID) || alive(worker.PID) {
		t.Error("they run on")
	}
	log := r.log.String()
	if m, w := strings.Index(log, topology+"/master how="), strings.Index(log, topology+"/6700 how="); m < 0 || w < m {
		t.Errorf("the topology master ended at %d, its worker at %d:\n%s", m, w, log)
	}
	r.start()
	if p := r.running(topology, 6700); p.PID == worker.PID || p.Restarts != 0 {
		t.Errorf("%+v", p)
	}
	r.running(topology, 0)
	if p, _ := processIn(r.record, "v-2-2", 6701); p.Running || p.Exit != "exit status 0" {
		t.Errorf("what had ended before: %+v", p)
	}
}
