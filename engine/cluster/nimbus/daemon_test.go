package nimbus

import (
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// bubble runs a test in a world of three machines with two slots each.
func bubble(t *testing.T, test func(w *world, machines []*machine)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		var machines []*machine
		for _, name := range []string{"a", "b", "c"} {
			machines = append(machines, w.addMachine(name, 2))
		}
		test(w, machines)
	})
}

// pass lets time pass; all is at rest then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSubmittedTopologyRunsAndIsKilled(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		var checked cluster.Checked
		w.must(w.call("ann", cluster.VerbCheck, s, &checked))
		if len(checked.Problems) > 0 || !checked.HasBinary {
			t.Fatalf("checked: %+v", checked)
		}
		var submitted cluster.Submitted
		w.must(w.call("ann", cluster.VerbSubmit, s, &submitted))
		if name, ok := cluster.NameOfID(submitted.ID); name != "wc" || !ok {
			t.Errorf("id %q", submitted.ID)
		}
		d := w.runs("wc")
		if d.Topology.Owner != "ann" || d.Topology.Status != cluster.Active || len(d.Assignment.Workers) != 2 || d.Assignment.Number != 1 || len(d.Processes) != 3 {
			t.Errorf("detail %+v", d)
		}
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 10}, nil))
		if err := w.call("ann", cluster.VerbSubmit, s, nil); err == nil || !strings.Contains(err.Error(), "it was killed, and its name is free as soon as") {
			t.Errorf("the name of a killed topology: %v", err)
		}
		w.until(9*time.Second, "spouts stop at once", func() bool { return !w.detail("wc").Run.Active })
		took := w.until(time.Minute, "wc is gone", func() bool { return w.status("wc") == "gone" })
		if took < 5*time.Second {
			t.Errorf("gone %v after, before its time", took)
		}
		w.mu.Lock()
		before := w.heads["wc"].last
		w.mu.Unlock()
		w.must(w.call("bob", cluster.VerbSubmit, s, &submitted))
		again := w.runs("wc")
		if again.Topology.ID == d.Topology.ID || again.Topology.Owner != "bob" || before == "" {
			t.Errorf("submitted again: %+v, left at %q", again.Topology, before)
		}
	})
}

func TestOneOfManySubmissionsOfANameWins(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.addNimbus("n2")
		w.leads()
		s := w.program("wc", "v1")
		var all sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			store := w.server.Connect("ann")
			all.Go(func() {
				defer store.Close()
				errs[i] = request(w.ctx, store, cluster.VerbSubmit, s, nil)
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !strings.Contains(err.Error(), "topology wc is there already, it is ACTIVE: kill it first, or replace it with update"):
				t.Errorf("refused with %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d submissions were accepted", won)
		}
		var list []cluster.Summary
		w.must(w.call("ann", cluster.VerbList, nil, &list))
		if len(list) != 1 {
			t.Errorf("list %+v", list)
		}
	})
}

// starts returns how many processes were ever started.
func (w *world) starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.started)
}

// Case: a new leader judged workers that were alive by times in their records, and moved
// them; topologies that are idle say nothing new.
func TestNewLeadersMoveNothing(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		first := w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		w.set(w.idle, s.Binary.SHA256, true)
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		w.runs("wc")
		started := w.starts()
		var others []*daemon
		for _, id := range []string{"n2", "n3", "n4"} {
			others = append(others, w.addNimbus(id))
		}
		time.Sleep(15 * time.Minute)
		leaders := map[string]bool{}
		for i, die := range []func(){first.end, nil, nil} {
			var h cluster.Health
			w.must(w.call("root", cluster.VerbHealth, nil, &h))
			leaders[h.Leader] = true
			if die == nil { // the way to the store is cut, and nobody gives the lease up
				for j, id := range []string{"n2", "n3", "n4"} {
					if h.Leader == id {
						others[j].store.Cut()
					}
				}
			} else {
				die()
			}
			took := w.until(time.Minute, "another leads", func() bool {
				var now cluster.Health
				return w.call("root", cluster.VerbHealth, nil, &now) == nil && now.Leader != h.Leader
			})
			if i > 0 && took < 10*time.Second {
				t.Errorf("another leads %v after, while the lease may still be held", took)
			}
			if i == 0 && took > 6*time.Second {
				t.Errorf("another leads %v after a leader has ended in order", took)
			}
			time.Sleep(5 * time.Minute)
		}
		d := w.detail("wc")
		if d.Assignment.Number != 1 || w.starts() != started || len(leaders) != 3 {
			t.Errorf("number %d, %d processes started, led by %v", d.Assignment.Number, w.starts()-started, leaders)
		}
	})
}

