package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// process is a process of a topology. It is in a session of its own, so that neither the
// end of its supervisor nor a terminal reaches it.
type process struct {
	place       slots.Place
	incarnation uint64
	beat, exit  string // paths, as in cluster.Process
	birth       string
	os          *os.Process // refers to this process, also when its pid is used again
	child       *exec.Cmd   // nil: a former supervisor has started it
	seen        string      // the beat, when it was last read

	ended chan struct{} // closed when it has ended; then
	code  int           // is its exit code, or below 0, and
	how   string        // tells the same in words
}

// unknownEnd is how a process ends whose exit code nobody knows.
const unknownEnd = "ended, with an exit code that only its former supervisor could have seen"

// begin starts a process and tells apart, by its birth, this one from others that will
// have the same pid.
func (p *process) begin(cmd *exec.Cmd) error {
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.place, err)
	}
	p.child, p.os, p.ended = cmd, cmd.Process, make(chan struct{})
	p.birth = birth(p.os.Pid)
	return nil
}

// adopt takes over a process that a former supervisor has started. ok is false if it does
// not run any more.
func (p *process) adopt(pid int) (ok bool) {
	found, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	// From here on found refers to one process; it is the right one if it was born then.
	if p.birth == "" || birth(pid) != p.birth {
		found.Release() //nolint:errcheck // of what is not used
		return false
	}
	p.os, p.ended = found, make(chan struct{})
	return true
}

// await waits until the process has ended, or for ctx.
func (p *process) await(ctx context.Context) {
	if p.child == nil {
		if awaitEnd(ctx, p.os, p.birth) {
			killGroup(p.os)
			p.code, p.how = notedExit(p.exit)
			close(p.ended)
		}
		p.os.Release() //nolint:errcheck // it is not used any more
		return
	}
	if waitsWell && !awaitEnd(ctx, p.os, p.birth) {
		p.os.Release() //nolint:errcheck // it is not used any more
		return
	}
	// Its pid is its own until Wait. What it has left behind in its session ends with it.
	if waitsWell {
		killGroup(p.os)
	}
	p.child.Wait() //nolint:errcheck // the state tells
	if !waitsWell {
		killGroup(p.os)
	}
	p.code, p.how = p.child.ProcessState.ExitCode(), p.child.ProcessState.String()
	close(p.ended)
}

// notedExit returns the exit code that a process has noted before it ended.
func notedExit(path string) (code int, how string) {
	text, err := readShort(path)
	if err != nil {
		return -1, unknownEnd
	}
	if code, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || code < 0 {
		return -1, unknownEnd
	}
	return code, fmt.Sprintf("exit status %d", code)
}

// look reports whether the beat has changed since the last look.
func (p *process) look() bool {
	text, err := readShort(p.beat)
	if err != nil || text == p.seen {
		return false
	}
	p.seen = text
	return true
}

// readShort reads the beginning of a small file.
func readShort(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, 256)
	n, err := f.Read(buf)
	if n == 0 && err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// poll waits until a condition no longer holds, or for ctx: for systems on which nothing
// tells of the end of a process that is not a child.
func poll(ctx context.Context, holds func() bool) (ended bool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// files are the paths of what belongs to one process.
type files struct{ dir, process, beat, exit, creds, tmp string }

// own is the folder, in a working folder, of what belongs to its present process.
const own = ".isobar"

// filesOf returns the paths of the process of a working folder. The incarnation is in
// some, so that nothing of a former process is taken for this one's.
func filesOf(dir string, incarnation uint64) files {
	in := func(name string) string { return filepath.Join(dir, own, name) }
	n := strconv.FormatUint(incarnation, 10)
	return files{
		dir: dir, process: in("process-" + n + ".json"), beat: in("beat-" + n), exit: in("exit-" + n),
		creds: in("creds"), tmp: in("tmp"),
	}
}
