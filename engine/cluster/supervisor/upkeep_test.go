//go:build unix

package supervisor

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

func TestLogsOfProcessesCanBeRead(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"loud"}, 6700))
	r.running(topology, 6700)
	ask := cluster.Logs{ID: topology, Role: cluster.RoleWorker, Slot: cluster.Slot{Supervisor: "s1", Port: 6700}}
	var all []byte
	for {
		ask.Offset = int64(len(all))
		var part cluster.LogPart
		if err := r.ask(cluster.VerbLogs, ask, &part); err != nil {
			t.Fatal(err)
		}
		if part.Offset != ask.Offset || len(part.Data) > 512<<10 {
			t.Fatalf("asked for %d, got %d bytes from %d", ask.Offset, len(part.Data), part.Offset)
		}
		all = append(all, part.Data...)
		if int64(len(all)) == part.Size {
			break
		}
	}
	if !bytes.HasPrefix(all, []byte("process w-1-2 worker s1/6700\nxxx")) || bytes.Count(all, []byte("\n")) != 1+10<<10 {
		t.Errorf("%d bytes, beginning with %.60q", len(all), all)
	}
	ask.Offset, ask.Limit = -100, 10
	var tail cluster.LogPart
	if err := r.ask(cluster.VerbLogs, ask, &tail); err != nil || tail.Offset != int64(len(all))-100 || len(tail.Data) != 10 {
		t.Errorf("%+v, %v", tail, err)
	}
	for _, bad := range []cluster.Logs{
		{ID: "../../w-1-2", Role: cluster.RoleWorker}, {ID: topology, Role: "nobody"}, {ID: "v-1-2", Role: cluster.RoleMaster},
	} {
		if err := r.ask(cluster.VerbLogs, bad, &tail); err == nil {
			t.Errorf("%+v is answered", bad)
		}
	}
}

func newLogs(t *testing.T) (*logs, slots.Place, *os.File) {
	t.Helper()
	l := &logs{dir: t.TempDir(), max: 100, parts: 2, log: slog.New(slog.DiscardHandler)}
	p := slots.Place{ID: topology, Role: cluster.RoleWorker, Port: 6700}
	f, err := l.open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return l, p, f
}

// Whoever writes goes on writing to the same open file; offsets stay what they are.
func TestLogIsCutAndOffsetsStay(t *testing.T) {
	l, p, f := newLogs(t)
	var all strings.Builder
	next := int64(0)
	var got strings.Builder
	for i := range 100 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		l.keep(func(string) bool { return true }, time.Time{})
		for {
			part, err := l.read(p, next, 5)
			if err != nil {
				t.Fatal(err)
			}
			got.Write(part.Data)
			next = part.Offset + int64(len(part.Data))
			if next == part.Size {
				break
			}
		}
	}
	if got.String() != all.String() {
		t.Errorf("got %q", got.String())
	}
	parts := glob(l.dir, topology, "*")
	var size int64
	for _, path := range parts {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if len(parts) != 3 || size > 330 {
		t.Errorf("%d bytes in %q", size, parts)
	}
	// What was cut off is left out, and the reader is told.
	part, err := l.read(p, 0, 1000)
	if err != nil || part.Offset == 0 || part.Size != int64(all.Len()) || string(part.Data) != all.String()[part.Offset:] {
		t.Errorf("%+v, %v", part, err)
	}
}

