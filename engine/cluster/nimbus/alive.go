package nimbus

import (
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
	// apart, if set, returns how long the topology master has told that a worker is not
	// connected.
	apart func(worker string) time.Duration
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

// workersLost returns the slots of workers that are to be placed anew. A worker that is
// connected to its topology master lives, whatever its supervisor does; so nobody is judged
// without a word of the master, and workers have time to find a new one: the shorter of the
// two limits, as those that live have left the old one before it was replaced.
func (s *standing) workersLost(l limits) []cluster.Slot {
	if s.run == nil || s.silence > l.task || s.reporting <= min(l.task, l.supervisor) {
		return nil
	}
	var lost []cluster.Slot
	for _, w := range s.assignment.Workers {
		if !slices.Contains(s.run.Workers, w.ID()) && s.workerLost(w, l) {
			lost = append(lost, w.Slot)
		}
	}
	return lost
}

// workerLost judges a worker that is not connected. If all is well with its supervisor, and
// yet the master waits for it in vain, another place is tried: soon if its process runs, as
// it is cut off from the master then, else after the time that a launch may take.
func (s *standing) workerLost(w cluster.WorkerPlace, l limits) bool {
	sup, quiet := s.supervisor(w.Supervisor)
	if quiet > l.supervisor || sup.ID != "" && (sup.Unhealthy != "" || !slices.Contains(sup.Ports, w.Port)) {
		return true
	}
	runs := slices.ContainsFunc(sup.Processes, func(p cluster.ProcessStatus) bool {
		return p.Running && p.Role == cluster.RoleWorker && p.ID == s.assignment.ID &&
			p.Epoch == s.assignment.Version.Epoch && p.Port == w.Port
	})
	limit := l.launch
	if runs {
		limit = l.task
	}
	return s.apart != nil && s.apart(w.ID()) > limit
}
