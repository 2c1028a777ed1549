package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"pgregory.net/rapid"
)

func component(id string, first, tasks int, inputs ...string) cluster.ComponentSpec {
	return cluster.ComponentSpec{ID: id, FirstTask: first, Tasks: tasks, Inputs: inputs, Spout: len(inputs) == 0}
}

// schedulers are those that the properties are checked for.
var schedulers = map[string]struct {
	schedule Scheduler
	machines map[string]int
}{
	"even":      {schedule: must("even", nil)},
	"isolation": {schedule: must("isolation", isolated), machines: isolated},
	"resource":  {schedule: must("resource", nil)},
}

var isolated = map[string]int{"t0": 2, "t1": 1}

func must(name string, machines map[string]int) Scheduler {
	s, err := New(name, Options{Machines: machines})
	if err != nil {
		panic(err)
	}
	return s
}

// drawSupervisor makes one of up to 6 supervisors on up to 4 machines.
func drawSupervisor(t *rapid.T, i int) Supervisor {
	s := Supervisor{Alive: rapid.IntRange(0, 5).Draw(t, "alive") > 0}
	s.ID, s.Machine = fmt.Sprint("s", i), fmt.Sprint("m", i%4)
	s.Host = s.Machine
	for port := range rapid.IntRange(0, 4).Draw(t, "ports") {
		s.Ports = append(s.Ports, 6700+port)
	}
	s.MemoryMB = rapid.IntRange(0, 20).Draw(t, "memory") * 128
	s.CPU = rapid.IntRange(0, 40).Draw(t, "cpu") * 10
	if rapid.IntRange(0, 7).Draw(t, "excluded") == 0 {
		s.Excluded = "cordoned"
	}
	if rapid.IntRange(0, 9).Draw(t, "unhealthy") == 0 {
		s.Unhealthy = "disk full"
	}
	if rapid.Bool().Draw(t, "labelled") {
		s.Labels = map[string]string{"pool": "batch"}
	}
	return s
}

func drawTopology(t *rapid.T, i int) Topology {
	var top Topology
	top.Record.ID, top.Record.Name = fmt.Sprintf("t%d-1", i), fmt.Sprint("t", i)
	top.Record.Launched = time.Unix(int64(rapid.IntRange(0, 2).Draw(t, "launched")), 0)
	top.Record.Version.Workers = rapid.IntRange(0, 6).Draw(t, "workers")
	first := 1
	for c := range rapid.IntRange(1, 3).Draw(t, "components") {
		spec := component(fmt.Sprint("c", c), first, rapid.IntRange(1, 4).Draw(t, "tasks"))
		if c > 0 {
			spec.Spout, spec.Inputs = false, []string{fmt.Sprint("c", c-1)}
		}
		spec.MemoryMB = rapid.IntRange(0, 4).Draw(t, "memory") * 64
		first += spec.Tasks
		top.Record.Version.Components = append(top.Record.Version.Components, spec)
	}
	switch rapid.IntRange(0, 5).Draw(t, "hosts") {
	case 0:
		top.Record.Version.Config = map[string]any{KeyHosts: "m0, m1", KeyWorkerMemory: 1024.0}
	case 1:
		top.Record.Version.Config = map[string]any{KeyHosts: []any{"pool=batch"}}
	}
	return top
}

func drawView(t *rapid.T) View {
	var v View
	for i := range rapid.IntRange(0, 6).Draw(t, "supervisors") {
		v.Supervisors = append(v.Supervisors, drawSupervisor(t, i))
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "topologies") {
		v.Topologies = append(v.Topologies, drawTopology(t, i))
	}
	return v
}

// carryOut returns the view after a plan was carried out.
func carryOut(v View, plan Plan) View {
	v.Topologies = slices.Clone(v.Topologies)
	for i := range v.Topologies {
		top := &v.Topologies[i]
		if top.Frozen {
			continue
		}
		p := plan[top.Record.ID]
		top.Master, top.MasterDead, top.Places = p.Master, false, nil
		for _, w := range p.Workers {
			top.Places = append(top.Places, Place{WorkerPlace: w})
		}
	}
	return v
}

// drawTrouble lets supervisors come, go and change, and workers and masters die.
func drawTrouble(t *rapid.T, v View) View {
	v.Supervisors = slices.Clone(v.Supervisors)
	v.Topologies = slices.Clone(v.Topologies)
	for i := range v.Supervisors {
		if rapid.IntRange(0, 3).Draw(t, "changes") == 0 {
			v.Supervisors[i] = drawSupervisor(t, i)
		}
	}
	if n := len(v.Supervisors); n > 0 && rapid.IntRange(0, 3).Draw(t, "forgotten") == 0 {
		v.Supervisors = v.Supervisors[:n-1]
	}
	for i := range v.Topologies {
		top := &v.Topologies[i]
		top.Frozen = rapid.IntRange(0, 5).Draw(t, "frozen") == 0
		top.MasterDead = rapid.IntRange(0, 3).Draw(t, "master dead") == 0
		top.Places = slices.Clone(top.Places)
		for p := range top.Places {
			top.Places[p].Dead = rapid.IntRange(0, 3).Draw(t, "dead") == 0
		}
	}
	return v
}