// Where the part of a log cannot be written, the log waits; when it is twice as large it
// is given up, and offsets stay what they are.
func TestLogThatCannotBeCopiedIsCutInTheEnd(t *testing.T) {
	l, p, f := newLogs(t)
	if err := os.MkdirAll(l.name(p)+".part", 0o700); err != nil { // it is in the way
		t.Fatal(err)
	}
	for _, step := range []struct {
		text      string
		size, end int64 // of the file, and of all
	}{
		{strings.Repeat("a", 150), 150, 150},
		{strings.Repeat("b", 100), 0, 250},
		{"c", 1, 251},
	} {
		if err := os.MkdirAll(filepath.Join(l.name(p)+".part", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(step.text); err != nil {
			t.Fatal(err)
		}
		l.keep(func(string) bool { return true }, time.Time{})
		info, err := os.Stat(l.name(p))
		if err != nil || info.Size() != step.size {
			t.Errorf("after %.1q: %d bytes, %v", step.text, info.Size(), err)
		}
		if part, err := l.read(p, -1, 1); err != nil || part.Size != step.end {
			t.Errorf("after %.1q: %+v, %v", step.text, part, err)
		}
	}
	if part, err := l.read(p, 250, 10); err != nil || string(part.Data) != "c" {
		t.Errorf("%+v, %v", part, err)
	}
}

func TestOldLogsOfEndedTopologiesGo(t *testing.T) {
	l, p, _ := newLogs(t)
	here, nobody := func(id string) bool { return id == topology }, func(string) bool { return false }
	for _, step := range []struct {
		here   func(string) bool
		oldest time.Time
		gone   bool
	}{
		{nobody, time.Now().Add(-time.Hour), false},
		{here, time.Now().Add(time.Hour), false},
		{nobody, time.Now().Add(time.Hour), true},
	} {
		l.keep(step.here, step.oldest)
		if _, err := os.Stat(l.name(p)); os.IsNotExist(err) != step.gone {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// check writes a health check.
func check(t *testing.T, dir, name, script string, mode os.FileMode) {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(tmp, []byte("#!/bin/sh\n"+script+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func TestHealthChecks(t *testing.T) {
	for _, test := range []struct {
		name, script, want string
		mode               os.FileMode
		timeout            time.Duration
	}{
		{name: "good", script: "echo fine; echo no ERROR", mode: 0o755},
		{name: "text", script: "echo fine; echo ERROR disk 1", mode: 0o755, want: "text: ERROR disk 1"},
		{name: "code", script: "exit 3", mode: 0o755, want: "code: exit status 3"},
		{name: "no-program", script: "exit 3", mode: 0o644},
		{name: "slow", script: "sleep 600 & wait", mode: 0o755, timeout: 50 * time.Millisecond, want: "slow: it took longer than 50ms"},
	} {
		dir := t.TempDir()
		check(t, dir, test.name, test.script, test.mode)
		if test.timeout == 0 {
			test.timeout = patience
		}
		if h := checkHealth(t.Context(), dir, test.timeout); h.Unhealthy != test.want {
			t.Errorf("%s: %q, want %q", test.name, h.Unhealthy, test.want)
		}
	}
	if h := checkHealth(t.Context(), filepath.Join(t.TempDir(), "none"), time.Second); h.Unhealthy != "" {
		t.Errorf("without checks: %q", h.Unhealthy)
	}
}

func TestUnhealthyMachineRunsNothing(t *testing.T) {
	r := newRig(t)
	r.cfg.HealthDir = t.TempDir()
	check(t, r.cfg.HealthDir, "disk", "echo fine", 0o755)
	r.start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	first := r.running(topology, 6700)
	check(t, r.cfg.HealthDir, "disk", "echo ERROR disk", 0o755)
	r.await("it is unhealthy and runs nothing", func(s cluster.Supervisor) bool {
		p, _ := processIn(s, topology, 6700)
		return s.Unhealthy == "disk: ERROR disk" && !p.Running
	})
	if alive(first.PID) {
		t.Error("the worker lives")
	}
	var h cluster.NodeHealth
	if err := r.ask(cluster.VerbHealth, nil, &h); err != nil || h.Checks != 1 || h.Unhealthy != "disk: ERROR disk" {
		t.Errorf("%+v, %v", h, err)
	}
	check(t, r.cfg.HealthDir, "disk", "echo fine", 0o755)
	if p := r.running(topology, 6700); p.Restarts != 0 {
		t.Errorf("%+v", p)
	}
	r.await("it is healthy", func(s cluster.Supervisor) bool { return s.Unhealthy == "" })
}

func TestTwoTopologiesNeverHaveOnePort(t *testing.T) {
	r := newRig(t).start()
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	first := r.running(topology, 6700)
	r.assign(assignment("v-1-2", 1, 1, []string{"run"}, 6700, 6999))
	r.process("v-1-2", 6700, "waits", func(p cluster.ProcessStatus) bool {
		return !p.Running && p.Exit == "port 6700 is used by topology "+topology
	})
	r.process("v-1-2", 6999, "is refused", func(p cluster.ProcessStatus) bool { return p.Exit == "this supervisor has no slot 6999" })
	r.assign(assignment("u-1-2", 1, 1, []string{"run"}, 6702))
	r.running("u-1-2", 6702) // the other would run, too, by now
	if p, _ := processIn(r.record, "v-1-2", 6700); p.Running || !alive(first.PID) {
		t.Errorf("the second %+v", p)
	}
	r.assign(assignment(topology, 1, 2, []string{"run"}, 6701))
	r.running("v-1-2", 6700)
	if alive(first.PID) {
		t.Error("both have run")
	}
}

func TestConfigurationIsCheckedAsAWhole(t *testing.T) {
	_, err := New(Config{ID: "a b", Ports: []int{0, 6700, 6700}, RestartMin: time.Hour, Grace: -1, Environment: []string{"A*B"}})
	for _, want := range []string{"data folder", "coordination store", `"a b"`, "slot 0", "slot 6700 is there twice", "RestartMin", "Grace", `"A*B"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: nothing of %s", err, want)
		}
	}
}

func TestIdentityIsMadeUpOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := identity(dir, "")
	if err != nil || !isName(first) {
		t.Fatal(first, err)
	}
	if again, err := identity(dir, ""); again != first || err != nil {
		t.Errorf("%s, %v after %s", again, err, first)
	}
	if _, err := identity(dir, "other"); err == nil {
		t.Error("a folder of another supervisor is taken")
	}
}