func TestOutageOfTheStoreJudgesNobody(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.addNimbus("n2")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		started := w.starts()
		w.server.Stop()
		time.Sleep(10 * time.Minute)
		w.server.Start()
		w.leads()
		time.Sleep(10 * time.Minute)
		if d := w.detail("wc"); d.Assignment.Number != 1 || w.starts() != started {
			t.Errorf("number %d, %d processes started", d.Assignment.Number, w.starts()-started)
		}
		for range 3 { // and a short one that no lease ends in
			w.server.Stop()
			time.Sleep(8 * time.Second)
			w.server.Start()
			time.Sleep(time.Minute)
		}
		if d := w.detail("wc"); d.Assignment.Number != 1 || w.starts() != started {
			t.Errorf("after short ones: number %d, %d processes started", d.Assignment.Number, w.starts()-started)
		}
	})
}

// other returns the machine of a worker that does not run the topology master.
func other(t *testing.T, machines []*machine, a *cluster.Assignment) *machine {
	t.Helper()
	for _, m := range machines {
		for _, place := range a.Workers {
			if place.Supervisor == m.id && a.Master != m.id {
				return m
			}
		}
	}
	t.Fatalf("all workers are where the topology master is: %+v", a)
	return nil
}

func TestDeadSupervisorWithConnectedWorkersMovesNothing(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		m := other(t, machines, d.Assignment)
		m.daemon()
		time.Sleep(5 * time.Minute)
		if now := w.detail("wc"); now.Assignment.Number != 1 || len(now.Conditions) == 0 || !strings.Contains(now.Conditions[0], "supervisor "+m.id+", which has its worker process, has been silent for") {
			t.Errorf("number %d, conditions %q", now.Assignment.Number, now.Conditions)
		}
		m.crash() // now the worker is dead as well
		took := w.until(time.Minute, "the worker is moved", func() bool { return w.detail("wc").Assignment.Number > 1 })
		now := w.runs("wc")
		for _, place := range now.Assignment.Workers {
			if place.Supervisor == m.id {
				t.Errorf("still on %s: %+v", m.id, now.Assignment)
			}
		}
		if now.Assignment.Version.Epoch != 1 || now.Assignment.Master != d.Assignment.Master {
			t.Errorf("more than the worker was moved, after %v: %+v", took, now.Assignment)
		}
	})
}

func TestDeadMachinesAreLeft(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		var m *machine
		for _, one := range machines {
			if one.id == d.Assignment.Master {
				m = one
			}
		}
		m.crash()
		took := w.until(3*time.Minute, "the topology master is moved", func() bool { return w.detail("wc").Assignment.Master != m.id })
		if took < 25*time.Second || took > 45*time.Second {
			t.Errorf("moved after %v, want nimbus.task.timeout.secs", took)
		}
		w.until(3*time.Minute, "the workers too", func() bool {
			now := w.detail("wc")
			for _, place := range now.Assignment.Workers {
				if place.Supervisor == m.id {
					return false
				}
			}
			return len(now.Run.Workers) == 2 && now.Run.Phase == cluster.PhaseRunning
		})
	})
}

// A process that hangs on a machine that is well is moved; one on a machine that is cut off
// only when the machine is.
func TestSickMachineIsLeft(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		for _, m := range machines {
			if m.id == d.Assignment.Master {
				m.mu.Lock()
				for key, end := range m.processes {
					if strings.HasPrefix(key, "master") {
						end() // it hangs: its supervisor has not noticed
					}
				}
				m.mu.Unlock()
			}
		}
		took := w.until(time.Minute, "the topology master is moved", func() bool { return w.detail("wc").Assignment.Master != d.Assignment.Master })
		if took < 25*time.Second || took > 45*time.Second {
			t.Errorf("moved after %v, want nimbus.task.timeout.secs", took)
		}
	})
}

// A leader that keeps its lease through an outage judges nobody by it either, also not those
// for whom it lasts a little longer.
func TestOutageWithinALeaseJudgesNobody(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1", "nimbus.lease.secs=1200")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		started := w.starts()
		w.server.Stop()
		time.Sleep(5 * time.Minute)
		for _, m := range machines {
			if m.id == d.Assignment.Master {
				m.store.Cut()
			}
		}
		w.server.Start()
		time.Sleep(20 * time.Second)
		for _, m := range machines {
			m.store.Heal()
		}
		time.Sleep(10 * time.Minute)
		if d := w.detail("wc"); d.Assignment.Number != 1 || w.starts() != started {
			t.Errorf("number %d, %d processes started", d.Assignment.Number, w.starts()-started)
		}
	})
}

