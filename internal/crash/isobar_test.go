//go:build linux || darwin

package crash

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
	_ "github.com/isobar-io/isobar/internal/cli" // so that the test runs again when it has changed
)

var isobar = newProgram("isobar", "../../cmd/isobar")

// guarded is a server at which the process that asks for something dies.
type guarded struct {
	*httptest.Server
	store *s3test.Server

	mu      sync.Mutex
	changes int           // PUT and DELETE requests under a prefix
	prefix  string        // of those that count
	at      int           // the process dies at the change of this number; 0: never
	after   bool          // the change is made before
	strike  func()        // kills the process
	armed   chan struct{} // closed when strike is known
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s3test.SetCredentials(t)
	g := &guarded{store: s3test.NewServer("bucket")}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counts := (r.Method == http.MethodPut || r.Method == http.MethodDelete) && !strings.HasSuffix(r.URL.Path, "/probe")
	g.mu.Lock()
	if counts = counts && g.prefix != "" && strings.HasPrefix(r.URL.Path, "/bucket/"+g.prefix+"/"); counts {
		g.changes++
	}
	dies, after, armed := counts && g.changes == g.at, g.after, g.armed
	g.mu.Unlock()
	if !dies {
		g.store.ServeHTTP(w, r)
		return
	}
	if after {
		g.store.ServeHTTP(httptest.NewRecorder(), r)
	}
	<-armed
	g.strike()
	panic(http.ErrAbortHandler)
}

