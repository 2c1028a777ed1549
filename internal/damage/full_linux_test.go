package damage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/engine/master"
)

// disk is a file system of its own that is small enough to be filled.
type disk struct {
	dir   string
	mu    sync.Mutex
	armed bool // it may be filled
}

const diskBytes = 8 << 20

// newDisk mounts a disk. Who may not mount skips the test, so that it runs where it can:
// as root, or in a namespace of its own.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{dir: t.TempDir()}
	err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		skip := t.Skipf
		if os.Getenv("CI") == "true" {
			skip = t.Fatalf
		}
		skip("may not mount a small file system (%v): run it as root, or below unshare -rm", err)
	}
	if err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// arm allows to fill the disk.
func (d *disk) arm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = true
}

// isArmed reports whether the disk may be filled.
func (d *disk) isArmed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.armed
}

// fill leaves no room at all, if the disk is armed.
func (d *disk) fill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.armed {
		return nil
	}
	f, err := os.OpenFile(d.filler(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		block := make([]byte, size)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			break
		}
		err = nil
	}
	return errors.Join(err, f.Close())
}

// free makes room. Unless again is true the disk is not filled any more.
func (d *disk) free(again bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = again
	err := os.Remove(d.filler())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

const noSpace = "no space left on device"

// complaints passes on what is logged about the full disk.
type complaints struct {
	slog.Handler
	said chan string
}

func newComplaints() *complaints {
	return &complaints{slog.DiscardHandler, make(chan string, 1)}
}

func (*complaints) Enabled(context.Context, slog.Level) bool { return true }
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c *complaints) WithGroup(string) slog.Handler          { return c }

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	if strings.Contains(text, noSpace) {
		select {
		case c.said <- text:
		default: // nobody has read the last one
		}
	}
	return nil
}

// filled is a run on a disk that becomes full in the middle of it.
type filled struct {
	disk  *disk
	data  string // the data folder
	store string // the folder of checkpoints
	full  func(step string) bool
	conf  map[string]any

	commits atomic.Int64
	errs    chan error
	log     *complaints
	look    *engine.Inspector
	o       *outside
}

// hook fills the disk at its steps, from the third commit on.
func (f *filled) hook(step string) {
	if step == "head.after" && f.commits.Add(1) == 3 {
		f.disk.arm()
	}
	if f.full(step) {
		if err := f.disk.fill(); err != nil {
			f.errs <- err
		}
	}
}

// makeRoom ends the trouble.
func (f *filled) makeRoom(t *testing.T) {
	t.Helper()
	if err := f.disk.free(false); err != nil {
		t.Fatal(err)
	}
}

type ended struct {
	res engine.Result
	err error
}

func (f *filled) start(t *testing.T, parts [][]sale) <-chan ended {
	t.Helper()
	f.errs, f.log = make(chan error, 100), newComplaints()
	kv := map[string]any{"checkpoint.store": "file://" + f.store, "topology.restart.max": 0}
	for k, v := range f.conf {
		kv[k] = v
	}
	topo := build(t, parts, perBatch, f.o)
	looks := make(chan *engine.Inspector, 1)
	end := make(chan ended, 1)
	go func() {
		res, err := engine.Run(t.Context(), topo, engine.WithName(topologyName), configured(t, kv), app.Local(f.data),
			engine.WithHook(f.hook), engine.WithLogger(slog.New(f.log)),
			engine.WithInspector(func(i *engine.Inspector) { looks <- i }))
		end <- ended{res, err}
		close(looks) // it may not have begun
	}()
	f.look = <-looks
	return end
}

// awaitTrouble returns when a complaint is as it should be.
func (f *filled) awaitTrouble(t *testing.T, end <-chan ended, asItShould func(complaint string, r master.RegionStatus) bool) {
	t.Helper()
	last := "nothing"
	deadline := time.After(time.Minute)
	for {
		select {
		case last = <-f.log.said:
			if asItShould(last, f.look.Regions()[0]) {
				return
			}
		case e := <-end:
			t.Fatalf("the run ended on a full disk: %+v, %v", e.res, e.err)
		case err := <-f.errs:
			t.Fatal(err)
		case <-deadline:
			t.Fatalf("on a full disk %+v; the last complaint: %s", f.look.Regions()[0], last)
		}
	}
}

// shows reports whether the inspector tells of the full disk.
func shows(r master.RegionStatus) bool {
	return slices.ContainsFunc(r.Degraded, func(s string) bool { return strings.Contains(s, noSpace) })
}

// await returns how the run ended.
func (f *filled) await(t *testing.T, end <-chan ended) ended {
	t.Helper()
	select {
	case e := <-end:
		return e
	case <-time.After(time.Minute):
		t.Fatalf("the run hangs: %+v", f.look.Regions()[0])
		panic("unreachable")
	}
}

// finish waits for the end of a run that has room, which must be exactly right.
func (f *filled) finish(t *testing.T, end <-chan ended, want *outside) engine.Result {
	t.Helper()
	e := f.await(t, end)
	if e.err != nil {
		t.Fatal(e.err)
	}
	if err := errors.Join(f.o.differs(want), whole(filepath.Join(f.store, topologyName))); err != nil {
		t.Error(err)
	}
	return e.res
}