// A topology master that was moved has the time to fetch its program before it is moved again.
func TestMovedMasterHasTheTimeToStart(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		w.mu.Lock()
		w.launch = 90 * time.Second
		w.mu.Unlock()
		for _, m := range machines {
			if m.id == d.Assignment.Master {
				m.crash()
			}
		}
		w.until(2*time.Minute, "it is moved", func() bool { return w.detail("wc").Assignment.Master != d.Assignment.Master })
		moved := w.detail("wc").Assignment
		w.until(3*time.Minute, "it runs", func() bool {
			d := w.detail("wc")
			return d.RunAgeSecs < 5 && d.Run.Phase == cluster.PhaseRunning
		})
		if now := w.detail("wc").Assignment; now.Master != moved.Master {
			t.Errorf("moved again, from %s to %s", moved.Master, now.Master)
		}
	})
}

// What is as it should be is not written again.
func TestNothingChangesNothingIsWritten(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		store := w.server.Connect("root")
		revisions := func() map[string]uint64 {
			all := map[string]uint64{}
			for _, name := range []string{cluster.BucketTopologies, cluster.BucketAssignments, cluster.BucketSecrets, cluster.TopologyBucket(d.Topology.ID)} {
				b, err := store.Bucket(w.ctx, name, false)
				w.must(err)
				entries, err := b.List(w.ctx)
				w.must(err)
				for _, e := range entries {
					if e.Key != cluster.KeyStatus {
						all[name+"/"+e.Key] = e.Revision
					}
				}
			}
			return all
		}
		before := revisions()
		time.Sleep(10 * time.Minute)
		w.must(w.call("ann", cluster.VerbActivate, cluster.Named{Name: "wc"}, nil))
		if after := revisions(); !maps.Equal(before, after) || len(before) != 6 {
			t.Errorf("revisions %v, then %v", before, after)
		}
	})
}

// The name of a killed topology is free when its processes have ended and none is about to
// be started, not before.
func TestKillWaitsForTheProcesses(t *testing.T) {
	t.Run("that run", func(t *testing.T) { testKillWaits(t, (*machine).hang) })
	t.Run("that come", func(t *testing.T) { testKillWaits(t, (*machine).hangStarting) })
}

func testKillWaits(t *testing.T, hang func(*machine)) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		m := other(t, machines, d.Assignment)
		hang(m)
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 0}, nil))
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 300}, nil)) // it has begun
		w.until(20*time.Second, "its processes are to end", func() bool { return w.detail("wc").Assignment.Stop })
		time.Sleep(2 * time.Minute)
		if got := w.status("wc"); got != cluster.Killed {
			t.Errorf("it is %s while a process of it runs or will", got)
		}
		m.wake()
		w.until(20*time.Second, "it is gone", func() bool { return w.status("wc") == "gone" })
	})
}

func TestShortWaitsAreShort(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1", "nimbus.monitor.freq.secs=60")
		w.leads()
		s := w.program("wc", "v1")
		w.set(w.idle, s.Binary.SHA256, true)
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		w.runs("wc")
		time.Sleep(61 * time.Second)
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 3}, nil))
		start := time.Now()
		time.Sleep(9 * time.Second) // no request: each is followed by a look
		if got := w.status("wc"); got != "gone" {
			t.Errorf("it is %s %v after it was killed", got, time.Since(start))
		}
		second := w.program("wc", "v2")
		w.must(w.call("ann", cluster.VerbSubmit, second, nil))
		w.runs("wc")
		time.Sleep(61 * time.Second)
		w.mu.Lock()
		w.broken[second.Binary.SHA256] = "boom"
		w.mu.Unlock()
		time.Sleep(9 * time.Second)
		var list []cluster.Summary
		w.must(w.call("ann", cluster.VerbList, nil, &list))
		if len(list) != 1 || list[0].Status != cluster.Failed || list[0].Error != "boom" {
			t.Errorf("list %+v", list)
		}
	})
}

// A topology on its way out gets no new processes.
func TestKilledTopologyIsNotPlacedAnew(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 600}, nil))
		other(t, machines, d.Assignment).crash()
		time.Sleep(5 * time.Minute)
		if now := w.detail("wc"); now.Assignment.Number != 1 || now.Topology.Status != cluster.Killed {
			t.Errorf("number %d, it is %s", now.Assignment.Number, now.Topology.Status)
		}
	})
}
