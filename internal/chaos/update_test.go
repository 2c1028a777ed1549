//go:build linux || darwin

package chaos

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/internal/chaos/programs/verses"
)

// epoch returns that of the topology's processes.
func (p *topology) epoch() uint64 { p.Helper(); return p.detail().Topology.Version.Epoch }

// change waits until a rebalance or an update of the topology is over, which was in an
// epoch before, and returns what was said of it.
func (p *topology) change(what string, epoch uint64) (said string) {
	p.Helper()
	took := await(p, what+" to be over", func() bool {
		t := p.detail().Topology
		said = t.Error
		return t.Status == cluster.Active && t.Version.Epoch > epoch
	})
	p.Logf("%s: over after %s", what, took)
	return said
}

// update has the topology replaced by another program, which has so many seconds to commit,
// and does not wait.
func (p *topology) update(program func() (string, error), secs int, flags ...string) {
	p.Helper()
	p.awaitCommits(2)
	flags = append(flags, "--update", "--update-timeout", strconv.Itoa(secs), "--wait", "0")
	if out, err := p.trySubmit(program, 1, flags...); err != nil {
		p.Fatalf("update: %v\n%s", err, out)
	}
}

// awaitMark waits until the output has words that were counted by a version.
func (p *topology) awaitMark(mark string) {
	p.Helper()
	await(p, "words that version "+mark+" has counted", func() bool {
		_, marks := p.shown()
		return slices.Contains(slices.Collect(maps.Values(marks)), mark)
	})
}

// TestUpdateInPlace replaces what runs by another program and back, and spreads it
// otherwise, while it counts.
func TestUpdateInPlace(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 2)
	p := r.steady(1000, 10_000)
	p.submit(first, 1)
	was := p.newest()
	good := func(mark string, program func() (string, error)) {
		t.Helper()
		epoch := p.epoch()
		p.update(program, 60)
		if said := p.change("update to "+mark, epoch); said != "" {
			t.Errorf("a good update: %s", said)
		}
		p.awaitMark(mark)
	}
	good("second", second)
	good("first", first)
	epoch := p.epoch()
	p.tell(cluster.VerbRebalance, cluster.Rebalance{Name: p.name, Workers: 2, Tasks: map[string]int{"count": 3, "lines": 1}})
	if said := p.change("rebalance", epoch); said != "" {
		t.Error(said)
	}
	p.awaitWorkers(2)
	p.awaitCommits(2)
	for _, c := range p.detail().Run.Components {
		if want := map[string]int{"lines": 1, "split": 2, "count": 3, "sink": 1}[c.ID]; c.Tasks != want {
			t.Errorf("%s has %d tasks, want %d", c.ID, c.Tasks, want)
		}
	}
	if now := p.newest(); now.Batch <= was.Batch {
		t.Errorf("it was at %s, and is at %s", was, now)
	}
	p.stop()
}

// TestBadUpdateIsTakenBack replaces what runs by programs that do not work. What ran
// before takes its place again, and goes on.
func TestBadUpdateIsTakenBack(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 2)
	why := map[string]string{
		verses.PanicsInOpen: "panics, as it was told to",
		verses.Fails:        "it fails, as it was told to",
		verses.Hangs:        "it committed nothing in 12 s",
	}
	running := map[string]*topology{}
	for wrong := range why {
		p := r.steady(1000, 5_000)
		running[wrong] = p
		p.submit(first, 1, "-c", "topology.task.stop.timeout.secs=2")
		p.update(second, 12, "--wrong="+wrong, "-c", "topology.task.stop.timeout.secs=2")
	}
	for wrong, p := range running {
		said := p.change("the update that does "+wrong, 1)
		if !strings.Contains(said, "taken back") || !strings.Contains(said, why[wrong]) {
			t.Errorf("an update that does %s is said to have ended so: %q; want %q in it", wrong, said, why[wrong])
		}
		p.awaitCommits(3)
		p.stop()
		_, marks := p.shown()
		if slices.Contains(slices.Collect(maps.Values(marks)), "second") {
			t.Errorf("the update that does %s has counted words", wrong)
		}
	}
}

// TestNameWithCheckpoints kills a topology and submits it again: it must be said from
// where.
func TestNameWithCheckpoints(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 1)
	p := r.steady(1000, 10_000)
	out, err := p.trySubmit(first, 1, "--from", "latest")
	if err == nil || !strings.Contains(out, "has no checkpoints") {
		t.Errorf("a name without checkpoints goes on from the latest: %v\n%s", err, out)
	}
	p.kill()
	p.submit(first, 1)
	p.awaitCommits(5)
	v := p.detail().Topology.Version
	p.stop()
	kept := p.newest()

	out, err = p.trySubmit(first, 1)
	if err == nil || !strings.Contains(out, "--from") {
		t.Errorf("a name with checkpoints is taken: %v\n%s", err, out)
	}
	if now := p.newest(); now != kept {
		t.Errorf("a submission that was refused has moved the head from %s to %s", kept, now)
	}
	// The command has looked. Who cannot is refused by the topology master.
	ask[cluster.Submitted](r, cluster.VerbSubmit, cluster.Submission{
		Name: p.name, Binary: v.Binary, Platform: v.Platform, Engine: engine.Version,
		Args: v.Args, Config: v.Config, Components: v.Components,
	})
	if d := p.awaitStatus(cluster.Failed); !strings.Contains(d.Topology.Error, "--from") {
		t.Errorf("it has failed: %s", d.Topology.Error)
	}
	if now := p.newest(); now != kept {
		t.Errorf("a topology that has failed has moved the head from %s to %s", kept, now)
	}
	p.kill()

	p.submit(first, 1, "--from", "latest")
	p.awaitCommits(2)
	p.stop()
	if now := p.newest(); now.Batch <= kept.Batch {
		t.Errorf("it went on from %s, and is at %s", kept, now)
	}

	p.submit(first, 1, "--from", "empty")
	p.awaitCommits(2)
	began := time.Now()
	p.stop()
	t.Logf("killed within %s", time.Since(began).Round(time.Millisecond))
}