func at(steps ...string) func(string) bool {
	return func(step string) bool { return slices.Contains(steps, step) }
}

// newFilled has the local state on a small disk, or the checkpoints.
func newFilled(t *testing.T, local bool, steps ...string) *filled {
	t.Helper()
	d := newDisk(t)
	f := &filled{disk: d, data: t.TempDir(), store: filepath.Join(d.dir, "checkpoints"), full: at(steps...), o: newOutside()}
	if local {
		f.data, f.store = filepath.Join(d.dir, "data"), t.TempDir()
	}
	return f
}

// TestFullDisk fills the disk of the checkpoints, and that of the local state, at
// different steps. The run must say so and wait, and go on when there is room.
func TestFullDisk(t *testing.T) {
	parts := input(salesEach)
	want := expected(parts)
	for _, c := range []struct {
		name  string
		local bool
		step  string
		named string // in the complaint
	}{
		{"when a delta is stored", false, "sst.store.before", "data/"},
		{"when a manifest is stored", false, "manifest.before", "manifest/"},
		{"when the head is moved", false, "head.before", "head"},
		{"when a delta is written", true, "sst.before", "apply batch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFilled(t, c.local, c.step)
			end := f.start(t, parts)
			// The spouts have paused, too.
			stands := func(complaint string, r master.RegionStatus) bool {
				return strings.Contains(complaint, c.named) && shows(r) && r.Pending >= 2
			}
			f.awaitTrouble(t, end, stands)
			spout, _ := f.look.Plan().TaskIDs("sales")
			emitted, committed := f.look.Stats(spout).TuplesEmitted(), f.look.Regions()[0].Committed
			f.awaitTrouble(t, end, stands)
			f.awaitTrouble(t, end, stands)
			// Two batches are closed, and one is open.
			if more := f.look.Stats(spout).TuplesEmitted() - emitted; more > 3*2*perBatch {
				t.Errorf("%d tuples were read while nothing could be committed", more)
			}
			if more := f.look.Regions()[0].Committed - committed; more > 1 {
				t.Errorf("%d batches were committed on a full disk", more)
			}
			f.makeRoom(t)
			if res := f.finish(t, end, want); res.Restarts != 0 {
				t.Errorf("%d restarts", res.Restarts)
			}
		})
	}
}

// TestFullDiskDuringCompaction: compactions of the local state fail, again and again.
// That is no reason to stop.
func TestFullDiskDuringCompaction(t *testing.T) {
	t.Parallel()
	parts := input(salesEach)
	f := newFilled(t, true, "ingest.before")
	end := f.start(t, parts)
	f.awaitTrouble(t, end, func(complaint string, _ master.RegionStatus) bool {
		if strings.Contains(complaint, "background") {
			return true
		}
		if err := f.disk.free(true); err != nil { // the next delta did not fit either
			t.Error(err)
		}
		return false
	})
	f.makeRoom(t)
	if res := f.finish(t, end, expected(parts)); res.Restarts != 0 {
		t.Errorf("%d restarts", res.Restarts)
	}
}

// TestFullDiskDuringRestart: a task fails, and there is no room to restore its state.
func TestFullDiskDuringRestart(t *testing.T) {
	parts := input(salesEach)
	for name, limit := range map[string]int{"that waits for room": 0, "that is given up": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFilled(t, true, "sst.before", "restore.before")
			f.conf = map[string]any{"topology.restart.max": limit}
			var failed atomic.Bool
			f.o.trouble = func() error {
				if f.disk.isArmed() && failed.CompareAndSwap(false, true) {
					return errors.New("cannot sell now")
				}
				return nil
			}
			end := f.start(t, parts)
			if limit > 0 {
				e := f.await(t, end)
				if e.err == nil || !strings.Contains(e.err.Error(), noSpace) || !strings.Contains(e.err.Error(), "open state of") {
					t.Fatalf("the run ended with %+v, %v", e.res, e.err)
				}
				f.makeRoom(t)
				f.finish(t, f.start(t, parts), expected(parts))
				return
			}
			f.awaitTrouble(t, end, func(complaint string, r master.RegionStatus) bool {
				return strings.Contains(complaint, "open state of") && shows(r)
			})
			f.makeRoom(t)
			if res := f.finish(t, end, expected(parts)); res.Restarts == 0 {
				t.Error("nothing was restarted")
			}
		})
	}
}

// TestStartOnAFullDisk: a crash has filled the disk, on which everything is.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	im := theImage(t)
	f := newFilled(t, true)
	f.o = im.o.clone()
	f.store = filepath.Join(f.data, "checkpoints")
	if err := copyTree(im.data, f.data, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	f.disk.arm()
	if err := f.disk.fill(); err != nil {
		t.Fatal(err)
	}
	before := (&folder{dir: f.data}).objects(t)
	end := f.start(t, im.parts)
	f.awaitTrouble(t, end, func(complaint string, r master.RegionStatus) bool { return shows(r) })
	if after := (&folder{dir: f.data}).objects(t); after["head"] != before["head"] {
		t.Error("the head was changed on a full disk")
	}
	f.makeRoom(t)
	f.finish(t, end, im.want)
}
