package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
)

// A disk that is full while a program is fetched, and then has room again. Who may not
// mount skips the test: run it as root, or below unshare -rm.
func TestDiskIsFullWhileAProgramIsFetched(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		skip := t.Skipf
		if os.Getenv("CI") == "true" {
			skip = t.Fatalf
		}
		skip("may not mount a small file system (%v): run it as root, or below unshare -rm", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killIn(dir)
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r.cfg.Dir = dir
	r.start()
	r.await("it beats", func(cluster.Supervisor) bool { return true })
	ballast := filepath.Join(dir, "ballast")
	fill := func(room int64) {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(ballast, make([]byte, int64(fs.Bavail)*fs.Bsize-room), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(1 << 20)
	r.assign(assignment(topology, 1, 1, []string{"run"}, 6700))
	r.process(topology, 6700, "is told of the full disk", func(p cluster.ProcessStatus) bool {
		return !p.Running && strings.Contains(p.Exit, "no space left on device")
	})
	if left := glob(dir, binariesDir, "*"); len(left) > 1 { // one attempt may be under way
		t.Errorf("files are left: %q", left)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	first := r.running(topology, 6700)
	// What nobody uses makes room.
	if err := os.WriteFile(filepath.Join(dir, binariesDir, strings.Repeat("0", 64)), make([]byte, 40<<20), 0o500); err != nil {
		t.Fatal(err)
	}
	fill(1 << 20)
	content, err := program()
	if err != nil {
		t.Fatal(err)
	}
	other := append(slices.Clone(content), "other"...)
	sum := sha256.Sum256(other)
	name := hex.EncodeToString(sum[:])
	put(t, r.admin, cluster.ObjectsBinaries, name, other)
	a := assignment("u-1-2", 1, 1, []string{"run"}, 6702)
	a.Version.Binary = cluster.Binary{SHA256: name, Size: int64(len(other))}
	r.assign(a)
	r.running("u-1-2", 6702)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// With no room at all nothing is started, since that could not be noted; what runs
	// goes on, and what must end ends.
	fill(0)
	r.assign(assignment("v-1-2", 1, 1, []string{"run"}, 6701))
	r.process("v-1-2", 6701, "waits", func(p cluster.ProcessStatus) bool { return p.Exit != "" && !p.Running })
	if !alive(first.PID) {
		t.Errorf("the first has ended:\n%s", r.log)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.running("v-1-2", 6701)
}