func TestProperties(t *testing.T) {
	for name, s := range schedulers {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				v := drawView(t)
				for range rapid.IntRange(1, 5).Draw(t, "rounds") {
					plan := s.schedule(v)
					checkPlan(t, v, plan)
					checkStays(t, v, plan, s.machines)
					if s.machines != nil {
						checkAlone(t, v, plan, s.machines)
					}
					if name == "resource" {
						checkNeeds(t, v, plan)
					} else {
						checkEven(t, v, plan)
					}
					if other := s.schedule(shuffle(t, v)); !equal(plan, other) {
						t.Fatalf("in another order the plan is\n%v\nnot\n%v", other, plan)
					}
					v = carryOut(v, plan)
					if again := s.schedule(v); !equal(silent(plan), silent(again)) {
						t.Fatalf("nothing has changed, and the plan is\n%v\nnot\n%v", again, plan)
					}
					v = drawTrouble(t, v)
				}
			})
		})
	}
}

// equal ignores the order of workers that are as before.
func equal(a, b Plan) bool {
	sorted := func(p Plan) Plan {
		p = maps.Clone(p)
		for id, placement := range p {
			placement.Workers = slices.SortedFunc(slices.Values(placement.Workers), comparePlaces)
			p[id] = placement
		}
		return p
	}
	return reflect.DeepEqual(sorted(a), sorted(b))
}

// silent leaves conditions out: who chose first did not see what others have taken since.
func silent(p Plan) Plan {
	p = maps.Clone(p)
	for id, placement := range p {
		placement.Conditions = nil
		p[id] = placement
	}
	return p
}

func shuffle(t *rapid.T, v View) View {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	v.Supervisors, v.Topologies = slices.Clone(v.Supervisors), slices.Clone(v.Topologies)
	r.Shuffle(len(v.Supervisors), func(i, j int) { v.Supervisors[i], v.Supervisors[j] = v.Supervisors[j], v.Supervisors[i] })
	r.Shuffle(len(v.Topologies), func(i, j int) { v.Topologies[i], v.Topologies[j] = v.Topologies[j], v.Topologies[i] })
	for i := range v.Topologies {
		top := &v.Topologies[i]
		top.Places = slices.Clone(top.Places)
		r.Shuffle(len(top.Places), func(i, j int) { top.Places[i], top.Places[j] = top.Places[j], top.Places[i] })
		components := slices.Clone(top.Record.Version.Components)
		r.Shuffle(len(components), func(i, j int) { components[i], components[j] = components[j], components[i] })
		top.Record.Version.Components = components
	}
	return v
}

