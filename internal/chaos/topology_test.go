//go:build linux || darwin

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/internal/kjv"
)

// words counts the words of a text into counts, so many times each: one byte after the
// other, with nothing of the engine.
func words(counts map[string]int, text string, times int) {
	var word []byte
	for _, c := range []byte(text + "\n") {
		switch {
		case 'a' <= c && c <= 'z':
			word = append(word, c)
		case 'A' <= c && c <= 'Z':
			word = append(word, c-'A'+'a')
		case len(word) > 0:
			counts[string(word)] += times
			word = word[:0]
		}
	}
}

// topology is one that was submitted.
type topology struct {
	*rig
	name   string
	copies int // of the text, that it counts
	output string
	args   []string // of the program
}

// steady returns a topology that counts so many copies of the text at so many lines a
// second.
func (r *rig) steady(copies, rate int) *topology {
	p := &topology{rig: r, name: fmt.Sprintf("t%08x", rand.Uint32()), copies: copies}
	p.output = filepath.Join(r.dir, p.name+".tsv")
	p.args = []string{"--copies", strconv.Itoa(copies), "--rate", strconv.Itoa(rate), "--output", p.output}
	r.topologies = append(r.topologies, p.name)
	return p
}

// trySubmit submits a version of the topology and returns what the command has said.
func (p *topology) trySubmit(program func() (string, error), workers int, flags ...string) (string, error) {
	access := p.access()
	args := append([]string{"submit", p.name, "--nats", strings.Join(access.URLs, ","), "--creds", access.Creds, "--ca", access.CA,
		"-c", "topology.workers=" + strconv.Itoa(workers),
		"-c", "transaction.schedule.batch.delay.ms=200",
		"-c", "topology.debug.poison.frames=true",
		"-c", "topology.restart.max=1000",
		"-c", "topology.message.timeout.secs=0",
	}, slices.Concat(p.args, flags)...)
	return p.run(local, built(p, program), args...)
}

// submit submits the topology and returns when it runs.
func (p *topology) submit(program func() (string, error), workers int, flags ...string) {
	p.Helper()
	built(p, program)
	began := time.Now()
	out, err := p.trySubmit(program, workers, flags...)
	if err != nil || !strings.Contains(out, "It runs as") {
		p.Fatalf("submit %s: %v\n%s", p.name, err, out)
	}
	p.Logf("submitted and running after %s", time.Since(began).Round(time.Millisecond))
}

func (p *topology) detail() cluster.Detail {
	p.Helper()
	return ask[cluster.Detail](p.rig, cluster.VerbStatus, cluster.Named{Name: p.name})
}

func (p *topology) store() checkpoint.Store {
	p.Helper()
	s, err := filestore.Open(filepath.Join(p.checkpoints, p.name))
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// head reads the head in the checkpoint store, as whoever has nothing else would.
func (p *topology) head() *checkpoint.Head {
	p.Helper()
	data, _, err := p.store().ReadHead(p.Context())
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil
	}
	if err != nil {
		p.Fatal(err)
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		p.Fatal(err)
	}
	return h
}

// newest returns the newest checkpoint, zero if there is none.
func (p *topology) newest() checkpoint.Ref {
	p.Helper()
	h := p.head()
	if h == nil {
		return checkpoint.Ref{}
	}
	for _, r := range h.Regions {
		if ref := r.Current(); ref != nil {
			return *ref
		}
	}
	return checkpoint.Ref{}
}

func (p *topology) generation() checkpoint.Generation {
	p.Helper()
	h := p.head()
	if h == nil {
		return 0
	}
	return h.Generation
}

// awaitCommits waits until so many more batches are committed in the present generation.
func (p *topology) awaitCommits(n int) {
	p.Helper()
	from := p.newest()
	await(p, fmt.Sprintf("%d more commits of %s after %s", n, p.name, from), func() bool {
		now := p.newest()
		return now.Generation > from.Generation && from.Generation > 0 || now.Batch >= from.Batch+checkpoint.BatchID(n)
	})
}

// recovers waits for the first checkpoint of a later generation, and logs how long after
// began that was.
func (p *topology) recovers(what string, began time.Time, before checkpoint.Generation) {
	p.Helper()
	await(p, "a checkpoint after "+what, func() bool { return p.newest().Generation > before })
	p.Logf("%s: the next checkpoint after %s", what, time.Since(began).Round(time.Millisecond))
}

// its returns the processes of the topology with a role.
func (p *topology) its(role cluster.Role) []process {
	p.Helper()
	return slices.DeleteFunc(p.processes(), func(q process) bool {
		return q.Role != role || !strings.HasPrefix(q.ID, p.name+"-")
	})
}

