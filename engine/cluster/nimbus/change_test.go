package nimbus

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// update submits another program under the name wc as an update.
func (w *world) update(content string, prepare func(s *cluster.Submission)) cluster.Submission {
	w.t.Helper()
	s := w.program("wc", content)
	s.Update = true
	if prepare != nil {
		prepare(&s)
	}
	w.must(w.call("ann", cluster.VerbSubmit, s, nil))
	return s
}

func TestUpdateReplacesWhatRuns(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		old := w.runs("wc")
		s := w.update("v2", nil)
		if got := w.status("wc"); got != cluster.Updating {
			t.Errorf("status %s", got)
		}
		now := w.runs("wc")
		if now.Topology.Status != cluster.Active || now.Topology.Version.Binary != s.Binary || now.Topology.Version.Epoch != 2 || now.Topology.ID != old.Topology.ID ||
			now.Topology.Version.Start.From != cluster.FromHead || now.Topology.Before != nil || now.Topology.Error != "" {
			t.Errorf("after the update: %+v", now.Topology)
		}
	})
}

func TestUpdateThatFailsGoesBack(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(w *world, sha string)
		why  string
	}{
		{"it fails", func(w *world, sha string) { w.broken[sha] = "cannot read the state" }, "the update was taken back: cannot read the state"},
		{"it commits nothing", func(w *world, sha string) { w.mute[sha] = true }, "the update was taken back: it committed nothing in 60 s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world, _ []*machine) {
				w.addNimbus("n1")
				w.leads()
				w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
				old := w.runs("wc")
				w.update("v2", func(s *cluster.Submission) {
					s.UpdateTimeoutSecs = 60
					c.fail(w, s.Binary.SHA256)
				})
				w.until(3*time.Minute, "it is taken back", func() bool { return w.status("wc") == cluster.Active })
				now := w.runs("wc")
				if now.Topology.Version.Binary != old.Topology.Version.Binary || now.Topology.Version.Epoch != 3 || !strings.HasPrefix(now.Topology.Error, c.why) {
					t.Errorf("after it was taken back: %+v", now.Topology)
				}
				at := now.Run.Regions[0].Last
				w.until(time.Minute, "the old version commits", func() bool { return w.detail("wc").Run.Regions[0].Last != at })
			})
		})
	}
}

// The new version is taken back, and commits while that is under way: going on with the old
// one would undo it.
func TestUpdateWhoseHeadHasMovedStays(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		old := w.runs("wc")
		s := w.update("v2", func(s *cluster.Submission) {
			s.UpdateTimeoutSecs = 60
			w.set(w.mute, s.Binary.SHA256, true)
		})
		w.until(time.Minute, "the new version runs", func() bool {
			d := w.detail("wc")
			return d.Run.Epoch == 2 && d.Run.Phase == cluster.PhaseRunning
		})
		w.set(w.late, old.Topology.ID, true)
		w.until(3*time.Minute, "the update stays", func() bool { return w.status("wc") == cluster.Active })
		now := w.runs("wc")
		if now.Topology.Version.Binary != s.Binary || now.Topology.Version.Epoch != 4 || now.Topology.Error != "" || len(now.Topology.Version.Start.Unmoved) > 0 {
			t.Errorf("after the head had moved: %+v", now.Topology)
		}
	})
}

func TestUpdateOfAnIdleTopologyIsConfirmed(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		s := w.update("v2", func(s *cluster.Submission) { w.set(w.idle, s.Binary.SHA256, true) })
		w.until(5*time.Minute, "it is confirmed", func() bool { return w.status("wc") == cluster.Active })
		if now := w.detail("wc").Topology; now.Version.Binary != s.Binary || now.Error != "" {
			t.Errorf("after the update: %+v", now)
		}
	})
}

// A leader ends while an update is tried: the next one finishes it.
func TestUpdateSurvivesItsLeader(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		first := w.addNimbus("n1")
		w.leads()
		w.addNimbus("n2")
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		old := w.runs("wc")
		w.update("v2", func(s *cluster.Submission) {
			s.UpdateTimeoutSecs = 60
			w.set(w.mute, s.Binary.SHA256, true)
		})
		w.until(time.Minute, "it is tried", func() bool { return w.detail("wc").Topology.Step == cluster.StepTry })
		first.end()
		w.leads()
		w.until(5*time.Minute, "it is taken back", func() bool { return w.status("wc") == cluster.Active })
		if now := w.detail("wc").Topology; now.Version.Binary != old.Topology.Version.Binary {
			t.Errorf("after the update: %+v", now)
		}
	})
}

