package nimbus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
	"github.com/isobar-io/isobar/engine/config"
)

// daemon is a nimbus that runs.
type daemon struct {
	store *memcluster.Store
	end   func() // ends it in order, and waits
}

func (w *world) addNimbus(id string, set ...string) *daemon {
	store := w.server.Connect("nimbus")
	return &daemon{store: store, end: w.runNimbus(id, store, nil, set...)}
}

func (w *world) runNimbus(id string, store cluster.Store, minter Minter, set ...string) (end func()) {
	w.t.Helper()
	base, err := daemonconf.Table.ParseAssignments([]string{"nimbus.admins=root", "checkpoint.store=s3://bucket/ck"})
	w.must(err)
	flags, err := daemonconf.Table.ParseAssignments(set)
	w.must(err)
	n, err := New(Options{
		ID: id, Store: store, Conf: config.Merge(base, flags), Version: "1.2.3", Minter: minter,
		Log: slog.New(slog.NewTextHandler(testLog{w.t}, nil)).With("nimbus", id),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var done sync.WaitGroup
	w.running.Add(1)
	done.Go(func() { defer w.running.Done(); n.Run(ctx) })
	return func() { cancel(); done.Wait() }
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// call sends a request as a user.
func (w *world) call(user, verb string, body, reply any) error {
	w.t.Helper()
	store := w.server.Connect(user)
	defer store.Close()
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	return request(ctx, store, verb, body, reply)
}

func request(ctx context.Context, store cluster.Store, verb string, body, reply any) error {
	inner, err := json.Marshal(body)
	if err != nil {
		return err
	}
	text, err := json.Marshal(cluster.Call{Verb: verb, Body: inner})
	if err != nil {
		return err
	}
	answer, err := store.Request(ctx, cluster.ServiceNimbus, text)
	if err != nil || reply == nil {
		return err
	}
	return json.Unmarshal(answer, reply)
}

// program uploads a topology program and returns a submission of it that is right.
func (w *world) program(name, content string) cluster.Submission {
	w.t.Helper()
	sum := sha256.Sum256([]byte(content))
	s := cluster.Submission{
		Name: name, Binary: cluster.Binary{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))},
		Platform: "linux/amd64", Engine: "1.2.3", Config: map[string]any{"topology.workers": 2},
		Components: []cluster.ComponentSpec{
			{ID: "in", Spout: true, FirstTask: 1, Tasks: 2},
			{ID: "count", FirstTask: 3, Tasks: 2, Inputs: []string{"in"}},
		},
	}
	store := w.server.Connect("root")
	defer store.Close()
	objects, err := store.Objects(context.Background(), cluster.ObjectsBinaries)
	if err == nil {
		_, err = objects.Put(context.Background(), s.Binary.SHA256, io.Reader(strings.NewReader(content)), s.Binary.SHA256, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// must fails the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// detail returns how a topology is.
func (w *world) detail(name string) (d cluster.Detail) {
	w.t.Helper()
	w.must(w.call("root", cluster.VerbStatus, cluster.Named{Name: name}, &d))
	return d
}

// until lets time pass until a condition holds, and returns how long that took.
func (w *world) until(limit time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > limit {
			w.t.Fatalf("not after %v: %s", limit, what)
		}
		pass(500 * time.Millisecond)
	}
	return time.Since(start)
}

// leads waits for a leader that answers.
func (w *world) leads() {
	w.t.Helper()
	w.until(time.Minute, "a nimbus leads", func() bool { return w.call("root", cluster.VerbHealth, nil, nil) == nil })
}

// runs waits until a topology runs and has committed.
func (w *world) runs(name string) cluster.Detail {
	w.t.Helper()
	var d cluster.Detail
	w.until(3*time.Minute, name+" runs", func() bool {
		d = cluster.Detail{} // what is left out in the reply must not stay
		if w.call("root", cluster.VerbStatus, cluster.Named{Name: name}, &d) != nil {
			return false
		}
		return d.Run != nil && d.Run.Epoch == d.Topology.Version.Epoch && d.Run.Phase == cluster.PhaseRunning && d.Topology.Step == ""
	})
	return d
}

func (w *world) status(name string) cluster.Status {
	var d cluster.Detail
	if w.call("root", cluster.VerbStatus, cluster.Named{Name: name}, &d) != nil {
		return "gone"
	}
	return d.Topology.Status
}
