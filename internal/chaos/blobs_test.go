//go:build linux || darwin

package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/internal/chaos/programs/verses"
)

// blob runs isobar blob with a command, and with a file if there is content.
func (r *rig) blob(command, key string, content ...string) (string, error) {
	r.Helper()
	args := []string{"blob", command, key}
	if len(content) > 0 {
		file := filepath.Join(r.dir, "content")
		if err := os.WriteFile(file, []byte(content[0]), 0o600); err != nil {
			r.Fatal(err)
		}
		args = append(args, file)
	}
	return r.run(local, built(r, isobar), append(args, "--nats", strings.Join(r.urls, ","))...)
}

// mustBlob fails unless isobar blob does it.
func (r *rig) mustBlob(command, key string, content ...string) {
	r.Helper()
	if out, err := r.blob(command, key, content...); err != nil {
		r.Fatalf("blob %s %s: %v\n%s", command, key, err, out)
	}
}

// workers returns the processes of workers, by their ids.
func (r *rig) workers() map[int]bool {
	r.Helper()
	pids := map[int]bool{}
	for _, p := range r.processes() {
		if p.Role == cluster.RoleWorker {
			pids[p.PID] = true
		}
	}
	return pids
}

// blobMap returns the flag of a topology.blobstore.map.
func blobMap(each, once string) []string {
	const form = `topology.blobstore.map={%q:{"localname":%q},%q:{"localname":%q,"workerRestart":true}}`
	return []string{"-c", fmt.Sprintf(form, each, verses.NoteEach, once, verses.NoteOnce)}
}

// TestBlobs gives a topology files, replaces them while it counts, and gives it others.
func TestBlobs(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 1)
	p := r.steady(1000, 10_000)
	p.args = append(p.args, "--notes")
	r.mustBlob("create", "a", "a1")
	out, err := p.trySubmit(first, 2, blobMap("a", "b")...)
	if err == nil || !strings.Contains(out, `blob "b" does not exist: create it first`) || strings.Contains(out, "Uploading") {
		t.Errorf("with a blob that does not exist: %v\n%s", err, out)
	}
	r.mustBlob("create", "b", "b1")
	p.submit(first, 2, blobMap("a", "b")...)
	p.awaitCommits(2)
	p.awaitMark("first b1 a1")
	p.checkFolders()

	before := r.workers()
	r.mustBlob("update", "a", "a2")
	p.awaitMark("first b1 a2")
	if now := r.workers(); len(before) != 2 || !maps.Equal(now, before) {
		t.Errorf("the workers were %v, and are %v although the blob asks for no restart", before, now)
	}
	r.mustBlob("update", "b", "b2")
	p.awaitMark("first b2 a2")
	await(p, "both workers to be made anew", func() bool {
		now := r.workers()
		maps.DeleteFunc(now, func(pid int, _ bool) bool { return before[pid] })
		return len(now) == 2
	})
	for _, key := range []string{"a", "b"} {
		if out, err := r.blob("delete", key); err == nil || !strings.Contains(out, "is used by topology "+p.name) {
			t.Errorf("delete of %s: %v\n%s", key, err, out)
		}
	}

	again := []string{"--update", "--update-timeout", "60", "--wait", "150"}
	if out, err := p.trySubmit(first, 2, append(again, blobMap("b", "a")...)...); err != nil || !strings.Contains(out, "It runs as") {
		t.Fatalf("update: %v\n%s", err, out)
	}
	p.awaitMark("first a2 b2")
	again[2] = "12"
	bad := append(again, "-c", `topology.blobstore.map={"a":{"localname":"other.txt"}}`, "-c", "topology.task.stop.timeout.secs=2")
	if out, err := p.trySubmit(first, 2, bad...); err == nil || !strings.Contains(out, "the update was taken back") || !strings.Contains(out, verses.NoteOnce) {
		t.Errorf("update with a map that does not do: %v\n%s", err, out)
	}
	p.awaitCommits(2)
	p.stop()
	r.mustBlob("delete", "a")
	r.mustBlob("delete", "b")
}

// checkFolders looks into the working folders: what the engine has in them of its own must
// not be the name of a blob.
func (p *topology) checkFolders() {
	p.Helper()
	folders, err := filepath.Glob(filepath.Join(p.dir, "supervisor-*", "supervisor", "topologies", p.detail().Topology.ID, "*", "*"))
	if err != nil || len(folders) == 0 {
		p.Fatalf("there is nothing in the working folders: %v", err)
	}
	links := 0
	for _, path := range folders {
		name := filepath.Base(path)
		if slices.Contains([]string{verses.NoteEach, verses.NoteOnce}, name) {
			links++
			continue
		}
		_, err := config.Of(map[string]any{config.KeyBlobs: fmt.Sprintf(`{"a":{"localname":%q}}`, name)})
		if err == nil {
			p.Errorf("a blob may be %s, which the engine has in %s", name, filepath.Dir(path))
		}
	}
	if links != 6 { // of two workers and the topology master
		p.Errorf("%d blobs are in the working folders: %q", links, folders)
	}
}
