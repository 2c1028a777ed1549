package filesink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/txn"
)

// rolledBack returns a sink whose task has an open part as of batch 1, completed with batch
// 2, which is committed and not yet published; and the handles of batch 1.
func rolledBack(t *testing.T, dir string) (old *roller, handles []txn.Handle) {
	t.Helper()
	old = newRoller(t, dir, RollingOptions{RollBatches: 2}, 1)
	old.put(event(0))
	old.endBatch()
	handles = old.handles
	old.put(event(1))
	old.commitBatch()
	return old, handles
}

func (r *roller) finish() {
	r.t.Helper()
	if err := r.InputEnded(nil); err != nil {
		r.t.Fatal(err)
	}
	r.endBatch()
}

func (p process) rolling(t *testing.T, dir, component string, handles ...txn.Handle) (*roller, error) {
	r := &roller{Rolling: NewRolling(dir, RollingOptions{RollBatches: 2}), t: t, gen: p.gen, clock: time.Unix(1000, 0), handles: handles}
	if len(handles) > 0 {
		r.batch = handles[len(handles)-1].Batch
	}
	r.now = func() time.Time { return r.clock }
	err := r.Open(p.context(txn.Context{Topology: "top", Component: component, TaskIndex: 2}))
	if err == nil {
		err = r.InitState(handles)
	}
	return r, err
}

func TestProcessStoppedWhileItPublishesIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	old, handles := rolledBack(t, dir)
	rename, stopped, wakeUp := stopsIn()
	old.rename = rename
	ended := make(chan error, 1)
	go func() { ended <- old.AckCommit(context.Background(), 2, 0) }()
	<-stopped
	later := process{gen: 2, waiting: newTold()}
	var r *roller
	err := overtake(later.waiting, wakeUp, func() (err error) {
		r, err = later.rolling(t, dir, "sink", handles...)
		return err
	})
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	r.put(event(2))
	r.finish()
	if got, want := shownLines(t, dir), "\t0\n \t1\n \t2\n"; !endIn(got, want) {
		t.Errorf("lines %q, want some that end in %q: batch 2 was published before it was undone", got, want)
	}
}

// endIn reports whether lines end in the texts of ends, each in one, in order.
func endIn(lines []string, ends string) bool {
	want := strings.Split(ends, " ")
	if len(lines) != len(want) {
		return false
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) {
			return false
		}
	}
	return true
}

func TestProcessThatWakesUpLaterShowsAndRemovesNothing(t *testing.T) {
	for _, component := range []string{"sink", "renamed"} {
		dir := t.TempDir()
		old, handles := rolledBack(t, dir)
		r, err := process{gen: 3}.rolling(t, dir, component, handles...)
		if err != nil {
			t.Fatal(err)
		}
		kept := hiddenFiles(t, dir)
		if len(kept) != 2 {
			t.Fatalf("%s: hidden %q, want the open part and its copy", component, kept)
		}
		if err := old.AckCommit(t.Context(), 2, 0); !txn.IsFatal(err) || !strings.Contains(err.Error(), "generation 3 of run") {
			t.Errorf("%s: the oldest publishes: error %v", component, err)
		}
		between := process{gen: 2}
		if _, err := between.rolling(t, dir, "sink", old.handles...); err == nil || !strings.Contains(err.Error(), "generation 3 of run") {
			t.Errorf("%s: one of generation 2 starts: error %v", component, err)
		}
		if got := hiddenFiles(t, dir); len(got) != 2 {
			t.Errorf("%s: hidden %q, want %q", component, got, kept)
		}
		r.put(event(2))
		r.finish()
		if got, want := shownLines(t, dir), "\t0\n \t2\n"; !endIn(got, want) {
			t.Errorf("%s: lines %q, want some that end in %q", component, got, want)
		}
	}
}

