package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// The programs under test are built by the test, which go test does not see: these
	// make it run again when the engine has changed.
	_ "github.com/isobar-io/isobar/bolt/filesink"
	_ "github.com/isobar-io/isobar/engine/app"
	_ "github.com/isobar-io/isobar/spout/file"
)

// patience is how long anything may take before it counts as hanging.
const patience = time.Minute

// program is one that the test builds on its first use.
type program struct {
	name  string
	dir   string // of its source
	build func() (path string, err error)
}

var (
	victim    = newProgram("victim", "victim")
	wordcount = newProgram("wordcount", "../../examples/wordcount")
	binaries  string // folder of the built programs
)

func newProgram(name, dir string) *program {
	p := &program{name: name, dir: dir}
	p.build = sync.OnceValues(func() (string, error) {
		// Read for the same reason as the imports above.
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, path := range sources {
			_, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr)
		}
		if err != nil {
			return "", err
		}
		path := filepath.Join(binaries, name+".exe")
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./"+filepath.ToSlash(dir)).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", dir, err, out)
		}
		return path, nil
	})
	return p
}

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "isobar-crash-"); err != nil {
		panic(err)
	}
	m.Run()
	if err := os.RemoveAll(binaries); err != nil {
		panic(err)
	}
}

// process is a program that runs, or has run.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	stdout transcript
	stderr transcript
}

// start starts the program. It is killed when the test ends, and told to print its
// stacks when it takes too long.
func (b *program) start(t *testing.T, args []string, env ...string) *process {
	t.Helper()
	path, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	p := &process{cmd: exec.CommandContext(ctx, path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGQUIT) }
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() //nolint:errcheck // the state of the process tells
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it has ended as a rule
		<-p.ended
		cancel()
	})
	return p
}

// wait waits for the end and returns the exit code, which is not 0 after a kill.
func (p *process) wait() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// kill kills the process and reports whether that was what ended it.
func (p *process) kill(t *testing.T) bool {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	code := p.wait()
	if killed := code == -1 || code == 1 && runtime.GOOS == "windows"; !killed && code != 0 {
		t.Fatalf("the process failed before it was killed: %v\n%s", p.cmd.ProcessState, &p.stderr)
	}
	p.checkLog(t)
	return code != 0
}

// checkLog fails if the process has logged a warning: to be killed is no reason for
// one, neither before nor after.
func (p *process) checkLog(t *testing.T) {
	t.Helper()
	if log := p.stderr.String(); strings.Contains(log, "level=") {
		t.Errorf("%s complained:\n%s", p.cmd, log)
	}
}

// run runs the program to its end. It fails unless the exit code is want, and nothing
// went wrong on the way if want is 0.
func (b *program) run(t *testing.T, want int, args []string, env ...string) *process {
	t.Helper()
	p := b.start(t, args, env...)
	if code := p.wait(); code != want {
		t.Fatalf("%s %s: %v, want exit code %d\n%s", b.name, strings.Join(args, " "), p.cmd.ProcessState, want, &p.stderr)
	}
	if want == 0 {
		p.checkLog(t)
	}
	return p
}

// await waits until the condition holds and returns true, or false if the process
// has ended before.
func (p *process) await(t *testing.T, what string, holds func() bool) bool {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-p.ended:
			return holds()
		case <-deadline.C:
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it writes what its goroutines do
			p.wait()
			t.Fatalf("waited %s in vain for %s\n%s", patience, what, &p.stderr)
		}
	}
	return true
}

// transcript is what a process has written.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *transcript) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
