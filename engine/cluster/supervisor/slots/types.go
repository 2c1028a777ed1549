package slots

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Place is where a process runs: a worker's slot, or the topology master of a topology.
type Place struct {
	ID   string       `json:"id"` // of the topology
	Role cluster.Role `json:"role"`
	Port int          `json:"port,omitempty"` // 0: the topology master
}

// String returns ID/PORT or ID/master.
func (p Place) String() string { return p.ID + "/" + p.Name() }

// Name is what distinguishes the place from others of its topology.
func (p Place) Name() string {
	if p.Role == cluster.RoleMaster {
		return string(cluster.RoleMaster)
	}
	return strconv.Itoa(p.Port)
}

// compare orders places by topology, the master first.
func compare(a, b Place) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Port, b.Port)) }

// Phase is how far a slot is.
type Phase string

// The phases; see the package comment.
const (
	Waiting   Phase = "waiting"   // to be started later, or not to be started now
	Preparing Phase = "preparing" // what the process needs is fetched
	Starting  Phase = "starting"
	Running   Phase = "running"
	Dumping   Phase = "dumping" // hangs, and was told to write its stacks and end
	Ending    Phase = "ending"  // was told to end
	Killing   Phase = "killing"
	Done      Phase = "done" // has ended in order; nothing is started for this assignment
	Cleaning  Phase = "cleaning"
)

// Alive reports whether there may be a process.
func (p Phase) Alive() bool {
	switch p {
	case Starting, Running, Dumping, Ending, Killing:
		return true
	default:
		return false
	}
}

// Coming reports whether there will be a process, if it stays wanted.
func (p Phase) Coming() bool { return p == Waiting || p == Preparing }

