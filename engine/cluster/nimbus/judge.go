package nimbus

import (
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// What follows asks for the decisions of a leader without one: simulations do.

// Case is what a leader knows of a topology when it decides about it.
type Case struct {
	Now        time.Time // by the clock that sets deadlines
	StopLimit  time.Duration
	Topology   cluster.Topology
	Assignment *cluster.Assignment // nil: none
	Run        *cluster.RunStatus  // of the epoch of Topology.Version; nil: none yet
	Settled    bool                // time limits may be held against others
}

// Verdict is what is to be of a topology.
type Verdict struct {
	Topology cluster.Topology
	Active   bool // spouts may emit
	Stop     bool // take a last checkpoint and end
	Runs     bool // its processes are to be found slots
	Ends     bool // its processes are to end
	Forget   bool // all of it is to go
}

// Decide returns what a leader decides. It is to be asked again when it has changed the
// topology.
func Decide(c Case) Verdict {
	out := decide(view{
		now: c.Now, stopLimit: c.StopLimit, topology: c.Topology,
		assignment: c.Assignment, run: c.Run, settled: c.Settled,
	})
	return Verdict{
		Topology: out.topology, Active: out.active, Stop: out.stop,
		Runs: out.place == placeRun, Ends: out.place == placeEnd, Forget: out.forget,
	}
}

// Standing is what a leader knows of those who run a topology.
type Standing struct {
	Assignment cluster.Assignment
	Run        *cluster.RunStatus // of the assignment's epoch; nil: none yet
	// Silence is how long the topology master has not been heard of, since it was placed at
	// the most; Reporting how long this process of it has been.
	Silence, Reporting time.Duration
	Launching          bool // nothing was heard of it since it was placed
	// Supervisor returns the last heartbeat of a supervisor, and how long ago it came.
	Supervisor func(id string) (cluster.Supervisor, time.Duration)
	// Apart is how long Run has told that workers are not connected, Unlinked that two of them
	// do not reach each other.
	Apart    map[string]time.Duration
	Unlinked map[[2]string]time.Duration
}

// Times are how long a leader waits for a sign of a supervisor, of a topology master, and
// of one that was just placed.
type Times struct{ Supervisor, Task, Launch time.Duration }

// Lost returns who is to be placed anew: the topology master, and workers, with whether they
// are to leave their machines.
func (s Standing) Lost(t Times) (master bool, workers map[cluster.Slot]bool) {
	l := limits{supervisor: t.Supervisor, task: t.Task, launch: t.Launch}
	is := standing{
		assignment: s.Assignment, run: s.Run, silence: s.Silence, reporting: s.Reporting,
		launching: s.Launching, supervisor: s.Supervisor, apart: s.Apart, unlinked: s.Unlinked,
	}
	return is.masterLost(l), is.workersLost(l)
}