// pids returns the ids of the topology's processes, by place.
func (p *topology) pids() map[string]int {
	p.Helper()
	pids := map[string]int{}
	for _, q := range slices.Concat(p.its(cluster.RoleMaster), p.its(cluster.RoleWorker)) {
		pids[q.supervisor.name+"/"+q.Place.String()] = q.PID
	}
	return pids
}

// awaitStatus waits until the topology is in a status and returns all about it.
func (p *topology) awaitStatus(s cluster.Status) (d cluster.Detail) {
	p.Helper()
	took := await(p, fmt.Sprintf("%s to be %s", p.name, s), func() bool {
		d = p.detail()
		if d.Topology.Status == cluster.Failed && s != cluster.Failed {
			p.Fatalf("%s has failed: %s", p.name, d.Topology.Error)
		}
		return d.Topology.Status == s
	})
	p.Logf("%s after %s", s, took)
	return d
}

// awaitEnd waits until all input was processed, and checks the counts.
func (p *topology) awaitEnd() {
	p.Helper()
	p.awaitStatus(cluster.Finished)
	p.check(p.all())
}

// all returns the counts of all input.
func (p *topology) all() map[string]int {
	counts := map[string]int{}
	words(counts, kjv.Text, p.copies)
	return counts
}

// read returns the counts of what the newest checkpoint has read of the input.
func (p *topology) read() map[string]int {
	p.Helper()
	mf, err := checkpoint.ReadManifest(p.Context(), p.store(), p.newest())
	if err != nil {
		p.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(kjv.Text, "\n"), "\n")
	times := make([]int, len(lines))
	for _, task := range mf.Tasks {
		for _, pos := range task.Positions {
			var part, parts uint64
			if _, err := fmt.Sscanf(string(pos.Partition), "%d/%d", &part, &parts); err != nil {
				p.Fatalf("partition %q: %v", pos.Partition, err)
			}
			for i := range binary.BigEndian.Uint64(pos.Data) {
				times[(part+i*parts)%uint64(len(lines))]++
			}
		}
	}
	counts := map[string]int{}
	for i, line := range lines {
		if times[i] > 0 {
			words(counts, line, times[i])
		}
	}
	return counts
}

// stop kills the topology, which takes a last checkpoint, and checks the counts.
func (p *topology) stop() {
	p.Helper()
	p.kill()
	p.check(p.read())
}

// kill has the topology killed, and waits until its name is free. Its processes must have
// ended by then.
func (p *topology) kill() {
	p.Helper()
	id := p.detail().Topology.ID
	await(p, "the kill of "+p.name, func() bool { // an outage may leave it unknown
		ctx, cancel := context.WithTimeout(p.Context(), askTime)
		defer cancel()
		return p.client.Call(ctx, cluster.VerbKill, cluster.Kill{Name: p.name}, nil) == nil || p.free()
	})
	took := await(p, "the name "+p.name+" to be free", p.free)
	p.Logf("killed, and its name free after %s", took)
	if left := topologyProcesses(id + "/"); len(left) > 0 {
		p.Errorf("its name is free and it still has processes: %v", left)
	}
}

// free reports whether there is no topology of its name.
func (p *topology) free() bool {
	p.Helper()
	all := ask[[]cluster.Summary](p.rig, cluster.VerbList, nil)
	return !slices.ContainsFunc(all, func(s cluster.Summary) bool { return s.Name == p.name })
}

// shown returns the counts of the output, and the mark of each. An output that is not there
// yet has none.
func (p *topology) shown() (counts map[string]int, marks map[string]string) {
	p.Helper()
	text, err := os.ReadFile(p.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Fatal(err)
	}
	counts, marks = map[string]int{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "")
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			p.Fatalf("the output has line %q: %v", line, err)
		}
		counts[fields[0]], marks[fields[0]] = n, fields[2]
	}
	return counts, marks
}

// check fails unless the output has these counts.
func (p *topology) check(want map[string]int) {
	p.Helper()
	got, _ := p.shown()
	wrong, total, totalWant := 0, 0, 0
	for word, n := range want {
		total, totalWant = total+got[word], totalWant+n
		if got[word] != n {
			if wrong++; wrong <= 3 {
				p.Errorf("%q was counted %d times, want %d", word, got[word], n)
			}
		}
	}
	if wrong > 0 || len(got) != len(want) {
		p.Errorf("%d words are counted wrongly: %d different ones where there are %d, %d in all where there are %d", wrong, len(got), len(want), total, totalWant)
	}
	if totalWant == 0 {
		p.Error("nothing was counted")
	}
	p.Logf("%d words were counted", total)
}
