package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/isobar-io/isobar/engine/cluster"
)

// waitsWell: awaitEnd returns for a child, too, and before its pid may be used again.
const waitsWell = true

// awaitEnd waits until a process has ended, or for ctx.
func awaitEnd(ctx context.Context, p *os.Process, born string) (ended bool) {
	running := func() bool { return birth(p.Pid) == born }
	fd, err := unix.PidfdOpen(p.Pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil { // the kernel is older than 5.10
		return poll(ctx, running)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if !running() {
		return true
	}
	wait, err := f.SyscallConn()
	if err != nil {
		return poll(ctx, running)
	}
	stop := context.AfterFunc(ctx, func() { f.Close() }) //nolint:errcheck // it ends the wait
	defer stop()
	err = wait.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n > 0
	})
	if err != nil && ctx.Err() == nil {
		return poll(ctx, running)
	}
	return err == nil
}

var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it the time alone tells
	return strings.TrimSpace(string(id))
})

// birth tells a process from all others that have, had or will have its pid: when it was
// started, since which boot. It is "" if the process has ended.
func birth(pid int) string {
	fields := statOf(pid)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return bootID() + "/" + fields[19]
}

// statOf returns the fields of /proc/PID/stat that follow the name, from the state on.
func statOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(text[max(bytes.LastIndexByte(text, ')'), 0):]), ") ")
	return strings.Fields(after)
}

// startedIn finds the processes that a supervisor of this data folder has started, by the
// file that their environment names. What those have started has the same environment,
// but is no leader of a session with a program of ours.
func startedIn(dir string) map[int]string {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields := statOf(pid)
		if len(fields) < 4 || fields[3] != e.Name() {
			continue
		}
		program, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || !strings.HasPrefix(program, filepath.Join(dir, binariesDir)+"/") {
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue
		}
		for v := range strings.SplitSeq(string(environment), "\x00") {
			path, ok := strings.CutPrefix(v, cluster.EnvProcess+"=")
			if ok && strings.HasPrefix(path, filepath.Join(dir, topologiesDir)+"/") {
				found[pid] = path
			}
		}
	}
	return found
}

// memoryMB returns the memory of the machine, or 0.
func memoryMB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			return kb >> 10
		}
	}
	return 0
}