// run runs isobar until it dies at a change under a prefix, or to its end if at is 0. It
// returns how many changes it has asked for.
func (g *guarded) run(t *testing.T, prefix string, at int, after bool, strike func(*process), args ...string) (*process, int) {
	t.Helper()
	g.mu.Lock()
	g.changes, g.prefix, g.at, g.after, g.armed = 0, prefix, at, after, make(chan struct{})
	g.mu.Unlock()
	temp := t.TempDir()
	p := isobar.start(t, append(args, "-c", "checkpoint.s3.endpoint="+g.URL), "TMPDIR="+temp)
	g.strike = func() { strike(p) }
	close(g.armed)
	p.wait()
	left, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range left { // one has a name as long as it is empty
		if info, err := os.Stat(path); err != nil || info.Size() > 0 {
			t.Errorf("temporary file %s is left: %v", path, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prefix = ""
	return p, g.changes
}

// right runs isobar to its end.
func (g *guarded) right(t *testing.T, args ...string) string {
	t.Helper()
	p := isobar.run(t, 0, append(args, "-c", "checkpoint.s3.endpoint="+g.URL))
	return p.stdout.String()
}

// look opens the store below a prefix.
func (g *guarded) look(t *testing.T, prefix string) *s3store.Store {
	t.Helper()
	p, err := s3store.NewPlace(s3store.Options{Bucket: "bucket", Prefix: prefix, Endpoint: g.URL, PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	return p.Look("victim")
}

// clone copies all that is below a prefix to another one.
func (g *guarded) clone(t *testing.T, from, to string) {
	t.Helper()
	source, target := g.look(t, from), g.look(t, to)
	for o, err := range source.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := source.Open(t.Context(), o.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close(), target.Put(t.Context(), o.Name, strings.NewReader(string(data)), int64(len(data)), checkpoint.CRC(data))); err != nil {
			t.Fatal(err)
		}
	}
	head, _, err := source.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.SwapHead(t.Context(), "", head); err != nil {
		t.Fatal(err)
	}
}

// whole verifies all that the head below a prefix keeps. It returns false if there is
// no head.
func (g *guarded) whole(t *testing.T, prefix string) bool {
	t.Helper()
	if _, _, err := g.look(t, prefix).ReadHead(t.Context()); errors.Is(err, checkpoint.ErrNotFound) {
		return false
	}
	g.right(t, "checkpoint", "verify", "s3://bucket/"+prefix, "--all")
	return true
}

// deaths kills the process of a command at its first changes, at the one in the middle,
// and at the last ones, before and after each.
func (g *guarded) deaths(t *testing.T, changes int, try func(t *testing.T, prefix string, at int, after bool)) {
	if changes < 4 {
		t.Fatalf("there are only %d changes", changes)
	}
	for _, at := range []int{1, 2, changes / 2, changes - 1, changes} {
		for _, after := range []bool{false, true} {
			prefix := fmt.Sprintf("%s-%d-%t", t.Name(), at, after)
			t.Run(fmt.Sprint(at, after), func(t *testing.T) { try(t, prefix, at, after) })
		}
	}
}

func killed(p *process) {
	_ = p.cmd.Process.Kill() // it lives: it waits for an answer
	<-p.ended
}

// originals runs the victim with its checkpoints below the prefix "origin".
func (g *guarded) originals(t *testing.T) {
	t.Helper()
	p := newPlace(t, "victim")
	p.conf = []string{"-c", "checkpoint.store=s3://bucket/origin", "-c", "checkpoint.s3.endpoint=" + g.URL}
	args := p.victimArgs(narrowCorpus(t))
	args[slices.Index(args, "checkpoint.retained=2")] = "checkpoint.retained=6"
	victim.run(t, 0, args)
}

func TestIsobarIsKilledWhileItCopies(t *testing.T) {
	g := newGuarded(t)
	g.originals(t)
	copying := func(prefix string) []string {
		return []string{"checkpoint", "copy", "s3://bucket/origin", "s3://bucket/" + prefix}
	}
	_, changes := g.run(t, "whole", 0, false, nil, copying("whole")...)
	g.deaths(t, changes, func(t *testing.T, prefix string, at int, after bool) {
		if p, _ := g.run(t, prefix, at, after, killed, copying(prefix)...); p.wait() != -1 {
			t.Fatalf("it was not killed: %v\n%s", p.cmd.ProcessState, &p.stderr)
		}
		if g.whole(t, prefix) != (at == changes && after) {
			t.Error("a head names what is not complete, or is missing")
		}
		g.right(t, copying(prefix)...)
		if !g.whole(t, prefix) {
			t.Error("there is no head")
		}
	})
	g.whole(t, "origin")
}

func TestIsobarIsKilledWhileItPrunes(t *testing.T) {
	g := newGuarded(t)
	g.originals(t)
	pruning := func(prefix string) []string {
		return []string{"checkpoint", "prune", "s3://bucket/" + prefix, "--keep", "1"}
	}
	g.clone(t, "origin", "whole")
	_, changes := g.run(t, "whole", 0, false, nil, pruning("whole")...)
	g.deaths(t, changes, func(t *testing.T, prefix string, at int, after bool) {
		g.clone(t, "origin", prefix)
		if p, _ := g.run(t, prefix, at, after, killed, pruning(prefix)...); p.wait() != -1 {
			t.Fatalf("it was not killed: %v\n%s", p.cmd.ProcessState, &p.stderr)
		}
		if !g.whole(t, prefix) {
			t.Error("there is no head")
		}
		g.right(t, pruning(prefix)...)
		if !g.whole(t, prefix) || strings.Count(g.right(t, "checkpoint", "list", "s3://bucket/"+prefix), "\n") != 3 {
			t.Error("more or less than one checkpoint is left")
		}
	})
}

// One interrupt ends a copy whose requests are not answered.
func TestIsobarIsInterruptedWhileItCopies(t *testing.T) {
	g := newGuarded(t)
	g.originals(t)
	args := []string{"checkpoint", "copy", "s3://bucket/origin", "s3://bucket/interrupted"}
	p, _ := g.run(t, "interrupted", 2, false, func(p *process) {
		p.interrupt(t)
		<-p.ended
	}, args...)
	if code := p.wait(); code != 1 || !strings.Contains(p.stderr.String(), "isobar: interrupted: copy topology") {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
	g.right(t, args...)
	if !g.whole(t, "interrupted") {
		t.Error("there is no head")
	}
}
