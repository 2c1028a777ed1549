package nimbus

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestLeavers(t *testing.T) {
	all := map[string]uint64{"a": 1, "b": 1, "c": 1, "d": 1}
	for _, c := range []struct {
		name    string
		pairs   string
		started map[string]uint64
		number  uint64
		want    string
	}{
		{name: "nobody", want: ""},
		{name: "one of two", pairs: "ab", number: 2, want: "a"},
		{name: "the other one the next time", pairs: "ab", number: 3, want: "b"},
		{name: "not who has been moved", pairs: "ab", started: map[string]uint64{"a": 2, "b": 1}, number: 2, want: "b"},
		{name: "whatever its name", pairs: "bc", started: map[string]uint64{"b": 1, "c": 2}, number: 3, want: "b"},
		{name: "who is in most", pairs: "ab bc bd", number: 2, want: "b"},
		{name: "also if it has been moved", pairs: "ab bc bd", started: map[string]uint64{"a": 1, "b": 9, "c": 1, "d": 1}, number: 2, want: "b"},
		{name: "two machines with two each, by turns", pairs: "ac ad bc bd", number: 2, want: "a b"},
		{name: "and the others the next time", pairs: "ac ad bc bd", number: 3, want: "d c"},
		{name: "two cuts", pairs: "ab cd", number: 2, want: "a c"},
		{name: "one that cannot go", pairs: "ab", started: map[string]uint64{"b": 7}, number: 2, want: "b"},
		{name: "though it is in most", pairs: "ab ac", started: map[string]uint64{"b": 1, "c": 1}, number: 2, want: "b c"},
		{name: "nobody can go", pairs: "ab", started: map[string]uint64{"c": 1}, want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pairs [][2]string
			for _, p := range strings.Fields(c.pairs) {
				pairs = append(pairs, [2]string{p[:1], p[1:]})
			}
			started := all
			if c.started != nil {
				started = c.started
			}
			if got := strings.Join(leavers(pairs, started, c.number), " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Who of three workers is lost because two of them, a on port 1 and b on port 2, do not reach
// each other: a table of what else there is.
func TestUnlinkedWorkersAreLost(t *testing.T) {
	for _, c := range []struct {
		name      string
		secs      int
		reporting int // since the topology master was first heard of; 0: 500
		number    uint64
		quiet     string // a supervisor that is silent
		apart     string // a worker that is not connected, and is lost
		gone      bool   // the pair is of an older assignment
		want      string
	}{
		{name: "for less", secs: 30},
		{name: "for long", secs: 31, want: "b/2 leaves"},
		{name: "the other one, by turns", secs: 31, number: 1, want: "a/1 leaves"},
		{name: "a new master", secs: 31, reporting: 15},
		{name: "it could not be ended", secs: 31, quiet: "b", want: "a/1 leaves"},
		{name: "one is lost anyway", secs: 31, apart: "a/1", want: "a/1 leaves"},
		{name: "a third is lost as well", secs: 31, apart: "c/3", want: "b/2 leaves, c/3 leaves"},
		{name: "one has gone", secs: 31, gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := standing{
				assignment: cluster.Assignment{ID: "words-1-1", Master: "m", Number: 7 + c.number},
				run:        &cluster.RunStatus{}, silence: time.Second, reporting: 500 * time.Second,
				apart: map[string]time.Duration{c.apart: time.Minute},
			}
			if c.reporting > 0 {
				s.reporting = time.Duration(c.reporting) * time.Second
			}
			ports := map[string]int{"a": 1, "b": 2, "c": 3}
			for _, id := range []string{"a", "b", "c"} {
				w := cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: id, Port: ports[id]}}
				s.assignment.Workers = append(s.assignment.Workers, w)
				if w.ID() != c.apart {
					s.run.Workers = append(s.run.Workers, w.ID())
				}
			}
			s.supervisor = func(id string) (cluster.Supervisor, time.Duration) {
				p := cluster.ProcessStatus{ID: "words-1-1", Role: cluster.RoleWorker, Port: ports[id], Running: true, Number: 7}
				quiet := time.Second
				if id == c.quiet {
					quiet = time.Hour
				}
				return cluster.Supervisor{ID: id, Ports: []int{ports[id]}, Processes: []cluster.ProcessStatus{p}}, quiet
			}
			pair := [2]string{"a/1", "b/2"}
			if c.gone {
				pair[1] = "b/9"
			}
			s.unlinked = map[[2]string]time.Duration{pair: time.Duration(c.secs) * time.Second}
			var got []string
			lost := s.workersLost(limits{supervisor: 15 * time.Second, task: 30 * time.Second, launch: 2 * time.Minute})
			for _, w := range s.assignment.Workers {
				if leaves, is := lost[w.Slot]; is {
					got = append(got, w.ID()+map[bool]string{true: " leaves", false: ""}[leaves])
				}
			}
			if text := strings.Join(got, ", "); text != c.want || len(got) != len(lost) {
				t.Errorf("lost are %q (%v), want %q", text, lost, c.want)
			}
		})
	}
}

// What is held against workers begins anew with each assignment.
func TestSpellsEndWithTheAssignment(t *testing.T) {
	pair := [2]string{"a/1", "b/2"}
	b := &bucket{run: &cluster.RunStatus{Workers: []string{"a/1", "b/2"}, Unlinked: [][2]string{pair}}}
	start := time.Now()
	long := func(number uint64, secs int) int {
		at := start.Add(time.Duration(secs) * time.Second)
		a := cluster.Assignment{Number: number, Workers: []cluster.WorkerPlace{{Slot: cluster.Slot{Supervisor: "c", Port: 3}}}}
		b.note(a, at)
		if x, y := b.unlinked.lengths(at)[pair], b.apart.lengths(at)["c/3"]; x != y {
			t.Errorf("unlinked for %v, apart for %v", x, y)
		}
		return int(b.unlinked.lengths(at)[pair] / time.Second)
	}
	for _, c := range []struct {
		number     uint64
		secs, want int
	}{{1, 0, 0}, {1, 20, 20}, {1, 25, 25}, {2, 30, 0}, {2, 40, 10}, {3, 41, 0}} {
		if got := long(c.number, c.secs); got != c.want {
			t.Errorf("assignment %d after %d s: for %d s, want %d", c.number, c.secs, got, c.want)
		}
	}
}

// hosts returns the machines of a topology's workers, in the order of the assignment.
func (w *world) hosts(a *cluster.Assignment) (on []*machine) {
	for _, place := range a.Workers {
		for _, m := range w.machines {
			if m.id == place.Supervisor {
				on = append(on, m)
			}
		}
	}
	return on
}

// rests lets ten minutes pass, in which nothing is to be moved.
func (w *world) rests(a *cluster.Assignment) {
	w.t.Helper()
	started := w.starts()
	time.Sleep(10 * time.Minute)
	if now := w.detail("wc"); now.Assignment.Number != a.Number || w.starts() != started || now.Run.Phase != cluster.PhaseRunning {
		w.t.Errorf("number %d, was %d; %d processes started; it is %s", now.Assignment.Number, a.Number, w.starts()-started, now.Run.Phase)
	}
}

// One of two workers that do not reach each other is moved, to where it reaches the other.
func TestWorkersThatDoNotReachEachOtherPart(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		before := w.runs("wc").Assignment
		on := w.hosts(before)
		w.cut(on[0], on[1], true)
		pass(15 * time.Second)
		var h cluster.Health
		w.must(w.call("ann", cluster.VerbHealth, nil, &h))
		if want := "topology wc: workers sup-a/1 and sup-b/1 do not reach each other"; !slices.Equal(h.Problems, []string{want}) {
			t.Errorf("problems %q, want %q", h.Problems, want)
		}
		took := 15*time.Second + w.until(time.Minute, "one is moved", func() bool { return w.detail("wc").Assignment.Number > 1 })
		if took < 30*time.Second || took > 45*time.Second {
			t.Errorf("moved after %v, want nimbus.task.timeout.secs and a look", took)
		}
		after := w.runs("wc").Assignment
		stay := slices.DeleteFunc(w.hosts(after), func(m *machine) bool { return !slices.Contains(on, m) })
		if len(stay) != 1 || after.Master != before.Master || after.Version.Epoch != 1 {
			t.Errorf("it is now %+v, was %+v", after, before)
		}
		w.rests(after)
	})
}

