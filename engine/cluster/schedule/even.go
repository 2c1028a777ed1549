package schedule

import (
	"cmp"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// spread gives a topology slots and deals its tasks over them.
func (b *board) spread(j *job) {
	if j.fixed() {
		b.choose(j, j.kept)
		return
	}
	free := b.freeSlots(j)
	wanted := max(1, j.Record.Version.Workers)
	useful := min(wanted, len(j.tasks))
	total := min(useful, len(j.kept)+len(free))
	if total < useful {
		j.says("wants %s, %s free%s", count(wanted, "worker", "workers"), count(total, "slot is", "slots are"), j.settings.where())
	}
	if total <= len(j.kept) && len(j.todo(j.kept)) == 0 {
		b.choose(j, j.kept)
		return
	}
	even, odd := balanced(j.kept, len(j.tasks), total)
	for i := range odd {
		odd[i].Tasks = nil
	}
	dealt := append(odd, free...)[:total-len(even)]
	if len(dealt) > 0 {
		for i, t := range j.todo(even) {
			to := &dealt[i%len(dealt)]
			to.Tasks = append(to.Tasks, t)
		}
	}
	b.choose(j, append(even, dealt...))
}

// balanced parts workers into those with as many tasks as one has when all tasks are
// divided evenly among so many workers, and the others. Of 5 tasks for 2 workers one has
// 3 and one has 2.
func balanced(places []cluster.WorkerPlace, tasks, workers int) (even, odd []cluster.WorkerPlace) {
	if workers == 0 {
		return nil, slices.Clone(places)
	}
	left := map[int]int{} // workers, by number of tasks
	left[tasks/workers+1] = tasks % workers
	left[tasks/workers] = workers - tasks%workers
	for _, p := range places {
		if left[len(p.Tasks)] > 0 {
			left[len(p.Tasks)]--
			even = append(even, p)
		} else {
			odd = append(odd, p)
		}
	}
	return even, odd
}

// freeSlots returns the slots that a topology may have, the best first: nodes with the
// most free slots first, one of each in turn. Those where it has just died come after them,
// and those on machines that it had better leave are last.
func (b *board) freeSlots(j *job) []cluster.WorkerPlace {
	var nodes [][]cluster.WorkerPlace
	for _, s := range b.supervisors {
		if !s.usable() || !b.allows(j, s) {
			continue
		}
		var free []cluster.WorkerPlace
		for _, port := range b.freePorts(s) {
			free = append(free, cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: s.ID, Port: port}, Host: s.Host})
		}
		nodes = append(nodes, free)
	}
	slices.SortStableFunc(nodes, func(x, y []cluster.WorkerPlace) int { return cmp.Compare(len(y), len(x)) })
	var ranks [4][]cluster.WorkerPlace
	for i := 0; len(nodes) > 0 && i < len(nodes[0]); i++ {
		for _, node := range nodes {
			if i >= len(node) {
				continue
			}
			rank := 0
			if j.died[node[i].Slot] {
				rank++
			}
			if j.avoided[b.byID[node[i].Supervisor].machine()] {
				rank += 2
			}
			ranks[rank] = append(ranks[rank], node[i])
		}
	}
	return slices.Concat(ranks[:]...)
}

// freePorts returns the ports of a supervisor that nobody has, in order.
func (b *board) freePorts(s *Supervisor) []int {
	return slices.DeleteFunc(slices.Clone(s.Ports), func(port int) bool {
		return b.taken[cluster.Slot{Supervisor: s.ID, Port: port}]
	})
}