func TestRestoredPartIsKeptFromAnOlderProcess(t *testing.T) {
	dir := t.TempDir()
	first := newRoller(t, dir, RollingOptions{RollBatches: 9}, 1)
	first.put(event(0))
	first.endBatch()
	second := newRoller(t, dir, RollingOptions{RollBatches: 9}, 2, first.handles...)
	second.put(event(1))
	second.commitBatch()
	third := newRoller(t, dir, RollingOptions{RollBatches: 9}, 3, first.handles...)
	if err := second.AckCommit(t.Context(), 2, 2); !txn.IsFatal(err) {
		t.Errorf("an older process removes what the newer goes on from: error %v", err)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	newRoller(t, dir, RollingOptions{RollBatches: 9}, 4, first.handles...)
}

func TestTasksAndRunsHaveFencesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	one := newRoller(t, dir, RollingOptions{RollBatches: 2}, 1)
	one.put(event(0))
	one.commitBatch()
	// Another region, of a higher generation.
	if _, err := (process{gen: 5}).rolling(t, dir, "other", nil...); err != nil {
		t.Fatal(err)
	}
	// A copy of another name goes on from the same part and leaves the original alone.
	if _, err := (process{run: "copy", gen: 9}).rolling(t, dir, "copied", one.handles...); err != nil {
		t.Fatal(err)
	}
	one.put(event(1))
	one.endBatch()
	if got := shownLines(t, dir); len(got) != 2 {
		t.Errorf("lines %q", got)
	}
}

func TestInstanceThatIsRolledBackMovesOnWithItsFence(t *testing.T) {
	dir := t.TempDir()
	r := NewRolling(dir, RollingOptions{})
	c := process{gen: 1}.context(txn.Context{Topology: "top", Component: "sink"})
	if err := errors.Join(r.Open(c), r.InitState(nil)); err != nil {
		t.Fatal(err)
	}
	c.Generation = 3
	if err := r.Rollback(nil); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, ".top~sink~0.fence")); !strings.Contains(got, `"generation":3`) {
		t.Errorf("the fence holds %q", got)
	}
	if err := r.Execute(event(0), nil); err != nil {
		t.Fatal(err)
	}
	if got := hiddenFiles(t, dir); len(got) != 1 || !strings.Contains(got[0], "~000003~") {
		t.Errorf("hidden %q, want one of generation 3", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestBeginningAgainIsRefusedIfAStoppedProcessPublishesMeanwhile(t *testing.T) {
	dir := t.TempDir()
	old := newRoller(t, dir, RollingOptions{}, 1)
	old.put(event(0))
	old.commitBatch()
	rename, stopped, wakeUp := stopsIn()
	old.rename = rename
	ended := make(chan error, 1)
	go func() { ended <- old.AckCommit(context.Background(), 1, 0) }()
	<-stopped
	later := process{gen: 2, waiting: newTold()}
	err := overtake(later.waiting, wakeUp, func() error {
		_, err := later.rolling(t, dir, "sink")
		return err
	})
	if !txn.IsFatal(err) || !strings.Contains(err.Error(), "of another run") {
		t.Errorf("error %v, want that the folder holds what the older process has published", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRefusedRunTakesNothingFromTheOneThatIsThere(t *testing.T) {
	dir := t.TempDir()
	live, err := process{run: "X", gen: 4}.rolling(t, dir, "sink")
	if err != nil {
		t.Fatal(err)
	}
	live.put(event(0))
	live.finish()
	if _, err := (process{run: "Y", gen: 1}).rolling(t, dir, "sink"); !txn.IsFatal(err) {
		t.Errorf("another run begins in its folder: error %v", err)
	}
	live.put(event(1))
	live.endBatch()
}

// The process is stopped when it has raised the fence, before it removes what its own
// checkpoint does not list.
func TestProcessStoppedWhileItStartsRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	first, handles := rolledBack(t, dir)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	old := NewRolling(dir, RollingOptions{})
	if err := old.Open((process{gen: 2}).context(txn.Context{Topology: "top", Component: "sink", TaskIndex: 2})); err != nil {
		t.Fatal(err)
	}
	old.sync = func(f *os.File) error {
		if f.Name() == dir {
			close(stopped)
			<-goOn
		}
		return f.Sync()
	}
	ended := make(chan error, 1)
	go func() { ended <- old.InitState([]txn.Handle{{Batch: 2, Data: []byte(`{"v":1}`)}}) }()
	<-stopped
	if _, err := (process{gen: 3}).rolling(t, dir, "sink", handles...); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "generation 3 of run") {
		t.Errorf("error %v", err)
	}
	if _, err := (process{gen: 4}).rolling(t, dir, "sink", handles...); err != nil {
		t.Errorf("what it must go on from is gone: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}
