package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// That topologies are submitted all the time gives nobody a fresh lease: the dead are left.
func TestSubmissionsKeepNobodyAlive(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		m := other(t, machines, d.Assignment)
		m.crash()
		for i := range 12 {
			w.must(w.call("ann", cluster.VerbSubmit, w.program(fmt.Sprintf("t%d", i), "v1"), nil))
			pass(10 * time.Second)
		}
		if now := w.detail("wc").Assignment; slices.ContainsFunc(now.Workers, func(p cluster.WorkerPlace) bool { return p.Supervisor == m.id }) {
			t.Errorf("after two minutes it is still on %s: %+v", m.id, now)
		}
	})
}

// A leader that begins gives no work to a machine that died long ago, of which it has only
// read, and not all of it to the one that it hears of first.
func TestNewLeaderGivesTheDeadNoWork(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		first := w.addNimbus("n1")
		w.leads()
		machines[0].crash()
		pass(10 * time.Minute)
		first.end()
		w.addNimbus("n2")
		w.leads()
		start := time.Now()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		if took := time.Since(start); took > 25*time.Second {
			t.Errorf("it runs after %v", took)
		}
		on := map[string]bool{}
		for _, p := range d.Assignment.Workers {
			on[p.Supervisor] = true
		}
		if len(on) != 2 || on[machines[0].id] || d.Assignment.Master == machines[2].id {
			t.Errorf("%+v", d.Assignment)
		}
	})
}

// Case: a worker was given up while it was not known who could take its place, and all that it
// had went to the other one, where it stayed.
func TestNothingIsTakenAwayBeforeItCanBeGiven(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1", "nimbus.task.timeout.secs=5")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		a := w.runs("wc").Assignment
		w.server.Stop()
		pass(5 * time.Second)
		for _, m := range machines {
			if !slices.Contains(w.hosts(a), m) {
				m.store.Cut()
			}
		}
		w.server.Start()
		w.set(w.workers, workerKey(a.ID, 1, a.Workers[1].ID()), false) // it is cut off from the topology master
		w.leads()
		w.until(time.Minute, "it is moved", func() bool {
			now := w.detail("wc").Assignment
			if len(now.Workers) != 2 {
				t.Fatalf("number %d has %d workers", now.Number, len(now.Workers))
			}
			return now.Number > 1
		})
	})
}

// Signs of life that are read while everything is read again, before the watch tells of them,
// are signs of life.
func TestWhatIsReadAgainIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memcluster.New().Connect("n")
		l := &leader{
			Nimbus: &Nimbus{Options: Options{Store: store}, limits: limits{supervisor: 15 * time.Second}},
			lease:  &lease{}, own: map[string]*bucket{}, stale: true,
		}
		var errs [6]error
		l.topologies, errs[0] = openRecords[cluster.Topology](t.Context(), store, cluster.BucketTopologies, freely)
		l.assignments, errs[1] = openRecords[cluster.Assignment](t.Context(), store, cluster.BucketAssignments, freely)
		l.secrets, errs[2] = openRecords[cluster.Secrets](t.Context(), store, cluster.BucketSecrets, freely)
		l.blobs, errs[3] = openRecords[cluster.BlobRecord](t.Context(), store, cluster.BucketBlobs, freely)
		l.supervisors, errs[4] = openRecords[cluster.Supervisor](t.Context(), store, cluster.BucketSupervisors, freely)
		own, err := openRecords[json.RawMessage](t.Context(), store, cluster.TopologyBucket("wc-1-1"), freely)
		if err := errors.Join(append(errs[:], err)...); err != nil {
			t.Fatal(err)
		}
		b := &bucket{records: own, stop: func() {}}
		l.own["wc-1-1"] = b
		l.heard.reset(time.Now())
		time.Sleep(time.Minute)
		put := func(b cluster.Bucket, key string, value any) {
			text, err := json.Marshal(value)
			if err == nil {
				_, err = b.Put(context.Background(), key, text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		put(l.supervisors.bucket, "s", cluster.Supervisor{ID: "s", Beat: 2})
		put(own.bucket, cluster.KeyStatus, cluster.RunStatus{Epoch: 1, Incarnation: 1})
		if err := l.reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.silentSupervisor("s", time.Now()) || l.heard.silence(masterOf("wc-1-1"), time.Now()) > 0 || time.Since(b.since) > 0 {
			t.Errorf("silent: the supervisor for %v, the topology master for %v, heard of for %v",
				l.heard.silence("s", time.Now()), l.heard.silence(masterOf("wc-1-1"), time.Now()), time.Since(b.since))
		}
		time.Sleep(time.Minute)
		if err := l.reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !l.silentSupervisor("s", time.Now()) || l.heard.silence(masterOf("wc-1-1"), time.Now()) < time.Minute {
			t.Error("what has not changed was taken for a sign of life")
		}
	})
}

