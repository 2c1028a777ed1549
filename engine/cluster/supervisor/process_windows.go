package supervisor

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// waitsWell: awaitEnd is only for processes that are no children.
const waitsWell = false

// detach gives a process a group of its own, which Ctrl-C does not reach.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate sends Ctrl-Break, which a Go program takes for an interrupt.
func terminate(p *os.Process) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid))
}

// dumpStacks only ends a process: there is no signal for more.
func dumpStacks(p *os.Process) error { return p.Kill() }

// kill ends a process, but not what it has started.
func kill(p *os.Process) error { return p.Kill() }

func killGroup(*os.Process) {}

// awaitEnd waits until a process has ended, or for ctx.
func awaitEnd(ctx context.Context, p *os.Process, born string) (ended bool) {
	return poll(ctx, func() bool { return birth(p.Pid) == born })
}

// birth tells a process from others with its pid: when it was started. It is "" if the
// process has ended.
func birth(pid int) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(h) //nolint:errcheck // it was only looked at
	var started, ended, kernel, user windows.Filetime
	var code uint32
	const running = 259 // STILL_ACTIVE
	if windows.GetProcessTimes(h, &started, &ended, &kernel, &user) != nil ||
		windows.GetExitCodeProcess(h, &code) != nil || code != running {
		return ""
	}
	return strconv.FormatInt(started.Nanoseconds(), 10)
}

// startedIn finds nothing: what was noted is all that is known.
func startedIn(string) map[int]string { return nil }

// memoryMB is not known.
func memoryMB() int { return 0 }
