package schedule

import (
	"cmp"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// need is memory in megabytes and CPU, of which 100 is one core.
type need struct{ memory, cpu int }

func (n need) plus(other need) need  { return need{n.memory + other.memory, n.cpu + other.cpu} }
func (n need) minus(other need) need { return need{n.memory - other.memory, n.cpu - other.cpu} }
func (n need) holds(other need) bool { return n.memory >= other.memory && n.cpu >= other.cpu }

// Resource packs tasks by what they need into as few workers as hold them.
func Resource(v View) Plan {
	b := newBoard(v)
	b.keep()
	free := map[string]need{}
	for _, s := range b.supervisors {
		free[s.ID] = need{s.MemoryMB, s.CPU}
	}
	for _, j := range b.jobs {
		needs := j.needs()
		for _, p := range j.kept {
			free[p.Supervisor] = free[p.Supervisor].minus(sum(needs, p.Tasks))
		}
	}
	for _, j := range b.jobs {
		workers := j.kept
		if !j.fixed() {
			p := packing{board: b, job: j, needs: j.needs(), free: maps.Clone(free), workers: slices.Clone(j.kept)}
			if p.all() {
				workers, free = p.workers, p.free
			}
		}
		b.choose(j, workers)
	}
	return b.plan()
}

// needs returns what each task needs.
func (j *job) needs() map[int]need {
	needs := map[int]need{}
	for _, c := range j.Record.Version.Components {
		n := need{cmp.Or(c.MemoryMB, j.settings.taskMemory), cmp.Or(c.CPU, j.settings.taskCPU)}
		for i := range c.Tasks {
			needs[c.FirstTask+i] = n
		}
	}
	return needs
}

func sum(needs map[int]need, tasks []int) need {
	var all need
	for _, t := range tasks {
		all = all.plus(needs[t])
	}
	return all
}

// packing is the attempt to place all tasks of a topology that have no place.
type packing struct {
	*board
	*job
	needs   map[int]need
	free    map[string]need // by supervisor
	workers []cluster.WorkerPlace
	last    string // supervisor of the last task
}

// all reports whether all tasks were placed. A task that was not is named in a condition.
func (p *packing) all() bool {
	todo := p.todo(p.kept)
	for _, task := range neighbours(p.Record.Version.Components) {
		if _, open := slices.BinarySearch(todo, task); !open || p.place(task) {
			continue
		}
		n := p.needs[task]
		if n.memory > p.settings.heapSize {
			p.says("task %d of %s needs %d MB, a worker may have %d (%s)",
				task, p.component(task), n.memory, p.settings.heapSize, KeyWorkerMemory)
		} else {
			p.says("%s not fit: task %d of %s needs %d MB and %d%% of a core, which no supervisor has free with a slot%s",
				count(len(todo), "task does", "tasks do"), task, p.component(task), n.memory, n.cpu, p.settings.where())
		}
		return false
	}
	for i := range p.workers {
		slices.Sort(p.workers[i].Tasks)
	}
	return true
}

func (p *packing) component(task int) string {
	for _, c := range p.Record.Version.Components {
		if task >= c.FirstTask && task < c.FirstTask+c.Tasks {
			return c.ID
		}
	}
	return ""
}

// place puts a task into a worker that has room for it, or into a new one.
func (p *packing) place(task int) bool {
	n := p.needs[task]
	for _, s := range p.nodes() {
		if !p.free[s.ID].holds(n) {
			continue
		}
		w := p.room(s, n)
		if w == nil {
			continue
		}
		w.Tasks = append(slices.Clone(w.Tasks), task)
		p.free[s.ID] = p.free[s.ID].minus(n)
		p.last = s.ID
		return true
	}
	return false
}

// nodes returns the usable supervisors, the best first: the last one, those where the
// topology has workers, then those that have the largest share of what is scarcest. Those
// that it had better leave come last.
func (p *packing) nodes() []*Supervisor {
	var nodes []*Supervisor
	var total need
	for _, s := range p.supervisors {
		if s.usable() && p.allows(p.job, s) {
			nodes = append(nodes, s)
			total = total.plus(need{s.MemoryMB, s.CPU})
		}
	}
	rank := func(s *Supervisor) int {
		switch {
		case p.avoided[s.machine()]:
			return 3
		case s.ID == p.last:
			return 0
		case slices.ContainsFunc(p.workers, func(w cluster.WorkerPlace) bool { return w.Supervisor == s.ID }):
			return 1
		}
		return 2
	}
	const shares = 1 << 20
	share := func(s *Supervisor) int {
		f := p.free[s.ID]
		return min(f.memory*shares/max(1, total.memory), f.cpu*shares/max(1, total.cpu))
	}
	slices.SortStableFunc(nodes, func(x, y *Supervisor) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(share(y), share(x)))
	})
	return nodes
}

// room returns the first worker on a supervisor with room for a task, or a new one, or nil.
func (p *packing) room(s *Supervisor, n need) *cluster.WorkerPlace {
	taken := map[int]bool{}
	for i := range p.workers {
		w := &p.workers[i]
		if w.Supervisor != s.ID {
			continue
		}
		taken[w.Port] = true
		if sum(p.needs, w.Tasks).memory+n.memory <= p.settings.heapSize {
			return w
		}
	}
	ports := slices.DeleteFunc(p.freePorts(s), func(port int) bool { return taken[port] })
	if len(ports) == 0 || n.memory > p.settings.heapSize {
		return nil
	}
	port := ports[0]
	for _, other := range ports {
		if !p.died[cluster.Slot{Supervisor: s.ID, Port: other}] {
			port = other
			break
		}
	}
	p.workers = append(p.workers, cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: s.ID, Port: port}, Host: s.Host})
	return &p.workers[len(p.workers)-1]
}

// neighbours returns all tasks in the order in which they are packed: components breadth
// first from the spouts, one task of each in turn.
func neighbours(components []cluster.ComponentSpec) []int {
	components = slices.SortedFunc(slices.Values(components), func(x, y cluster.ComponentSpec) int { return cmp.Compare(x.FirstTask, y.FirstTask) })
	var order []cluster.ComponentSpec
	reached := map[string]bool{}
	add := func(wanted func(cluster.ComponentSpec) bool) {
		for _, c := range components {
			if !reached[c.ID] && wanted(c) {
				reached[c.ID] = true
				order = append(order, c)
			}
		}
	}
	add(func(c cluster.ComponentSpec) bool { return c.Spout })
	for read := 0; read < len(order); { // add appends to it
		from := order[read].ID
		read++
		add(func(c cluster.ComponentSpec) bool { return slices.Contains(c.Inputs, from) })
	}
	add(func(cluster.ComponentSpec) bool { return true })
	var tasks []int
	for i, more := 0, true; more; i++ {
		more = false
		for _, c := range order {
			if i < c.Tasks {
				tasks = append(tasks, c.FirstTask+i)
				more = true
			}
		}
	}
	return tasks
}