func TestRebalanceSpreadsAnew(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		start := time.Now()
		w.must(w.call("ann", cluster.VerbRebalance, cluster.Rebalance{
			Name: "wc", WaitSecs: 20, Workers: 3, Tasks: map[string]int{"in": 1, "count": 5}, Config: map[string]any{"checkpoint.retained": 9},
		}, nil))
		w.until(15*time.Second, "spouts stop at once", func() bool { return !w.detail("wc").Run.Active })
		if err := w.call("ann", cluster.VerbActivate, cluster.Named{Name: "wc"}, nil); err == nil || !strings.Contains(err.Error(), "cannot activate topology wc, it is REBALANCING: wait until that is done") {
			t.Errorf("activated meanwhile: %v", err)
		}
		d := w.runs("wc")
		if time.Since(start) < 20*time.Second {
			t.Errorf("done after %v", time.Since(start))
		}
		v := d.Topology.Version
		var tasks []int
		for _, place := range d.Assignment.Workers {
			tasks = append(tasks, place.Tasks...)
		}
		slices.Sort(tasks)
		if d.Topology.Status != cluster.Active || v.Epoch != 2 || v.Workers != 3 || len(d.Assignment.Workers) != 3 || !slices.Equal(tasks, []int{1, 2, 3, 4, 5, 6}) ||
			v.Components[0].Tasks != 1 || v.Components[1].FirstTask != 2 || v.Components[1].Tasks != 5 ||
			v.Config["checkpoint.retained"] != 9.0 || v.Config["topology.workers"] != 3.0 {
			t.Errorf("after the rebalance: %+v\n%+v", d.Topology, d.Assignment)
		}
	})
}

func TestRebalanceOfAnInactiveTopologyLeavesItInactive(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		s.Inactive = true
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		if d := w.runs("wc"); d.Topology.Status != cluster.Inactive || d.Run.Active {
			t.Fatalf("submitted inactive: %+v", d)
		}
		w.must(w.call("ann", cluster.VerbRebalance, cluster.Rebalance{Name: "wc", WaitSecs: 0, Workers: 1}, nil))
		w.until(5*time.Minute, "it is done", func() bool { return w.status("wc") == cluster.Inactive })
		if d := w.detail("wc"); d.Run.Active || len(d.Assignment.Workers) != 1 {
			t.Errorf("after the rebalance: %+v", d)
		}
		w.must(w.call("ann", cluster.VerbActivate, cluster.Named{Name: "wc"}, nil))
		w.must(w.call("ann", cluster.VerbActivate, cluster.Named{Name: "wc"}, nil))
		w.until(5*time.Second, "spouts start at once", func() bool { return w.detail("wc").Run.Active })
	})
}

// A topology that finds no slot waits, says so, and runs as soon as there is one.
func TestTopologyWithoutSlotsWaits(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		for _, name := range []string{"one", "two", "three"} {
			w.must(w.call("ann", cluster.VerbSubmit, w.program(name, "v1"), nil))
			w.runs(name)
		}
		w.must(w.call("ann", cluster.VerbSubmit, w.program("four", "v1"), nil))
		pass(time.Minute)
		var h cluster.Health
		w.must(w.call("ann", cluster.VerbHealth, nil, &h))
		d := w.detail("four")
		if d.Assignment != nil || len(d.Conditions) != 1 || h.Slots != 6 || h.UsedSlots != 6 || len(h.Problems) != 1 || !strings.Contains(h.Problems[0], d.Conditions[0]) {
			t.Errorf("four: %+v; health %+v", d, h)
		}
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "two", WaitSecs: 0}, nil))
		w.runs("four")
		if d := w.detail("one"); d.Assignment.Number != 1 {
			t.Errorf("one was moved: %+v", d.Assignment)
		}
		w.addMachine("d", 4)
		pass(time.Minute)
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "four", WaitSecs: 0}, nil))
		w.until(time.Minute, "four is gone", func() bool { return w.status("four") == "gone" })
		var list []cluster.Summary
		w.must(w.call("ann", cluster.VerbList, nil, &list))
		names := map[string]int{}
		for _, s := range list {
			names[s.Name] = s.Workers
		}
		if !maps.Equal(names, map[string]int{"one": 2, "three": 2}) {
			t.Errorf("list %v", names)
		}
	})
}

// The checkpoints are in a folder of the one machine there is. When there are others, the
// topology stays: on another it would begin from nothing.
func TestTopologyStaysWhereItsCheckpointsAre(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1", "checkpoint.store=file:///data")
		w.leads()
		for _, m := range machines[1:] {
			m.crash()
		}
		pass(2 * time.Minute)
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		if d.Topology.Machine != "a" {
			t.Errorf("bound to %q", d.Topology.Machine)
		}
		for _, m := range machines[1:] {
			m.startDaemon()
		}
		pass(time.Minute)
		err := w.call("ann", cluster.VerbSubmit, w.program("second", "v1"), nil)
		if err == nil || !strings.Contains(err.Error(), "checkpoint.store is file:///data, and the cluster has 3 machines") {
			t.Errorf("with three machines: %v", err)
		}
		machines[0].crash()
		pass(10 * time.Minute)
		if now := w.detail("wc"); now.Assignment.Master != "sup-a" || len(now.Conditions) == 0 {
			t.Errorf("moved to %+v, conditions %q", now.Assignment, now.Conditions)
		}
		machines[0].startDaemon()
		w.until(3*time.Minute, "it runs again", func() bool {
			d := w.detail("wc")
			return d.Run.Phase == cluster.PhaseRunning && d.RunAgeSecs < 5 && d.Assignment.Master == "sup-a"
		})
	})
}