// With no third machine both come together on one of the two.
func TestWorkersThatDoNotReachEachOtherComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a, b := w.addMachine("a", 3), w.addMachine("b", 3)
		ports := func(n ...int) {
			for _, m := range w.machines {
				m.mu.Lock()
				m.ports = n
				m.mu.Unlock()
			}
		}
		ports(2, 3)
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		if on := w.hosts(w.runs("wc").Assignment); on[0] == on[1] {
			t.Fatalf("both are on %s", on[0].id)
		}
		ports(1, 2, 3) // the machine that is to be left has the best slot
		w.cut(a, b, true)
		w.until(time.Minute, "one is moved", func() bool { return w.detail("wc").Assignment.Number > 1 })
		after := w.runs("wc").Assignment
		if on := w.hosts(after); len(on) != 2 || on[0] != on[1] || after.Number != 2 {
			t.Errorf("it is now %+v", after)
		}
		w.rests(after)
	})
}

// If it was the other one's machine that is cut off from all, that one is moved the next time.
func TestTheOtherWorkerIsMovedNext(t *testing.T) {
	for i := range 2 {
		bubble(t, func(w *world, _ []*machine) {
			w.addMachine("d", 2)
			w.addNimbus("n1")
			w.leads()
			w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
			before := w.runs("wc").Assignment
			alone := w.hosts(before)[i]
			for _, m := range w.machines {
				if m != alone {
					w.cut(alone, m, true)
				}
			}
			w.until(2*time.Minute, "it runs again", func() bool {
				d := w.detail("wc")
				return d.Assignment.Number > 1 && d.Run.Phase == cluster.PhaseRunning
			})
			after := w.detail("wc").Assignment
			if slices.Contains(w.hosts(after), alone) || after.Number > 3 {
				t.Errorf("%s is cut off: %+v", alone.id, after)
			}
			w.rests(after)
		})
	}
}

// Nothing is moved for a cut that is over in time, however often, nor for what was told before
// an outage of the store.
func TestWorkersThatReachEachOtherAgainStay(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		before := w.runs("wc").Assignment
		on := w.hosts(before)
		stuck := func(is bool) { w.set(w.stuck, before.Version.Binary.SHA256, is) }
		stuck(true)   // it has not come up by the time when the cut is healed
		for range 5 { // at different times between two looks
			w.cut(on[0], on[1], true)
			pass(24 * time.Second)
			w.cut(on[0], on[1], false)
			pass(4 * time.Second)
		}
		w.cut(on[0], on[1], true)
		pass(20 * time.Second)
		w.server.Stop()
		pass(5 * time.Second)
		w.server.Start()
		pass(25 * time.Second)
		w.cut(on[0], on[1], false)
		stuck(false)
		w.rests(before)
	})
}
