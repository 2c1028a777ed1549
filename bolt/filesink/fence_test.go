package filesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/internal/filelock"
	"github.com/isobar-io/isobar/txn"
)

// told is a log handler that tells of the first record.
type told struct {
	slog.Handler
	first chan struct{}
}

func newTold() *told { return &told{slog.DiscardHandler, make(chan struct{}, 1)} }

func (h *told) Enabled(context.Context, slog.Level) bool { return true }

func (h *told) Handle(context.Context, slog.Record) error {
	select {
	case h.first <- struct{}{}:
	default:
	}
	return nil
}

// process is one that runs a task of a sink in a generation.
type process struct {
	run     string
	gen     txn.Generation
	waiting *told
	ctx     context.Context
}

func (p process) context(c txn.Context) *txn.Context {
	c.RunID, c.Generation = p.run, p.gen
	if p.waiting != nil {
		c.Logger = slog.New(p.waiting)
	}
	if p.ctx == nil {
		p.ctx = context.Background()
	}
	return txn.NewContext(p.ctx, c, nil)
}

// latest opens a Latest sink that holds one value and is about to show it.
func (p process) latest(path, value string) (*rig, error) {
	r, err := openIn(path, p.context(txn.Context{Component: "sink", TaskCount: 1}))
	if err != nil {
		return nil, err
	}
	if err := r.state.SetKey(event(0).Value(0)); err != nil {
		return nil, err
	}
	return r, r.values.Set([]byte("\t" + value))
}

func (p process) mustLatest(t *testing.T, path, value string) *rig {
	t.Helper()
	r, err := p.latest(path, value)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// show publishes what the sink holds.
func (r *rig) show(ctx context.Context) error { return r.Publish(ctx, 1, r.state.Live(), true) }

func (p process) show(path, value string) error {
	r, err := p.latest(path, value)
	if err != nil {
		return err
	}
	return r.show(context.Background())
}

// stopsIn makes a rename during which its process is stopped.
func stopsIn() (rename func(from, to string) error, stopped chan struct{}, wakeUp func()) {
	stopped, goOn := make(chan struct{}), make(chan struct{})
	return func(from, to string) error {
		close(stopped)
		<-goOn
		return os.Rename(from, to)
	}, stopped, func() { close(goOn) }
}

// overtake starts do, the work of a process that comes later, while an older one is
// stopped, and wakes that one up when the other waits for it or has done its work.
func overtake(waiting *told, wakeUp func(), do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case <-waiting.first:
		wakeUp()
		return <-done
	case err := <-done:
		wakeUp()
		return err
	}
}

func TestProcessStoppedWhileItReplacesTheFileDoesNotHaveTheLastWord(t *testing.T) {
	for name, later := range map[string]process{
		"a newer generation": {run: "X", gen: 8},
		"another run":        {run: "Y", gen: 1},
	} {
		path := filepath.Join(t.TempDir(), "out.tsv")
		old := process{run: "X", gen: 7}.mustLatest(t, path, "old")
		rename, stopped, wakeUp := stopsIn()
		old.rename = rename
		ended := make(chan error, 1)
		go func() { ended <- old.show(context.Background()) }()
		<-stopped
		later.waiting = newTold()
		if err := overtake(later.waiting, wakeUp, func() error { return later.show(path, "new") }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: the older process, which was first: %v", name, err)
		}
		if got := content(t, path); !strings.Contains(got, "new") {
			t.Errorf("%s: in the end the file holds %q", name, got)
		}
	}
}

func TestOpenRaisesTheFence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	if err := os.WriteFile(path, []byte("of an older version\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := process{run: "X", gen: 1}.mustLatest(t, path, "old")
	if err := old.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	old.put(t, "k", "from the grave")
	// One that dies before it shows anything keeps the older one away all the same.
	process{run: "X", gen: 2}.mustLatest(t, path, "never shown")
	err := old.show(t.Context())
	if want := "generation 2 of run X has taken over from generation 1"; !txn.IsFatal(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a fatal one with %q", err, want)
	}
	if got := content(t, path); !strings.Contains(got, "old") {
		t.Errorf("the file holds %q", got)
	}
	for _, p := range []process{{run: "X", gen: 3}, {run: "X", gen: 3}, {run: "Y", gen: 1}, {run: "X", gen: 4}} {
		value := fmt.Sprint(p.run, p.gen)
		if err := p.show(path, value); err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if got := content(t, path); !strings.Contains(got, value) {
			t.Errorf("%s: the file holds %q", value, got)
		}
	}
	err = process{run: "X", gen: 3}.show(path, "late")
	if err == nil || txn.IsFatal(err) || !strings.Contains(err.Error(), "generation 4 of run X has taken over") {
		t.Errorf("an older one opens: error %v", err)
	}
}

func TestRunThatHasLostItsFileGetsItBackOnlyByAStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	mine := process{run: "X", gen: 5}.mustLatest(t, path, "mine")
	if err := (process{run: "Y", gen: 1}).show(path, "theirs"); err != nil {
		t.Fatal(err)
	}
	err := mine.show(t.Context())
	if want := "run Y has taken over from run X"; !txn.IsFatal(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a fatal one with %q", err, want)
	}
	if err := (process{run: "X", gen: 6}).show(path, "mine again"); err != nil {
		t.Error(err)
	}
	if got := content(t, path); !strings.Contains(got, "mine again") {
		t.Errorf("the file holds %q", got)
	}
}

func TestFenceThatCannotBeUnderstoodIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	fence := filepath.Join(filepath.Dir(path), ".out.tsv.fence")
	p := process{run: "X", gen: 7}
	live := p.mustLatest(t, path, "value")
	good := content(t, fence)
	next := `{"v":2,"run":"X","generation":7}`
	for name, tc := range map[string]struct{ text, want string }{
		"cut":             {good[:len(good)-1], "is damaged"},
		"changed":         {strings.Replace(good, "7}", "9}", 1), "is damaged"},
		"foreign":         {"hello\n", "is damaged"},
		"no JSON":         {checksum([]byte("{")) + " {\n", "is damaged"},
		"another version": {checksum([]byte(next)) + " " + next + "\n", "version 2"},
	} {
		if err := os.WriteFile(fence, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"open": p.show(path, "x"), "publish": live.show(t.Context())} {
			if !txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), fence) {
				t.Errorf("%s, %s: error %v, want a fatal one with %q that names the file", name, what, err, tc.want)
			}
		}
	}
	for name, text := range map[string]string{"what a longer one has left": good + "rubbish", "created only": ""} {
		if err := os.WriteFile(fence, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.show(path, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPublishNeedsTheFenceThatOpenHasRaised(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	fence := filepath.Join(filepath.Dir(path), ".out.tsv.fence")
	process{run: "X", gen: 6}.mustLatest(t, path, "")
	older := content(t, fence)
	live := process{run: "X", gen: 7}.mustLatest(t, path, "value")
	for name, tc := range map[string]struct {
		disturb func() error
		want    string
	}{
		"removed":     {func() error { return os.Remove(fence) }, "there is no fence any more"},
		"emptied":     {func() error { return os.WriteFile(fence, nil, 0o600) }, "is empty"},
		"an old copy": {func() error { return os.WriteFile(fence, []byte(older), 0o600) }, "is of generation 6 again"},
	} {
		if err := tc.disturb(); err != nil {
			t.Fatal(err)
		}
		if err := live.show(t.Context()); !txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), fence) {
			t.Errorf("%s: error %v, want a fatal one with %q that names the file", name, err, tc.want)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the output is there, error %v", name, err)
		}
		process{run: "X", gen: 7}.mustLatest(t, path, "") // the next start puts it right
	}
	if err := live.show(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFenceThatCannotBeMadeIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".out.tsv.fence"), 0o700); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(dir, "out.tsv")}
	locked := filepath.Join(dir, "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // who may write everywhere
		paths = append(paths, filepath.Join(locked, "out.tsv"))
	}
	for _, path := range paths {
		err := process{gen: 1}.show(path, "x")
		if want := filepath.Join(filepath.Dir(path), ".out.tsv.fence"); err == nil || !strings.Contains(err.Error(), `file sink "sink": fence: open `+want) {
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}

func TestWaitingForAStoppedProcessEndsWithTheGeneration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.tsv")
	live := process{run: "X", gen: 1, waiting: newTold()}
	r := live.mustLatest(t, path, "x")
	held, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".out.tsv.fence"), os.O_RDWR, 0)
	if err == nil {
		err = filelock.Lock(held)
	}
	if err != nil {
		t.Fatal(err)
	}
	opened := newTold()
	for what, c := range map[string]struct {
		waiting *told
		do      func(context.Context) error
	}{
		"open":    {opened, func(ctx context.Context) error { return process{"X", 2, opened, ctx}.show(path, "y") }},
		"publish": {live.waiting, r.show},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.do(ctx) }()
		select {
		case <-c.waiting.first:
			cancel()
			err = <-ended
		case err = <-ended:
			cancel()
		}
		if !errors.Is(err, context.Canceled) || !errors.Is(err, filelock.ErrLocked) {
			t.Errorf("%s: error %v, want that it has waited and was given up", what, err)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.show(t.Context()); err != nil {
		t.Error(err)
	}
}
