//go:build linux || darwin

package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/cluster"
)

// TestWithoutCoordinationStore kills processes of a topology while the coordination store
// is away, and then takes all away that the store has: no committed batch may be lost.
func TestWithoutCoordinationStore(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 1)
	p := r.steady(1000, 10_000)
	p.submit(first, 2)
	p.awaitCommits(2)

	r.nats[0].kill()
	before, began := p.generation(), time.Now()
	signal(t, p.its(cluster.RoleWorker)[0].PID, syscall.SIGKILL)
	p.recovers("kill -9 of a worker while the store is away", began, before)

	before = p.generation()
	signal(t, p.its(cluster.RoleMaster)[0].PID, syscall.SIGKILL)
	await(t, "another topology master", func() bool { return p.generation() > before })
	began = time.Now()
	r.nats[0].start()
	p.recovers("kill -9 of the topology master while the store is away, which comes back", began, before)

	before = p.generation()
	r.nats[0].kill()
	r.supervisors[0].kill()
	if err := os.RemoveAll(filepath.Join(r.dir, "nats-0")); err != nil {
		t.Fatal(err)
	}
	r.nats[0].start()
	r.supervisors[0].start()
	p.awaitCommits(10)
	if now := p.generation(); now != before {
		t.Errorf("that the store has lost everything has cost a restart: generation %d, was %d", now, before)
	}
	await(t, "the topology to be unknown", func() bool {
		return len(ask[[]cluster.Summary](r, cluster.VerbList, nil)) == 0
	})
	was := p.newest()
	if out, err := p.trySubmit(first, 2); err == nil || !strings.Contains(out, "--from") {
		t.Errorf("the name of what runs is taken: %v\n%s", err, out)
	}
	p.submit(first, 2, "--from", "latest")
	p.awaitCommits(3)
	if now := p.newest(); now.Generation <= was.Generation {
		t.Errorf("submitted again it is at %s, was at %s", now, was)
	}
	p.stop()
	await(t, "the end of all processes", func() bool { return len(topologyProcesses(p.name+"-")) == 0 })
}

// TestMasterMovesWhereItsCheckpointsAreNot loses the machine with the topology master, while
// the next one has not mounted the folder of checkpoints: nothing begins anew there.
func TestMasterMovesWhereItsCheckpointsAreNot(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 2)
	p := r.steady(1000, 10_000)
	p.submit(first, 1)
	p.awaitCommits(3)
	was := p.detail().Assignment.Master
	for _, d := range r.supervisors {
		if d.name == was {
			d.kill()
		}
	}
	for _, q := range r.processes() {
		if q.supervisor.name == was {
			signal(t, q.PID, syscall.SIGKILL)
		}
	}
	folder := filepath.Join(r.checkpoints, p.name)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	await(t, "a topology master that misses its checkpoints", func() bool {
		d := p.detail()
		return d.Assignment.Master != was && d.Run != nil && strings.Contains(d.Run.Error, "put its checkpoints back")
	})
	if _, err := filestore.HeadFile(folder); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("it has begun anew: %v", err)
	}
	if err := errors.Join(os.RemoveAll(folder), os.Rename(folder+".away", folder)); err != nil {
		t.Fatal(err)
	}
	p.awaitCommits(3)
	p.stop()
}
