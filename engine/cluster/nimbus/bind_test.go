package nimbus

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// kills ends a topology, and waits until its name is free.
func (w *world) kills(name string) {
	w.t.Helper()
	w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: name, WaitSecs: 0}, nil))
	w.until(5*time.Minute, name+" is gone", func() bool { return w.status(name) == "gone" })
}

// A name whose checkpoints are in a folder of one machine runs there again, and nowhere
// else without being told to begin anew, whoever is alive when it comes back.
func TestNameGoesBackToItsCheckpoints(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1", "checkpoint.store=file:///data")
		w.leads()
		a, b := machines[0], machines[1]
		b.crash()
		machines[2].crash()
		pass(2 * time.Minute)
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		w.kills("wc")
		a.crash()
		b.startDaemon()
		pass(2 * time.Minute)

		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		pass(10 * time.Minute)
		if d := w.detail("wc"); d.Assignment != nil || d.Topology.Machine != "a" || len(d.Conditions) == 0 {
			t.Errorf("without its checkpoints it is %+v", d)
		}
		a.startDaemon()
		if d := w.runs("wc"); d.Assignment.Master != "sup-a" || d.Topology.Machine != "a" {
			t.Errorf("it runs on %+v, bound to %q", d.Assignment, d.Topology.Machine)
		}
		w.kills("wc")
		a.crash()
		pass(2 * time.Minute)

		anew := w.program("wc", "v1")
		anew.Start.From = startEmpty
		w.must(w.call("ann", cluster.VerbSubmit, anew, nil))
		if d := w.runs("wc"); d.Assignment.Master != "sup-b" {
			t.Errorf("begun anew it runs on %+v", d.Assignment)
		}
		w.kills("wc")
		b.crash()
		a.startDaemon()
		pass(2 * time.Minute)
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		pass(10 * time.Minute)
		if d := w.detail("wc"); d.Assignment != nil || d.Topology.Machine != "b" {
			t.Errorf("its checkpoints are on b, and it is %+v", d)
		}
	})
}

func TestForgetSupervisor(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		pass(time.Minute)
		forget := func(id string) error { return w.call("ann", cluster.VerbForget, cluster.Named{Name: id}, nil) }
		if err := forget("sup-a"); err == nil || !strings.Contains(err.Error(), `supervisor "sup-a" was heard of`) {
			t.Errorf("one that is alive: %v", err)
		}
		if err := forget("sup-aa"); err == nil || !strings.Contains(err.Error(), "did you mean sup-a?") {
			t.Errorf("one that is not there: %v", err)
		}
		machines[0].crash()
		pass(2 * time.Minute)
		if h := w.health(); h.Supervisors != 2 || len(h.Problems) != 1 {
			t.Errorf("before: %+v", h)
		}
		w.must(forget("sup-a"))
		if h := w.health(); h.Supervisors != 2 || len(h.Problems) != 0 {
			t.Errorf("after: %+v", h)
		}
		machines[0].startDaemon()
		pass(time.Minute)
		if h := w.health(); h.Supervisors != 3 || len(h.Problems) != 0 {
			t.Errorf("when it is back: %+v", h)
		}
	})
}

func (w *world) health() (h cluster.Health) {
	w.t.Helper()
	w.must(w.call("ann", cluster.VerbHealth, nil, &h))
	return h
}
