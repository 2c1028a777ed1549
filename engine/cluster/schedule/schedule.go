package schedule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/engine/cluster"
)

// View is the cluster as a scheduler sees it. It is not altered.
type View struct {
	Supervisors []Supervisor // all that are known
	Topologies  []Topology   // all that have or want a place
}

// Supervisor is a supervisor and whether it may be given work.
type Supervisor struct {
	cluster.Supervisor
	// Alive: its heartbeat is fresh.
	Alive bool
	// Excluded is why it is to be given no more work, besides that it is Unhealthy; or "".
	Excluded string
}

func (s *Supervisor) usable() bool { return s.Alive && s.Unhealthy == "" && s.Excluded == "" }

// machine is what it shares with other supervisors on the same machine.
func (s *Supervisor) machine() string { return cmp.Or(s.Machine, s.ID) }

// Topology is a topology and where it runs now.
type Topology struct {
	// Record is what is to run: its ID, Name, Launched, and Version count.
	Record cluster.Topology
	// Places is where its workers are now. None, if they are all to be made anew, as in a
	// new epoch.
	Places []Place
	// Master is the supervisor that runs its master, or "". MasterDead: it is to run
	// elsewhere, if it can.
	Master     string
	MasterDead bool
	// Frozen: it is not to be changed, as when it is being killed. Its places are still its
	// own.
	Frozen bool
}

// Place is a worker. Dead: it is to be placed anew. Avoid: and on another machine, if there
// is room.
type Place struct {
	cluster.WorkerPlace
	Dead, Avoid bool
}

// Plan says where everything is to run, by the id of the topology.
type Plan map[string]Placement

// Placement says where a topology is to run.
type Placement struct {
	// Master is a supervisor, or "" if none may run it, or it has no workers.
	Master  string
	Workers []cluster.WorkerPlace // in the order of their slots, unless they are as before
	// Unplaced are the tasks of no worker.
	Unplaced []int
	// Conditions say in words why it is not as it should be.
	Conditions []string
}

// Scheduler decides where everything runs.
type Scheduler func(View) Plan

// Options are what schedulers need to know besides the View.
type Options struct {
	// Machines is how many machines a topology has for itself, by its name:
	// isolation.scheduler.machines.
	Machines map[string]int
}

// Default is the scheduler that is used if none is named.
const Default = "even"

// New returns the scheduler of a name, the value of storm.scheduler.
func New(name string, o Options) (Scheduler, error) {
	switch name {
	case "even":
		return Even, nil
	case "isolation":
		for topology, n := range o.Machines {
			if n < 1 {
				return nil, fmt.Errorf("isolation.scheduler.machines gives topology %q %d machines; it must be 1 or more", topology, n)
			}
		}
		return func(v View) Plan { return isolate(v, o.Machines) }, nil
	case "resource":
		return Resource, nil
	}
	return nil, fmt.Errorf("scheduler %q is not known; there are even, isolation and resource", name)
}

// Even spreads tasks by number over as many workers as each topology wants.
func Even(v View) Plan {
	b := newBoard(v)
	b.keep()
	for _, j := range b.jobs {
		b.spread(j)
	}
	return b.plan()
}

// job is a topology that is being scheduled.
type job struct {
	Topology
	settings settings
	tasks    []int
	kept     []cluster.WorkerPlace // alive, where they may be, in the order of their slots
	died     map[cluster.Slot]bool
	avoided  map[string]bool // machines
	result   Placement
}

func (j *job) says(format string, args ...any) {
	j.result.Conditions = append(j.result.Conditions, fmt.Sprintf(format, args...))
}

// count writes a number with a word that goes with it.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// fixed reports whether the topology is to stay as it is.
func (j *job) fixed() bool { return j.Frozen || j.settings.err != nil }

// todo returns the tasks that none of some places has, in order.
func (j *job) todo(places []cluster.WorkerPlace) []int {
	placed := map[int]bool{}
	for _, p := range places {
		for _, t := range p.Tasks {
			placed[t] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(j.tasks), func(t int) bool { return placed[t] })
}

// tasksOf returns the ids of all tasks, in order.
func tasksOf(v cluster.Version) []int {
	var tasks []int
	for _, c := range v.Components {
		for i := range c.Tasks {
			tasks = append(tasks, c.FirstTask+i)
		}
	}
	slices.Sort(tasks)
	return slices.Compact(tasks)
}

func compareSlots(a, b cluster.Slot) int {
	return cmp.Or(cmp.Compare(a.Supervisor, b.Supervisor), cmp.Compare(a.Port, b.Port))
}

func comparePlaces(a, b cluster.WorkerPlace) int { return compareSlots(a.Slot, b.Slot) }
