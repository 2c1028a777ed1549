//go:build linux || darwin

package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/internal/kjv"
)

// TestRunsAndEnds counts 100 MB of files with two workers, as fast as they can, and all
// of the topology is gone when it was killed.
func TestRunsAndEnds(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 1)
	const copies = 24
	texts := filepath.Join(r.dir, "texts")
	if err := os.Mkdir(texts, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range copies {
		path := filepath.Join(texts, fmt.Sprintf("%02d.txt", i))
		var err error
		if i == 0 {
			err = os.WriteFile(path, []byte(kjv.Text), 0o600)
		} else {
			err = os.Link(filepath.Join(texts, "00.txt"), path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := r.steady(copies, 0)
	p.args = []string{"--input", filepath.Join(texts, "*"), "--output", p.output}
	p.submit(wordcount, 2)
	p.awaitEnd()
	p.kill()
}

// TestKillNineOfEverything kills one process of each kind after the other, and each time
// waits until commits go on.
func TestKillNineOfEverything(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 2, 2)
	p := r.steady(1000, 30_000)
	p.submit(first, 2)
	p.awaitCommits(2)

	killed := func(what string, role cluster.Role) {
		before, began := p.generation(), time.Now()
		signal(t, p.its(role)[0].PID, syscall.SIGKILL)
		p.recovers(what, began, before)
	}
	killed("kill -9 of a worker", cluster.RoleWorker)
	p.awaitCommits(2)
	killed("kill -9 of the topology master", cluster.RoleMaster)
	p.awaitCommits(2)

	t.Log("kill -9 of a supervisor: its processes go on, and the next one takes them over")
	before, pids := p.generation(), p.pids()
	for _, d := range r.supervisors {
		d.kill()
	}
	p.awaitCommits(3)
	for _, d := range r.supervisors {
		d.start()
	}
	for _, d := range r.supervisors {
		d.says("a process was found running")
	}
	p.awaitCommits(2)
	p.untouched(before, pids)

	t.Log("kill -9 of the NATS server: commits go on without it")
	r.nats[0].kill()
	p.awaitCommits(10)
	r.nats[0].start()
	p.awaitCommits(2)
	p.untouched(before, pids)

	t.Log("kill -9 of the nimbus that leads")
	leads := r.leader()
	began := time.Now()
	leads.kill()
	p.awaitCommits(2)
	if r.leader() == leads {
		t.Error("the one that was killed leads")
	}
	t.Logf("another nimbus leads after %s", time.Since(began).Round(time.Millisecond))
	p.untouched(before, pids)
	p.stop()
}

// TestKilledAtTheEnd kills a process of topologies that are about to process the last of
// their input, or just have.
func TestKilledAtTheEnd(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 1)
	for i := range 4 {
		p := r.steady(1, 20_000) // for a second and a half
		p.submit(first, 2)
		pids := slices.Sorted(maps.Values(p.pids()))
		<-time.After(time.Second + time.Duration(rand.Int64N(int64(time.Second))))
		syscall.Kill(pids[i%len(pids)], syscall.SIGKILL) //nolint:errcheck // it may have ended
		p.awaitEnd()
		p.kill()
	}
}

// untouched fails unless the topology's processes, and its generation, are what they were.
func (p *topology) untouched(generation checkpoint.Generation, pids map[string]int) {
	p.Helper()
	if now := p.pids(); !maps.Equal(now, pids) {
		p.Errorf("the processes are %v, want %v", now, pids)
	}
	if now := p.generation(); now != generation {
		p.Errorf("the generation is %d, want %d", now, generation)
	}
}