// A topology that has not begun is still to begin where its submission says when it is spread
// otherwise, or replaced.
func TestWhatHasNotBegunBeginsWhereItWasTo(t *testing.T) {
	nowhere := func(from string) func(w *world) cluster.Submission {
		return func(w *world) cluster.Submission {
			s := w.program("wc", "v1")
			s.Config["topology.isolation.hosts"], s.Start = "nowhere", cluster.StartSpec{From: from, Map: map[string]string{"old": "count"}}
			w.must(w.call("ann", cluster.VerbSubmit, s, nil))
			pass(10 * time.Second)
			if d := w.detail("wc"); d.Assignment != nil {
				t.Fatalf("it is placed: %+v", d.Assignment)
			}
			return s
		}
	}
	rebalance := cluster.Rebalance{Name: "wc", WaitSecs: 0, Config: map[string]any{"topology.isolation.hosts": "a,b,c"}}
	for _, from := range []string{"", "latest"} {
		bubble(t, func(w *world, _ []*machine) {
			w.addNimbus("n1")
			w.leads()
			nowhere(from)(w)
			w.must(w.call("ann", cluster.VerbRebalance, rebalance, nil))
			v := w.runs("wc").Topology.Version
			if v.Start.From != from || v.Start.Map["old"] != "count" || v.Epoch != 2 {
				t.Errorf("submitted from %q, it begins from %+v in epoch %d", from, v.Start, v.Epoch)
			}
		})
	}
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		nowhere("")(w)
		s := w.update("v2", nil)
		if d := w.runs("wc").Topology; d.Status != cluster.Active || d.Version.Start.From != "" || d.Version.Binary != s.Binary || d.Before != nil {
			t.Errorf("replaced before it has begun: %+v", d)
		}
	})
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		nowhere("empty")(w)
		if err := w.call("ann", cluster.VerbRebalance, rebalance, nil); err == nil || !strings.Contains(err.Error(), "has not begun yet, which it is to do from empty") {
			t.Errorf("spread: %v", err)
		}
		if d := w.detail("wc").Topology; d.Version.Start.From != "empty" || d.Status != cluster.Active {
			t.Errorf("after that: %+v", d)
		}
	})
}

// What runs after the store has lost everything has its port until its name is submitted again.
func TestPortOfAnUnknownTopologyIsNotGivenAway(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("old", "v1"), nil))
		d := w.runs("old")
		w.server.Wipe()
		w.leads()
		pass(time.Minute)
		s := w.program("wc", "v1")
		s.Config["topology.workers"] = 4
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		for _, p := range w.runs("wc").Assignment.Workers {
			if slices.ContainsFunc(d.Assignment.Workers, func(o cluster.WorkerPlace) bool { return o.Slot == p.Slot }) {
				t.Errorf("%s is used by what nimbus does not know", p.ID())
			}
		}
		old := w.program("old", "v1")
		old.Start.From = "latest"
		w.must(w.call("ann", cluster.VerbSubmit, old, nil))
		w.runs("old")
	})
}

// An outage lasts longer for a topology master than for nimbus. Before that master would be
// taken for lost, no time limit of its update is held against it.
func TestTimeLimitWaitsForTheTopologyMaster(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		s := w.update("v2", func(s *cluster.Submission) {
			s.UpdateTimeoutSecs = 60
			w.set(w.mute, s.Binary.SHA256, true)
		})
		w.until(time.Minute, "the new version runs", func() bool {
			d := w.detail("wc")
			return d.Run.Epoch == 2 && d.Run.Phase == cluster.PhaseRunning
		})
		w.server.Stop()
		pass(5 * time.Minute)
		for _, m := range machines {
			m.store.Cut()
		}
		w.server.Start()
		w.leads()
		pass(28 * time.Second)
		w.set(w.mute, s.Binary.SHA256, false)
		for _, m := range machines {
			m.store.Heal()
		}
		w.until(3*time.Minute, "the update is over", func() bool { return w.status("wc") == cluster.Active })
		if now := w.runs("wc"); now.Topology.Version.Binary != s.Binary || now.Topology.Version.Epoch != 2 {
			t.Errorf("after the outage: %+v", now.Topology)
		}
	})
}
