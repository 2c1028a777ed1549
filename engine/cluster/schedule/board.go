package schedule

import (
	"cmp"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// board is the cluster with what is taken of it so far.
type board struct {
	supervisors []*Supervisor // by id
	byID        map[string]*Supervisor
	jobs        []*job // who chooses first comes first
	taken       map[cluster.Slot]bool
	// owners are the topologies that have a machine for themselves, by machine; isolated are
	// those that may run nowhere else.
	owners   map[string]*job
	isolated map[*job]bool
}

func newBoard(v View) *board {
	b := &board{
		byID:     map[string]*Supervisor{},
		taken:    map[cluster.Slot]bool{},
		owners:   map[string]*job{},
		isolated: map[*job]bool{},
	}
	for _, s := range v.Supervisors {
		s.Ports = slices.Compact(slices.Sorted(slices.Values(s.Ports)))
		b.byID[s.ID] = &s
	}
	b.supervisors = slices.SortedFunc(maps.Values(b.byID), func(x, y *Supervisor) int { return cmp.Compare(x.ID, y.ID) })
	for _, t := range v.Topologies {
		j := &job{Topology: t, settings: settingsOf(t.Record.Version.Config), tasks: tasksOf(t.Record.Version), died: map[cluster.Slot]bool{}, avoided: map[string]bool{}}
		for _, p := range t.Places {
			if s := b.byID[p.Supervisor]; s != nil && p.Dead && p.Avoid {
				j.avoided[s.machine()] = true
			}
		}
		if j.settings.err != nil {
			j.says("%v", j.settings.err)
		}
		b.jobs = append(b.jobs, j)
	}
	slices.SortFunc(b.jobs, func(x, y *job) int {
		return cmp.Or(x.Record.Launched.Compare(y.Record.Launched), cmp.Compare(x.Record.ID, y.Record.ID))
	})
	return b
}

// allows reports whether a topology may have processes on a supervisor, which need not be
// alive.
func (b *board) allows(j *job, s *Supervisor) bool {
	owner := b.owners[s.machine()]
	if owner != j && (owner != nil || b.isolated[j]) {
		return false
	}
	return j.settings.allows(s)
}

// mayStay reports whether what is alive on a supervisor may stay there. Of one that nobody
// knows nothing speaks against it.
func (b *board) mayStay(j *job, supervisor string) bool {
	s := b.byID[supervisor]
	return s == nil || j.fixed() || b.allows(j, s)
}

// keep finds out which workers keep their slots. Those that must stay as they are come
// first, so that nobody else has theirs.
func (b *board) keep() {
	for _, fixed := range []bool{true, false} {
		for _, j := range b.jobs {
			if j.fixed() == fixed {
				b.keepOf(j)
			}
		}
	}
}

func (b *board) keepOf(j *job) {
	placed := map[int]bool{}
	places := slices.SortedFunc(slices.Values(j.Places), func(x, y Place) int { return comparePlaces(x.WorkerPlace, y.WorkerPlace) })
	for _, p := range places {
		switch {
		case p.Dead && !j.fixed():
			j.died[p.Slot] = true
			continue
		case b.taken[p.Slot] || !b.mayStay(j, p.Supervisor):
			continue
		}
		var tasks []int
		for _, t := range slices.Sorted(slices.Values(p.Tasks)) {
			if _, known := slices.BinarySearch(j.tasks, t); known && !placed[t] {
				placed[t] = true
				tasks = append(tasks, t)
			}
		}
		if len(tasks) > 0 {
			p.Tasks = tasks
			b.taken[p.Slot] = true
			j.kept = append(j.kept, p.WorkerPlace)
		}
	}
}

// choose gives a topology its workers.
func (b *board) choose(j *job, workers []cluster.WorkerPlace) {
	for _, p := range j.kept {
		delete(b.taken, p.Slot)
	}
	for _, p := range workers {
		b.taken[p.Slot] = true
	}
	slices.SortFunc(workers, comparePlaces)
	j.result.Workers = workers
}

// plan returns what was chosen, with masters.
func (b *board) plan() Plan {
	b.placeMasters()
	plan := Plan{}
	for _, j := range b.jobs {
		if todo := j.todo(j.result.Workers); len(todo) > 0 {
			j.result.Unplaced = todo
		}
		if j.fixed() || unchanged(j.Places, j.result.Workers) {
			j.result.Workers = nil
			for _, p := range j.Places {
				j.result.Workers = append(j.result.Workers, p.WorkerPlace)
			}
		}
		plan[j.Record.ID] = j.result
	}
	return plan
}

// unchanged reports whether the places are those chosen, in whatever order.
func unchanged(places []Place, chosen []cluster.WorkerPlace) bool {
	if len(places) != len(chosen) {
		return false
	}
	for _, p := range places {
		i, found := slices.BinarySearchFunc(chosen, p.WorkerPlace, comparePlaces)
		if !found || !slices.Equal(slices.Sorted(slices.Values(p.Tasks)), chosen[i].Tasks) {
			return false
		}
	}
	return true
}
