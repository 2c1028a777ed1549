//go:build unix && !linux

package supervisor

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// waitsWell: awaitEnd is only for processes that are no children.
const waitsWell = false

// awaitEnd waits until a process has ended, or for ctx.
func awaitEnd(ctx context.Context, p *os.Process, born string) (ended bool) {
	return poll(ctx, func() bool { return birth(p.Pid) == born })
}

// birth tells a process from others with its pid: when it was started. It is "" if the
// process has ended.
func birth(pid int) string {
	cmd := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid))
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=/bin:/usr/bin"}
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	state, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") {
		return ""
	}
	return strings.Join(strings.Fields(started), " ")
}

// startedIn finds nothing: what was noted is all that is known.
func startedIn(string) map[int]string { return nil }

// memoryMB is not known.
func memoryMB() int { return 0 }
