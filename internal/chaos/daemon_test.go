//go:build linux || darwin

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// The programs under test are built by the test, which go test does not see: this
	// makes it run again when the engine has changed.
	_ "github.com/isobar-io/isobar/internal/chaos/programs/verses"
	_ "github.com/isobar-io/isobar/internal/cli"
)

// patience is how long anything may take before it counts as hanging. What is faster as
// a rule is measured and logged, as machines that test are often busy.
const patience = 150 * time.Second

var (
	fullFlag     = flag.Bool("chaos.full", false, "run the long tests, too")
	defaultsFlag = flag.Bool("chaos.defaults", false, "let clusters have the time limits that they have by default, not short ones")
)

// begin has a test run beside the others. Of -short
// it is no part: what runs here is not what was built for the test.
func begin(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs whole clusters")
	}
	t.Parallel()
}

// long does the same with a test that takes minutes, if that is wanted.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() || !*fullFlag && os.Getenv("ISOBAR_CI") == "" {
		t.Skip("it takes minutes: -chaos.full runs it")
	}
	t.Parallel()
}

var binaries string // folder of the built programs

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most of the time is waiting
		panic(err)
	}
	var err error
	if binaries, err = os.MkdirTemp("", "isobar-chaos-"); err != nil {
		panic(err)
	}
	m.Run()
	if err := os.RemoveAll(binaries); err != nil {
		panic(err)
	}
}

// program returns what builds a program on its first use, and then its path.
func program(dir string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		// Read so that go test runs again when they have changed.
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, path := range sources {
			_, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr)
		}
		if err != nil {
			return "", err
		}
		path := filepath.Join(binaries, filepath.Base(dir))
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./"+dir).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", dir, err, out)
		}
		return path, nil
	})
}

var (
	isobar    = program("../../cmd/isobar")
	wordcount = program("../../examples/wordcount")
	first     = program("programs/first")
	second    = program("programs/second")
)

func built(t testing.TB, program func() (string, error)) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is where daemons run: this machine, or a part of it with a network of its own.
type host struct {
	name    string
	address string
	netns   string // network namespace; "": this machine's
}

var local = &host{name: "here", address: "127.0.0.1"}

func (h *host) command(path string, args ...string) *exec.Cmd {
	if h.netns == "" {
		return exec.Command(path, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", h.netns, path}, args...)...)
}

// daemon is a process of the cluster. It can be started again after it has been killed.
type daemon struct {
	testing.TB
	name string
	host *host
	path string
	args []string
	log  string // path
	// started is what it says as soon as it does its work.
	started string
	began   int64 // how much of the log is of former processes
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended
}

// start starts the process, in a group of its own, and waits until it does its work.
func (d *daemon) start() {
	d.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		d.Fatal(err)
	}
	d.began = info.Size()
	d.cmd = d.host.command(d.path, d.args...)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(d.log)}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		d.Fatalf("start %s: %v", d.name, err)
	}
	cmd, done := d.cmd, make(chan struct{})
	d.done = done
	go func() {
		defer close(done)
		cmd.Wait() //nolint:errcheck // the log of the daemon tells
	}()
	d.says(d.started)
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// says waits until the process has written something, since it was started last.
func (d *daemon) says(what string) {
	d.Helper()
	await(d, fmt.Sprintf("%s to say %q", d.name, what), func() bool {
		ended := !d.running()
		text, err := os.ReadFile(d.log)
		if err != nil {
			d.Fatal(err)
		}
		said := strings.Contains(string(text[d.began:]), what)
		if ended && !said {
			d.Fatalf("%s has ended, and should have said %q", d.name, what)
		}
		return said
	})
}

// kill kills the process, as a power cut would, and waits for its end.
func (d *daemon) kill() {
	if d.cmd != nil {
		syscall.Kill(-d.pid(), syscall.SIGKILL) //nolint:errcheck // it may have ended
		<-d.done
	}
}

// dump has the process write its stacks, and end.
func (d *daemon) dump() {
	syscall.Kill(d.pid(), syscall.SIGQUIT) //nolint:errcheck // it may have ended
	select {
	case <-d.done:
	case <-time.After(5 * time.Second):
	}
}

// signal sends a signal to a process of the cluster.
func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %s to process %d: %v", s, pid, err)
	}
}

// await waits until the condition holds.
func await(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	return awaitFor(t, patience, what, holds)
}

func awaitFor(t testing.TB, limit time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Since(began) > limit {
			t.Fatalf("waited %s in vain for %s", limit, what)
		}
		<-tick.C
	}
	return time.Since(began).Round(time.Millisecond)
}

// topologyProcesses returns the processes of topologies whose ids begin so, whoever has
// started them, by what ps shows of them.
func topologyProcesses(id string) map[int]string {
	found := map[int]string{}
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		return found
	}
	for line := range strings.Lines(string(out)) {
		number, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(number); err == nil && strings.HasPrefix(strings.TrimSpace(args), "isobar-"+id) {
			found[pid] = strings.TrimSpace(args)
		}
	}
	return found
}
