package schedule

import (
	"reflect"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func place(supervisor string, port int, tasks ...int) Place {
	return Place{WorkerPlace: cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: supervisor, Port: port}, Host: "old", Tasks: tasks}}
}

// Nothing is written if nothing changes, so what was is returned as it was.
func TestUnchangedIsReturnedAsItWas(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		v := wanting(supervisors(3), 3)
		top := &v.Topologies[0]
		top.Places = []Place{place("s2", 1, 10, 7, 4, 1), place("s0", 2, 2, 5, 8), place("away", 1, 9, 6, 3)}
		top.Master, top.Frozen = "away", frozen
		want := Placement{Master: "away"}
		for _, p := range top.Places {
			want.Workers = append(want.Workers, p.WorkerPlace)
		}
		for name, s := range schedulers {
			if got := s.schedule(v)["t0"]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s, frozen %v: %+v", name, frozen, got)
			}
		}
	}
	// One that lacks a task is not as it was.
	v := wanting(supervisors(3), 2)
	v.Topologies[0].Places = []Place{place("s0", 1, 1, 3, 5, 7, 9), place("s1", 1, 2, 4, 6, 8)}
	if got := Even(v)["t0"]; len(got.Workers) != 2 || !reflect.DeepEqual(got.Workers[1].Tasks, []int{2, 4, 6, 8, 10}) {
		t.Errorf("task 10 has no place: %+v", got)
	}
}

// Whatever the places say, the plan is right.
func TestWrongPlaces(t *testing.T) {
	v := wanting(wanting(wanting(supervisors(3), 2), 2), 2)
	first, second, third := &v.Topologies[0], &v.Topologies[1], &v.Topologies[2]
	first.Places = []Place{place("s0", 1, 1, 2, 3, 4, 5, 99), place("s1", 1, 5, 6, 7, 8, 9, 10)}
	second.Places = []Place{place("s0", 1, 1, 3, 5, 7, 9), place("s2", 2, 2, 4, 6, 8, 10), place("s2", 1, 98, 97)}
	third.Places, third.Frozen = []Place{place("s1", 1, 1, 77)}, true
	want := map[string][]cluster.WorkerPlace{
		// 99 is no task of it, 5 is in s0/1 already, and s1/1 is another's that is frozen.
		"t0": {
			{Slot: cluster.Slot{Supervisor: "s0", Port: 1}, Host: "old", Tasks: []int{1, 2, 3, 4, 5}},
			{Slot: cluster.Slot{Supervisor: "s0", Port: 2}, Host: "h0", Tasks: []int{6, 7, 8, 9, 10}},
		},
		// s0/1 is another's, who came first.
		"t1": {
			{Slot: cluster.Slot{Supervisor: "s1", Port: 2}, Host: "h1", Tasks: []int{1, 3, 5, 7, 9}},
			{Slot: cluster.Slot{Supervisor: "s2", Port: 2}, Host: "old", Tasks: []int{2, 4, 6, 8, 10}},
		},
		"t2": {{Slot: cluster.Slot{Supervisor: "s1", Port: 1}, Host: "old", Tasks: []int{1, 77}}},
	}
	plan := Even(v)
	for id, workers := range want {
		if got := plan[id].Workers; !reflect.DeepEqual(got, workers) {
			t.Errorf("%s: %v, want %v", id, got, workers)
		}
	}
	if got := plan["t2"].Unplaced; len(got) != 9 {
		t.Errorf("t2 misses %v", got)
	}

	v = wanting(supervisors(3), 3)
	v.Topologies[0].Places = []Place{place("s0", 1, 1, 2, 3), place("s1", 1, 3, 4, 5, 6), place("s2", 1, 7, 8, 9, 10)}
	for _, w := range Even(v)["t0"].Workers {
		if w.Supervisor == "s1" && !reflect.DeepEqual(w.Tasks, []int{4, 5, 6}) {
			t.Errorf("task 3 is in two places: %v", w)
		}
	}
}

// What a topology has too much goes to others at once.
func TestSlotsThatAreGivenUp(t *testing.T) {
	v := wanting(wanting(supervisors(2), 2), 2)
	v.Topologies[0].Places = []Place{place("s0", 1, 1, 2), place("s0", 2, 3, 4), place("s1", 1, 5, 6)}
	plan := Even(v)
	if len(plan["t0"].Workers) != 2 || len(plan["t1"].Workers) != 2 {
		t.Errorf("the plan is %v", plan)
	}
}

// Who was there first chooses first, whatever the names.
func TestFirstComesFirst(t *testing.T) {
	v := wanting(wanting(supervisors(1), 2), 2)
	for i := range v.Topologies {
		v.Topologies[i].Record.Launched = time.Unix(int64(10-i), 0)
	}
	plan := Even(v)
	if len(plan["t0"].Workers) != 0 || len(plan["t1"].Workers) != 2 {
		t.Errorf("the one that came last has been given its slots: %v", plan)
	}
}