func find(v View, id string) *Supervisor {
	i := slices.IndexFunc(v.Supervisors, func(s Supervisor) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &v.Supervisors[i]
}

// checkPlan: each task once or unplaced with a condition, no slot twice, nothing new
// where it may not be.
func checkPlan(t *rapid.T, v View, plan Plan) {
	slots := map[cluster.Slot]string{}
	for _, top := range v.Topologies {
		p, ok := plan[top.Record.ID]
		if !ok {
			t.Fatalf("%s is not in the plan", top.Record.ID)
		}
		old := map[cluster.Slot]bool{}
		for _, place := range top.Places {
			old[place.Slot] = top.Frozen || !place.Dead
		}
		tasks := slices.Clone(p.Unplaced)
		for _, w := range p.Workers {
			if other, twice := slots[w.Slot]; twice {
				t.Fatalf("%s is given to %s and %s", w.ID(), other, top.Record.ID)
			}
			slots[w.Slot] = top.Record.ID
			tasks = append(tasks, w.Tasks...)
			if len(w.Tasks) == 0 {
				t.Fatalf("worker %s has no task", w.ID())
			}
			settings := settingsOf(top.Record.Version.Config)
			s := find(v, w.Supervisor)
			if !old[w.Slot] && (s == nil || !s.usable() || !slices.Contains(s.Ports, w.Port) || s.Host != w.Host || !settings.allows(s)) {
				t.Fatalf("%s is placed on %s, %+v", top.Record.ID, w.ID(), s)
			}
		}
		if slices.Sort(tasks); !slices.Equal(tasks, tasksOf(top.Record.Version)) {
			t.Fatalf("%s has the tasks %v", top.Record.ID, tasks)
		}
		if len(p.Unplaced) > 0 && len(p.Conditions) == 0 && !top.Frozen {
			t.Fatalf("%s misses %v without a word", top.Record.ID, p.Unplaced)
		}
		checkMaster(t, v, top, p)
	}
}

func checkMaster(t *rapid.T, v View, top Topology, p Placement) {
	if p.Master == "" {
		if len(p.Workers) > 0 && len(p.Conditions) == 0 && !top.Frozen {
			t.Fatalf("%s has workers and no master, without a word", top.Record.ID)
		}
		return
	}
	s := find(v, p.Master)
	if p.Master != top.Master && (s == nil || !s.usable()) {
		t.Fatalf("the master of %s comes to %s", top.Record.ID, p.Master)
	}
}

// checkStays: what is alive keeps its slot unless it must leave.
func checkStays(t *rapid.T, v View, plan Plan, machines map[string]int) {
	for _, top := range v.Topologies {
		p := plan[top.Record.ID]
		settings := settingsOf(top.Record.Version.Config)
		mayStay := func(supervisor string) bool {
			s := find(v, supervisor)
			return s == nil || settings.allows(s) && machines == nil || top.Frozen
		}
		if top.Frozen && !slices.EqualFunc(top.Places, p.Workers, func(a Place, b cluster.WorkerPlace) bool {
			return reflect.DeepEqual(a.WorkerPlace, b)
		}) {
			t.Fatalf("%s is frozen and changes from %v to %v", top.Record.ID, top.Places, p.Workers)
		}
		alive := slices.DeleteFunc(slices.Clone(top.Places), func(p Place) bool { return p.Dead })
		for _, place := range alive {
			stays := slices.ContainsFunc(p.Workers, func(w cluster.WorkerPlace) bool { return w.Slot == place.Slot })
			if !stays && mayStay(place.Supervisor) {
				t.Fatalf("%s loses %s; it has %v", top.Record.ID, place.ID(), p.Workers)
			}
		}
		if top.Master != "" && (top.Frozen || !top.MasterDead) && mayStay(top.Master) && p.Master != top.Master {
			t.Fatalf("the master of %s moves from %s to %s", top.Record.ID, top.Master, p.Master)
		}
	}
}

// checkEven: who has changed has as many workers as can be, with as many tasks as each other.
func checkEven(t *rapid.T, v View, plan Plan) {
	for _, top := range v.Topologies {
		p := plan[top.Record.ID]
		wanted := min(max(1, top.Record.Version.Workers), len(tasksOf(top.Record.Version)))
		if short := len(p.Workers) < wanted; short != strings.Contains(strings.Join(p.Conditions, ""), " free") && !top.Frozen {
			t.Fatalf("%s has %d of %d workers: %q", top.Record.ID, len(p.Workers), wanted, p.Conditions)
		}
		if len(p.Workers) > 0 && len(p.Unplaced) > 0 && !top.Frozen {
			t.Fatalf("%s has workers, and %v are in none", top.Record.ID, p.Unplaced)
		}
		if top.Frozen || unchanged(top.Places, slices.SortedFunc(slices.Values(p.Workers), comparePlaces)) {
			continue
		}
		fewest, most := 1<<30, 0
		for _, w := range p.Workers {
			fewest, most = min(fewest, len(w.Tasks)), max(most, len(w.Tasks))
		}
		if len(p.Workers) > wanted || len(p.Workers) > 0 && most > fewest+1 {
			t.Fatalf("%s wants %d workers and has %v", top.Record.ID, wanted, p.Workers)
		}
	}
}

// checkAlone: a topology with machines of its own is on no more of them, and alone there.
func checkAlone(t *rapid.T, v View, plan Plan, machines map[string]int) {
	on := map[string]map[string]bool{} // topologies by machine
	for _, top := range v.Topologies {
		if top.Frozen {
			continue
		}
		p := plan[top.Record.ID]
		own := map[string]bool{}
		for _, w := range append([]cluster.WorkerPlace{{Slot: cluster.Slot{Supervisor: p.Master}}}, p.Workers...) {
			s := find(v, w.Supervisor)
			if s == nil {
				continue
			}
			own[s.machine()] = true
			if on[s.machine()] == nil {
				on[s.machine()] = map[string]bool{}
			}
			on[s.machine()][top.Record.Name] = true
		}
		if n := machines[top.Record.Name]; n > 0 && len(own) > n {
			t.Fatalf("%s is on %d machines: %v", top.Record.Name, len(own), p)
		}
	}
	for m, names := range on {
		for name := range names {
			if machines[name] > 0 && len(names) > 1 {
				t.Fatalf("%s shares machine %s: %v", name, m, names)
			}
		}
	}
}

// checkNeeds: nothing new goes where there is no room for it.
func checkNeeds(t *rapid.T, v View, plan Plan) {
	used := map[string]need{}
	fresh := map[string]bool{} // supervisors that were given something
	for _, top := range v.Topologies {
		settings := settingsOf(top.Record.Version.Config)
		j := job{Topology: top, settings: settings}
		needs := j.needs()
		for _, w := range plan[top.Record.ID].Workers {
			n := sum(needs, w.Tasks)
			used[w.Supervisor] = used[w.Supervisor].plus(n)
			as := slices.IndexFunc(top.Places, func(p Place) bool { return !p.Dead && reflect.DeepEqual(p.WorkerPlace, w) })
			if as >= 0 || top.Frozen {
				continue
			}
			fresh[w.Supervisor] = true
			if n.memory > settings.heapSize {
				t.Fatalf("worker %s of %s has tasks of %d MB", w.ID(), top.Record.ID, n.memory)
			}
		}
	}
	for id := range fresh {
		s := find(v, id)
		if has := (need{s.MemoryMB, s.CPU}); !has.holds(used[id]) {
			t.Fatalf("%s has %v and is given %v", id, has, used[id])
		}
	}
}
