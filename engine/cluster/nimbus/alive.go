package nimbus

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// standing is what is known of those who run a topology, to tell who of them is dead.
type standing struct {
	assignment cluster.Assignment
	run        *cluster.RunStatus // of the assignment's epoch; nil: none yet
	// silence is how long the topology master has not been heard of, since it was placed at
	// the most; reporting how long this process of it has been.
	silence   time.Duration
	reporting time.Duration
	// launching: nothing was heard of the topology master since it was placed.
	launching bool
	// supervisor returns the last heartbeat of a supervisor, and how long ago it came.
	supervisor func(id string) (cluster.Supervisor, time.Duration)
	// apart is how long the topology master has told that workers are not connected, unlinked
	// that two of them do not reach each other.
	apart    map[string]time.Duration
	unlinked map[[2]string]time.Duration
}

// spells are since when things have been so without interruption.
type spells[K comparable] map[K]time.Time

// next returns the spells that go on and those that begin, as these things are so now.
func (s spells[K]) next(now []K, at time.Time) spells[K] {
	next := spells[K]{}
	for _, k := range now {
		next[k] = at
		if since, was := s[k]; was && since.Before(at) {
			next[k] = since
		}
	}
	return next
}

// lengths returns how long each has been.
func (s spells[K]) lengths(now time.Time) map[K]time.Duration {
	lengths := map[K]time.Duration{}
	for k, since := range s {
		lengths[k] = now.Sub(since)
	}
	return lengths
}

// masterLost reports whether the topology master is to be placed anew. A supervisor that is
// alive has had the time to start it again; if it has gone silent as well, it may be the
// machine, or only the way to it, and then the supervisor's longer time counts.
func (s *standing) masterLost(l limits) bool {
	limit := l.task
	if s.launching {
		limit = l.launch
	}
	if s.silence <= limit {
		return false
	}
	_, quiet := s.supervisor(s.assignment.Master)
	return quiet > l.supervisor || quiet <= l.task/2
}

// workersLost returns the slots of workers that are to be placed anew, and whether on another
// machine, as it is the network of theirs that is in the way. A worker that is
// connected to its topology master lives, whatever its supervisor does; so nobody is judged
// without a word of the master, and workers have time to find a new one: the shorter of the
// two limits, as those that live have left the old one before it was replaced.
func (s *standing) workersLost(l limits) map[cluster.Slot]bool {
	if s.run == nil || s.silence > l.task || s.reporting <= min(l.task, l.supervisor) {
		return nil
	}
	lost := map[cluster.Slot]bool{}
	for _, w := range s.assignment.Workers {
		if slices.Contains(s.run.Workers, w.ID()) {
			continue
		}
		if is, cut := s.workerLost(w, l); is {
			lost[w.Slot] = cut
		}
	}
	s.part(lost, l)
	return lost
}

// workerLost judges a worker that is not connected. If all is well with its supervisor, and
// yet the master waits for it in vain, another place is tried: soon if its process runs, as
// it is cut off from the master then, else after the time that a launch may take.
func (s *standing) workerLost(w cluster.WorkerPlace, l limits) (lost, cut bool) {
	sup, quiet := s.supervisor(w.Supervisor)
	if quiet > l.supervisor || sup.ID != "" && (sup.Unhealthy != "" || !slices.Contains(sup.Ports, w.Port)) {
		return true, false
	}
	if _, runs := s.process(sup, w); runs {
		return s.apart[w.ID()] > l.task, true
	}
	return s.apart[w.ID()] > l.launch, false
}

// process returns the process of a worker, if it runs, as its supervisor has told.
func (s *standing) process(sup cluster.Supervisor, w cluster.WorkerPlace) (p cluster.ProcessStatus, runs bool) {
	for _, p := range sup.Processes {
		if p.Running && p.Role == cluster.RoleWorker && p.ID == s.assignment.ID &&
			p.Epoch == s.assignment.Version.Epoch && p.Port == w.Port {
			return p, true
		}
	}
	return p, false
}

// part adds those workers that have to go because others do not reach them. One whose
// supervisor is silent does not: nobody could end its process, and the topology master would
// go on with that.
func (s *standing) part(lost map[cluster.Slot]bool, l limits) {
	slots, started := map[string]cluster.Slot{}, map[string]uint64{}
	stays := map[string]bool{}
	for _, w := range s.assignment.Workers {
		if _, is := lost[w.Slot]; is {
			continue
		}
		stays[w.ID()] = true
		if sup, quiet := s.supervisor(w.Supervisor); quiet <= l.supervisor {
			p, _ := s.process(sup, w)
			slots[w.ID()], started[w.ID()] = w.Slot, p.Number
		}
	}
	var pairs [][2]string
	for pair, long := range s.unlinked {
		if long > l.task && stays[pair[0]] && stays[pair[1]] {
			pairs = append(pairs, pair)
		}
	}
	for _, worker := range leavers(pairs, started, s.assignment.Number) {
		lost[slots[worker]] = true
	}
}

// leavers chooses who of some pairs of workers is to go, so that no pair is left: who is in
// most of them, again and again. Of several that is who was started for the earliest
// assignment, as others may have gone already to no avail; and if that is the same, the first
// or the last, by turns with the number of the assignment. started has those that can go.
func leavers(pairs [][2]string, started map[string]uint64, number uint64) (leave []string) {
	turn := 1
	if number%2 == 1 {
		turn = -1
	}
	for {
		in := map[string]int{}
		for _, pair := range pairs {
			for _, w := range pair {
				if _, can := started[w]; can {
					in[w]++
				}
			}
		}
		if len(in) == 0 {
			return leave
		}
		next := slices.MinFunc(slices.Collect(maps.Keys(in)), func(x, y string) int {
			return cmp.Or(cmp.Compare(in[y], in[x]), cmp.Compare(started[x], started[y]), turn*cmp.Compare(x, y))
		})
		leave = append(leave, next)
		pairs = slices.DeleteFunc(pairs, func(pair [2]string) bool { return pair[0] == next || pair[1] == next })
	}
}