// While an update is tried, the program to go back to is kept.
func TestProgramToGoBackToIsKept(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		old := w.runs("wc")
		w.update("v2", func(s *cluster.Submission) {
			s.UpdateTimeoutSecs = 3 * 3600
			w.set(w.mute, s.Binary.SHA256, true)
		})
		pass(2 * time.Hour)
		objects, err := w.server.Connect("root").Objects(w.ctx, cluster.ObjectsBinaries)
		w.must(err)
		if _, err := objects.Info(w.ctx, old.Topology.Version.Binary.SHA256); err != nil {
			t.Errorf("the old program: %v", err)
		}
		w.until(2*time.Hour, "it is taken back", func() bool { return w.status("wc") == cluster.Active })
		if now := w.runs("wc"); now.Topology.Version.Binary != old.Topology.Version.Binary {
			t.Errorf("after it was taken back: %+v", now.Topology)
		}
	})
}

// The new version commits while the store is away. When it is back, its time is long over,
// and all that is known of it is old.
func TestUpdateThatCommitsDuringAnOutageStays(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
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
		pass(10 * time.Minute)
		for _, m := range w.machines { // the store is back for nimbus before it is for them
			m.store.Cut()
		}
		w.server.Start()
		pass(30 * time.Second)
		w.set(w.mute, s.Binary.SHA256, false)
		for _, m := range w.machines {
			m.store.Heal()
		}
		w.until(3*time.Minute, "the update is over", func() bool { return w.status("wc") == cluster.Active })
		if now := w.runs("wc"); now.Topology.Version.Binary != s.Binary || now.Topology.Error != "" || now.Topology.Version.Epoch != 2 {
			t.Errorf("after the outage: %+v", now.Topology)
		}
	})
}

// A new version that dies at its start says nothing by itself: its processes tell.
func TestUpdateThatCrashesSaysHow(t *testing.T) {
	v := view{settled: true, now: time.Unix(100, 0), topology: cluster.Topology{
		Name: "wc", Status: cluster.Updating, Step: cluster.StepTry, UpdateSecs: 60, Before: &cluster.Version{}, Deadline: time.Unix(99, 0),
	}, ends: []string{"its master on sup-a was started 5 times and ended at last with exit status 2"}}
	for run, want := range map[*cluster.RunStatus]string{
		nil: "it committed nothing in 60 s, its topology master has not come up: its master on sup-a was started 5 times and ended at last with exit status 2; see isobar logs wc",
		{Phase: cluster.PhaseStarting, Regions: []cluster.RegionState{{Name: "count"}}}: "not running: count: its master on sup-a was started 5 times and ended at last with exit status 2; see isobar logs wc",
	} {
		v.run = run
		if got := decide(v).topology.Error; !strings.HasPrefix(got, "the update was taken back: it committed nothing") || !strings.HasSuffix(got, want) {
			t.Errorf("it is taken back with %q, want %q", got, want)
		}
	}
}

// Nimbus takes how processes have ended from the heartbeats.
func TestEndsAreOfTheVersionThatRuns(t *testing.T) {
	l := &leader{supervisors: &records[cluster.Supervisor]{kept: map[string]record[cluster.Supervisor]{"sup-a": {value: cluster.Supervisor{ID: "sup-a", Processes: []cluster.ProcessStatus{
		{ID: "wc-1-1", Role: cluster.RoleMaster, Epoch: 2, Restarts: 4, Exit: "exit status 2"},
		{ID: "wc-1-1", Role: cluster.RoleWorker, Epoch: 2, Exit: "no such program"},
		{ID: "wc-1-1", Role: cluster.RoleWorker, Epoch: 2}, {ID: "wc-1-1", Role: cluster.RoleWorker, Epoch: 1, Exit: "old"}, {ID: "wd-1-1", Role: cluster.RoleWorker, Epoch: 2, Exit: "of another"},
	}}}}}}
	var all []string
	for _, text := range l.ends(cluster.Topology{ID: "wc-1-1", Version: cluster.Version{Epoch: 2}}) {
		all = append(all, text)
	}
	if want := []string{"its master on sup-a was started 5 times and ended at last with exit status 2", "its worker on sup-a: no such program"}; !slices.Equal(all, want) {
		t.Errorf("ends %q, want %q", all, want)
	}
}
