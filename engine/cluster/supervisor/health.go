package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// healthOutputMax is how much of a check's output is looked at.
const healthOutputMax = 64 << 10

// checkHealth runs all executables of a folder, each for no longer than timeout. A folder
// that does not exist has none.
func checkHealth(ctx context.Context, dir string, timeout time.Duration) cluster.NodeHealth {
	var h cluster.NodeHealth
	if dir == "" {
		return h
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Unhealthy = fmt.Sprintf("the health checks cannot be found: %v", err)
		return h
	}
	var bad []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 && runtime.GOOS != "windows" {
			continue
		}
		h.Checks++
		if why := runCheck(ctx, path, timeout); why != "" {
			bad = append(bad, e.Name()+": "+why)
		}
	}
	h.Unhealthy = strings.Join(bad, "; ")
	return h
}

// runCheck runs one check and returns why the machine is unhealthy, or "".
func runCheck(ctx context.Context, path string, timeout time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := &head{max: healthOutputMax}
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdout = out
	detach(cmd)
	cmd.Cancel = func() error { return kill(cmd.Process) }
	cmd.WaitDelay = time.Second // somebody it has started may hold its output open
	err := cmd.Run()
	for lines := bufio.NewScanner(&out.buf); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ERROR") {
			return lines.Text()
		}
	}
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("it took longer than %s", timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return err.Error()
	}
	return ""
}

// head keeps the beginning of what is written to it.
type head struct {
	buf bytes.Buffer
	max int
}

func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), h.max-h.buf.Len())])
	return len(p), nil
}
