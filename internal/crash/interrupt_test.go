//go:build linux || darwin

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/internal/filelock"
)

// heldBy is what a victim needs to know of the lock that holdHead takes.
func (p place) heldBy() string { return "CRASH_HOLD=" + p.hold() }

func (p place) hold() string { return filepath.Join(filepath.Dir(p.output), "hold") }

// holdHead lets no victim move the head until release is called.
func (p place) holdHead(t *testing.T) (release func()) {
	t.Helper()
	f, err := os.OpenFile(p.hold(), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := filelock.Lock(f); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// some returns a corpus that is not counted before the first commit is noticed.
func some(t *testing.T) *corpus {
	return newCorpus(t, map[string]string{"a.txt": verses(0, 10_000), "b.txt": verses(10_000, 20_000)})
}

// interrupted starts a victim, awaits a commit, holds the head there, and
// interrupts it. It returns when the process has said that it stops, with what was
// committed before.
func interrupted(t *testing.T, p place, c *corpus) (v *process, before checkpoint.Ref, release func()) {
	t.Helper()
	v = victim.start(t, p.victimArgs(c), p.heldBy())
	if !v.await(t, "a commit", func() bool { return p.batch(t) > 0 }) {
		t.Fatalf("the process ended: %v\n%s", v.cmd.ProcessState, &v.stderr)
	}
	release = p.holdHead(t)
	before = *p.committed(t)
	if before.Ended {
		t.Fatal("all input was counted before the interrupt")
	}
	v.interrupt(t)
	v.await(t, "the notice that it stops", func() bool {
		return strings.Contains(v.stderr.String(), "stopping in order")
	})
	return v, before, release
}

func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

func TestInterruptTakesALastCheckpoint(t *testing.T) {
	c := some(t)
	p := newPlace(t, "victim")
	v, before, release := interrupted(t, p, c)
	release()
	if code := v.wait(); code != 0 {
		t.Fatalf("exit code %d, want 0\n%s", code, &v.stderr)
	}
	last := p.committed(t)
	if last.Batch <= before.Batch {
		t.Errorf("no checkpoint was taken after the interrupt: %s is the newest, as before", last)
	}
	if last.Ended {
		t.Error("the interrupt was heeded only when all input was counted")
	}
	p.check(t, c)
	if shown, committed := totalOf(t, p.shown(t)), p.counted(t, c); shown != committed {
		t.Errorf("the output shows %d words after the last checkpoint, %d are committed", shown, committed)
	}
	victim.run(t, 0, p.victimArgs(c))
	p.checkAll(t, c)
	if ref := p.committed(t); ref.Generation != last.Generation+1 || ref.Batch <= last.Batch {
		t.Errorf("the rerun ended with checkpoint %s, it did not go on from %s", ref, last)
	}
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	c := some(t)
	p := newPlace(t, "victim")
	v, before, release := interrupted(t, p, c)
	v.interrupt(t)
	if code := v.wait(); code != 130 { // although the head is held
		t.Fatalf("exit code %d, want 130\n%s", code, &v.stderr)
	}
	if ref := p.committed(t); *ref != before {
		t.Errorf("checkpoint %s was committed while the head was held at %s", ref, before)
	}
	release()
	p.check(t, c)
	victim.run(t, 0, p.victimArgs(c))
	p.checkAll(t, c)
}

func TestDataFolderBelongsToOneProcess(t *testing.T) {
	c := small(t)
	p := newPlace(t, "victim")
	release := p.holdHead(t)
	first := victim.start(t, p.victimArgs(c), p.heldBy())
	pid := fmt.Sprintf("process %d:", first.cmd.Process.Pid)
	lock := filepath.Join(p.data, "lock")
	first.await(t, "the lock on the data folder", func() bool {
		held, err := os.ReadFile(lock)
		return err == nil && len(held) > 0
	})
	other := p
	other.output = filepath.Join(t.TempDir(), "out.tsv")
	second := victim.run(t, 1, other.victimArgs(c))
	if log := second.stderr.String(); !strings.Contains(log, pid) || !strings.Contains(log, p.data) {
		t.Errorf("the error does not name %q and folder %s:\n%s", pid, p.data, log)
	}
	if got := other.shown(t); got != "" {
		t.Errorf("the process that was refused wrote %.80q", got)
	}
	release()
	if code := first.wait(); code != 0 {
		t.Fatalf("exit code %d of the first process, want 0\n%s", code, &first.stderr)
	}
	p.checkAll(t, c)
}