// Slot is a place in use.
type Slot struct {
	Place
	Phase  Phase  `json:"phase"`
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"number"` // of the assignment that it was last started for
	// Incarnation is that of the last process. It is on disk before the process is
	// started, so that no two have the same.
	Incarnation uint64 `json:"incarnation"`
	PID         int    `json:"pid,omitempty"`
	Birth       string `json:"birth,omitempty"` // tells the process from others with the same pid
	// Ordered: it ends, or has ended, because we said so: its exit code says nothing.
	Ordered  bool   `json:"ordered,omitempty"`
	Since    int64  `json:"since"` // when it was started, or ended, in Unix nanoseconds
	Restarts int    `json:"restarts,omitempty"`
	Exit     string `json:"exit,omitempty"` // how the last one ended, or why none is started

	due     time.Duration // when Waiting ends, or Dumping, Ending or Killing has taken too long
	pause   time.Duration // before the next start after a failure
	began   time.Duration // when it was started, or adopted
	beat    time.Duration // when the beat last changed
	beaten  bool          // the beat has changed since the start
	still   int           // looks in a row that saw no change
	blocked string        // why its port cannot be used
	abandon bool          // what is being prepared is not needed any more
}

// order is what is known of an assignment.
type order struct {
	cluster.Assignment
	// Gone: it is not in the store any more.
	Gone bool `json:"gone,omitempty"`
	// Mark is that of the store which has listed it, or had listed others shortly before it
	// was told of; Missed counts the listings in a row of that store that did not have it.
	Mark   string `json:"mark,omitempty"`
	Missed int    `json:"missed,omitempty"`
}

// missedMax is how many listings in a row must miss an assignment before it counts as
// removed: one may come from a server that is behind.
const missedMax = 2

// later reports whether an assignment is newer than what is known, or the same.
func (o *order) later(a cluster.Assignment) bool {
	return cmp.Or(cmp.Compare(a.Version.Epoch, o.Version.Epoch), cmp.Compare(a.Number, o.Number)) >= 0
}

// names reports whether an assignment wants a process at a place of a supervisor.
func names(a cluster.Assignment, supervisor string, p Place) bool {
	if p.Role == cluster.RoleMaster {
		return a.Master == supervisor
	}
	for _, w := range a.Workers {
		if w.Supervisor == supervisor && w.Port == p.Port {
			return true
		}
	}
	return false
}

// places returns what an assignment wants of a supervisor.
func places(a cluster.Assignment, supervisor string) []Place {
	var all []Place
	if a.Master == supervisor {
		all = append(all, Place{ID: a.ID, Role: cluster.RoleMaster})
	}
	for _, w := range a.Workers {
		if w.Supervisor == supervisor {
			all = append(all, Place{ID: a.ID, Role: cluster.RoleWorker, Port: w.Port})
		}
	}
	return all
}

// Limits are the times and the places that a Table goes by.
type Limits struct {
	Supervisor string // its id
	Ports      []int

	BeatTimeout  time.Duration // supervisor.worker.timeout.secs
	StartTimeout time.Duration // supervisor.worker.start.timeout.secs: until the first beat
	Grace        time.Duration // between SIGTERM and SIGKILL
	CloseGrace   time.Duration // the same for a topology master that is to be started again
	DumpTime     time.Duration // between SIGQUIT and SIGKILL
	RestartMin   time.Duration // the pause after a failure, which doubles
	RestartMax   time.Duration
	Settled      time.Duration // a process that has lived that long begins with RestartMin again
}

// looksMin is how many looks in a row must have seen no change before a process counts as
// hanging: after the machine was suspended it must have the time to beat.
const looksMin = 5

// Moment is a point in time: on a clock that only goes forward, and in Unix nanoseconds.
type Moment struct {
	Now  time.Duration
	Unix int64
}

// Event is something that has happened.
type Event interface{ event() }

// The events.
type (
	// Recovered is the first: what was found of the processes that a former supervisor
	// had started. What is in neither list is gone, nobody knows how.
	Recovered struct {
		Alive []Alive
		Ended []Exited
	}
	// Listed: these assignments exist, and no others. Mark tells the store from one that
	// was made anew; without one it is not known.
	Listed struct {
		Mark        string
		Assignments []cluster.Assignment
		Unread      []string // ids of those that make no sense: they have not vanished
	}
	// Assigned: an assignment has changed.
	Assigned struct{ Assignment cluster.Assignment }
	// Removed: an assignment was deleted.
	Removed struct{ ID string }
	// MasterSeen: a topology master has told where it is.
	MasterSeen struct {
		ID     string
		Record cluster.MasterRecord
	}
	// Prepared: all that a process needs is there.
	Prepared struct{ Place Place }
	// PrepareFailed: it is not, or the preparation was abandoned.
	PrepareFailed struct {
		Place  Place
		Reason string
	}
	// Started: the process runs.
	Started struct {
		Place Place
		PID   int
		Birth string
	}
	// StartFailed: there is no process.
	StartFailed struct {
		Place  Place
		Reason string
	}
	// Looked: somebody has looked at a process's beat.
	Looked struct {
		Place       Place
		Incarnation uint64
		Changed     bool
	}
	// Exited: a process has ended.
	Exited struct {
		Place       Place
		Incarnation uint64
		Code        int // below 0: not known, or a signal
		How         string
	}
	// Cleaned: what a place had on disk is gone.
	Cleaned struct{ Place Place }
	// HealthFound tells why the machine is unhealthy, or that it is not.
	HealthFound struct{ Unhealthy string }
	// BlobsChanged: processes must be made anew since their files have changed.
	BlobsChanged struct{ Places []Place }
	// KillOrdered: somebody wants all processes ended, and started again.
	KillOrdered struct{}
	// Closing: the supervisor ends; with EndProcesses they do too, to be started again by
	// the next one.
	Closing struct{ EndProcesses bool }
	// Ticked: the time of Next has come.
	Ticked struct{}
)

// Alive is a process that was found running.
type Alive struct {
	Place       Place
	Epoch       uint64
	Incarnation uint64
	PID         int
	Birth       string
}

func (Recovered) event()     {}
func (Listed) event()        {}
func (Assigned) event()      {}
func (Removed) event()       {}
func (MasterSeen) event()    {}
func (Prepared) event()      {}
func (PrepareFailed) event() {}
func (Started) event()       {}
func (StartFailed) event()   {}
func (Looked) event()        {}
func (Exited) event()        {}
func (Cleaned) event()       {}
func (HealthFound) event()   {}
func (BlobsChanged) event()  {}
func (KillOrdered) event()   {}
func (Closing) event()       {}
func (Ticked) event()        {}

// Action is something to be done. The state of the Table must be on disk first, if it has
// changed.
type Action interface {
	action()
	fmt.Stringer
}

// The actions.
type (
	// Prepare fetches what a process needs, and answers Prepared or PrepareFailed.
	Prepare struct {
		Place      Place
		Assignment cluster.Assignment
	}
	// Abandon ends a Prepare early.
	Abandon struct{ Place Place }
	// Start starts a process, and answers Started or StartFailed.
	Start struct {
		Place       Place
		Assignment  cluster.Assignment
		Incarnation uint64
		Master      *cluster.MasterRecord
	}
	// Adopt watches a process that a former supervisor has started.
	Adopt struct{ Slot Slot }
	// Terminate asks a process to end: SIGTERM.
	Terminate struct{ Place Place }
	// DumpStacks asks a process for its stacks, which ends it: SIGQUIT.
	DumpStacks struct{ Place Place }
	// Kill ends a process.
	Kill struct{ Place Place }
	// Clean removes what a place has on disk, and answers Cleaned.
	Clean struct{ Place Place }
	// Complain tells the operator of something that is not as it should be.
	Complain struct {
		Place Place
		Text  string
	}
)

func (Prepare) action()    {}
func (Abandon) action()    {}
func (Start) action()      {}
func (Adopt) action()      {}
func (Terminate) action()  {}
func (DumpStacks) action() {}
func (Kill) action()       {}
func (Clean) action()      {}
func (Complain) action()   {}

// String returns the action as transcripts have it.
func (a Prepare) String() string {
	return fmt.Sprintf("prepare %s epoch=%d number=%d", a.Place, a.Assignment.Version.Epoch, a.Assignment.Number)
}

// String returns the action as transcripts have it.
func (a Abandon) String() string { return "abandon " + a.Place.String() }

// String returns the action as transcripts have it.
func (a Start) String() string {
	s := fmt.Sprintf("start %s epoch=%d number=%d incarnation=%d", a.Place, a.Assignment.Version.Epoch, a.Assignment.Number, a.Incarnation)
	if a.Master != nil {
		s += " master=" + a.Master.Address
	}
	return s
}

// String returns the action as transcripts have it.
func (a Adopt) String() string { return fmt.Sprintf("adopt %s pid=%d", a.Slot.Place, a.Slot.PID) }

// String returns the action as transcripts have it.
func (a Terminate) String() string { return "terminate " + a.Place.String() }

// String returns the action as transcripts have it.
func (a DumpStacks) String() string { return "dump stacks " + a.Place.String() }

// String returns the action as transcripts have it.
func (a Kill) String() string { return "kill " + a.Place.String() }

// String returns the action as transcripts have it.
func (a Clean) String() string { return "clean " + a.Place.String() }

// String returns the action as transcripts have it.
func (a Complain) String() string { return "complain " + a.Place.String() + ": " + a.Text }
