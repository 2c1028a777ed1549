package cluster

import (
	"fmt"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// Names of the buckets.
const (
	BucketTopologies  = "topologies"
	BucketAssignments = "assignments"
	BucketSupervisors = "supervisors"
	BucketNimbus      = "nimbus"
	BucketSecrets     = "secrets"
	BucketBlobs       = "blobs"
	// ObjectsBinaries holds topology programs, ObjectsBlobs what is in users' blobs, under
	// their SHA-256 in hex. Every user may write there, so whoever reads checks.
	ObjectsBinaries = "binaries"
	ObjectsBlobs    = "blobs"
)

// TopologyBucket returns the name of the bucket of one topology, which its own
// processes may use.
func TopologyBucket(id string) string { return "topology-" + id }

// Keys of a topology's bucket, of the nimbus bucket, and of the bucket of assignments, which
// no ID of a topology equals.
const (
	KeyIntent      = "intent"
	KeyAssignment  = "assignment"
	KeyCredentials = "credentials"
	KeyMaster      = "master"
	KeyStatus      = "status"
	KeyLeader      = "leader"
	KeyIDs         = "ids"
	KeyMark        = "mark"
)

// Status is the state of a topology, as its user sees it.
type Status string

// The states; see Transition for what leads from one to another.
const (
	Active      Status = "ACTIVE"
	Inactive    Status = "INACTIVE"
	Killed      Status = "KILLED"
	Rebalancing Status = "REBALANCING"
	Updating    Status = "UPDATING"
	Finished    Status = "FINISHED" // all input was processed
	Failed      Status = "FAILED"   // gave up; its checkpoints are kept
)

// Topology is what nimbus knows of a submitted topology.
type Topology struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"` // NAME-COUNTER-EPOCHSECONDS, never used again
	Owner    string    `json:"owner"`
	Status   Status    `json:"status"`
	Previous Status    `json:"previous,omitempty"` // to go back to after REBALANCING or UPDATING
	Launched time.Time `json:"launched"`
	// Deadline is when the delayed part of KILLED or REBALANCING is due. A new leader
	// waits for what is left of it.
	Deadline time.Time `json:"deadline,omitzero"`
	// Version is what runs, or is to run. Before is what ran before an update that is
	// not confirmed yet; Next is what the topology is being stopped for, or the update that
	// is being taken back.
	Version Version  `json:"version"`
	Before  *Version `json:"before,omitempty"`
	Next    *Version `json:"next,omitempty"`
	// Step is how far a change (REBALANCING, UPDATING) is, and UpdateSecs how long the new
	// version has to commit.
	Step       Step `json:"step,omitempty"`
	UpdateSecs int  `json:"updateSecs,omitempty"`
	// Left is the newest checkpoint of each region when the old version had stopped.
	Left map[string]string `json:"left,omitempty"`
	// Machine is the only one whose supervisors may run it, because its checkpoints are in
	// a folder there; "" for any.
	Machine string `json:"machine,omitempty"`
	// NoCheckpoint: a killed topology is stopped without a last checkpoint.
	NoCheckpoint bool   `json:"noCheckpoint,omitempty"`
	Error        string `json:"error,omitempty"` // why it FAILED, or why an update was taken back
}

// Step is a part of changing what runs.
type Step string

// The steps, in their order.
const (
	StepDrain  Step = "drain"  // spouts are stopped until the Deadline
	StepStop   Step = "stop"   // the old version takes its last checkpoint
	StepTry    Step = "try"    // the new one runs and has not committed yet
	StepReturn Step = "return" // the old one takes its place again
)

// Version is one way of running a topology: a binary, its flags and its configuration.
type Version struct {
	// Epoch goes up whenever processes must be made anew: they belong to one epoch.
	Epoch      uint64          `json:"epoch"`
	Binary     Binary          `json:"binary"`
	Args       []string        `json:"args"`   // of the topology's own flags
	Config     map[string]any  `json:"config"` // the total configuration
	Workers    int             `json:"workers"`
	Components []ComponentSpec `json:"components"`
	Start      StartSpec       `json:"start"`              // of the first run of this epoch
	Blobs      []Blob          `json:"blobs,omitempty"`    // of topology.blobstore.map
	Platform   string          `json:"platform,omitempty"` // GOOS/GOARCH of the binary
}

// Binary is a topology program in the object store.
type Binary struct {
	SHA256 string `json:"sha256"` // hex; also the name of the object
	Size   int64  `json:"size"`
}

// ComponentSpec is what scheduling needs of a component.
type ComponentSpec struct {
	ID        string   `json:"id"`
	Spout     bool     `json:"spout,omitempty"`
	FirstTask int      `json:"firstTask"` // topology-wide id, from 1
	Tasks     int      `json:"tasks"`
	Inputs    []string `json:"inputs,omitempty"` // components that it reads from
	// MemoryMB and CPU (100 = one core) of one task, for the resource-aware scheduler.
	MemoryMB int `json:"memoryMB,omitempty"`
	CPU      int `json:"cpu,omitempty"`
}

// StartSpec says what a run goes on from, as the flags --from, --map, --drop,
// --drop-unpublished and --take-over do.
type StartSpec struct {
	// From is what --from says, "" if there must be no checkpoints; or FromHead.
	From            string            `json:"from,omitempty"`
	Map             map[string]string `json:"map,omitempty"`
	Drop            []string          `json:"drop,omitempty"`
	DropUnpublished bool              `json:"dropUnpublished,omitempty"`
	TakeOver        bool              `json:"takeOver,omitempty"`
	// Unmoved, if there is any, holds what the newest checkpoints must be, by region: an
	// update that did not work is taken back only while the head is where the old version
	// left it. If it is elsewhere, the master changes nothing and reports PhaseFailed with
	// RunStatus.HeadMoved.
	Unmoved map[string]string `json:"unmoved,omitempty"`
}

// FromHead is a StartSpec.From: from where the epoch before has come to, if it has come to
// anything. Nimbus says it, nobody else.
const FromHead = "head"

// Slot is a place for one worker process.
type Slot struct {
	Supervisor string `json:"supervisor"`
	Port       int    `json:"port"`
}

// Assignment says where the processes of a topology run. Only the leading nimbus
// writes it.
type Assignment struct {
	Topology string  `json:"topology"` // name
	ID       string  `json:"id"`
	Number   uint64  `json:"number"` // goes up with every change
	Version  Version `json:"version"`
	// Master is the supervisor that runs the topology master.
	Master  string        `json:"master"`
	Workers []WorkerPlace `json:"workers"`
	// Stop: end the processes now, whatever they do.
	Stop bool `json:"stop,omitempty"`
}

// WorkerPlace is one worker of an assignment.
type WorkerPlace struct {
	Slot
	Host  string `json:"host"`  // where the others reach it, with Port
	Tasks []int  `json:"tasks"` // topology-wide ids
}

// ID names the worker within its topology: it stays the same as long as the slot does.
func (w WorkerPlace) ID() string { return w.Supervisor + "/" + itoa(w.Port) }

// Blob is a file that a topology's processes find in their working folder.
type Blob struct {
	Key           string `json:"key"`
	LocalName     string `json:"localName"`
	Uncompress    bool   `json:"uncompress,omitempty"`
	WorkerRestart bool   `json:"workerRestart,omitempty"`
}

// Supervisor is the heartbeat of a supervisor. Whoever watches judges its age by when it
// changed in his own time, never by what it says.
type Supervisor struct {
	ID       string    `json:"id"`
	Host     string    `json:"host"`
	Machine  string    `json:"machine"` // two supervisors on one machine say the same
	Ports    []int     `json:"ports"`
	Used     []int     `json:"used,omitempty"`
	Beat     uint64    `json:"beat"` // different in every heartbeat
	Started  time.Time `json:"started"`
	Version  string    `json:"version"` // of Isobar
	OS       string    `json:"os"`      // GOOS/GOARCH
	MemoryMB int       `json:"memoryMB"`
	CPU      int       `json:"cpu"` // 100 = one core
	// Labels choose machines for isolation, as in pool=batch.
	Labels map[string]string `json:"labels,omitempty"`
	// Unhealthy is why the machine is to be given no work, or "".
	Unhealthy string `json:"unhealthy,omitempty"`
	// Processes tells how each process of an assignment is.
	Processes []ProcessStatus `json:"processes,omitempty"`
}

// ProcessStatus is how a process is, as its supervisor sees it.
type ProcessStatus struct {
	ID       string    `json:"id"`             // of the topology
	Role     Role      `json:"role"`           //
	Port     int       `json:"port,omitempty"` // of a worker
	Epoch    uint64    `json:"epoch"`
	Number   uint64    `json:"number"` // of the assignment that it was started for
	PID      int       `json:"pid,omitempty"`
	Running  bool      `json:"running"`
	Coming   bool      `json:"coming,omitempty"` // it will run, unless the supervisor learns that it is not wanted
	Restarts int       `json:"restarts,omitempty"`
	Since    time.Time `json:"since"`
	Exit     string    `json:"exit,omitempty"` // how the last one ended
	// Supervisor is whose process it is; nimbus says so in a Detail.
	Supervisor string `json:"supervisor,omitempty"`
}

// MayRun reports whether there is a process, or will be if nothing new is learned.
func (p ProcessStatus) MayRun() bool { return p.Running || p.Coming }

// Role is what a process of a topology does.
type Role string

// The roles.
const (
	RoleMaster Role = "master"
	RoleWorker Role = "worker"
)

// Intent is what nimbus wants of a topology master.
type Intent struct {
	Epoch  uint64 `json:"epoch"`
	Active bool   `json:"active"` // spouts may emit
	// Stop: take a last checkpoint, publish it, tell PhaseStopped, and end.
	Stop bool `json:"stop,omitempty"`
	// LogLevels are set until they expire: by logger, "" for all.
	LogLevels map[string]Level `json:"logLevels,omitempty"`
}

// Level is a log level with an end.
type Level struct {
	Level string    `json:"level"` // debug, info, warn, error
	Until time.Time `json:"until,omitzero"`
}

// Secrets are of one topology and one epoch. They are kept apart from assignments, so that
// those can be shown.
type Secrets struct {
	Epoch  uint64 `json:"epoch"`
	Secret string `json:"secret"`          // Process.Secret
	Creds  string `json:"creds,omitempty"` // content of the file that StoreAccess.Creds names
}

// BlobRecord is what a user's blob is. Its content is the object of that name.
type BlobRecord struct {
	Key     string    `json:"key"`
	Owner   string    `json:"owner"`
	ACL     []string  `json:"acl"`    // as in BlobChange
	SHA256  string    `json:"sha256"` // of the content, hex
	Size    int64     `json:"size"`   // of the content
	Changed time.Time `json:"changed"`
}

// Check says what is wrong with a record of the blob of that key.
func (b BlobRecord) Check(key string) error {
	if b.Key != key {
		return fmt.Errorf("the record of blob %q is that of %q", key, b.Key)
	}
	if err := CheckContent(b.SHA256, b.Size); err != nil {
		return fmt.Errorf("the record of blob %q: %w: update the blob", key, err)
	}
	return nil
}

// Credentials are secrets that a topology's components are given.
type Credentials map[string]string

// MasterRecord tells workers where their topology master is.
type MasterRecord struct {
	Epoch       uint64 `json:"epoch"`
	Incarnation uint64 `json:"incarnation"` // of a later process it is higher
	Address     string `json:"address"`     // host:port of the control links
	Listen      string `json:"listen"`      // host:port of /metrics and the operator's commands
}

// RunStatus is how a running topology is, as its master sees it.
type RunStatus struct {
	Epoch       uint64   `json:"epoch"`
	Incarnation uint64   `json:"incarnation"`
	Beat        uint64   `json:"beat"`
	Phase       Phase    `json:"phase"`
	Active      bool     `json:"active"`
	Workers     []string `json:"workers"` // ids of those that are connected
	// Unlinked are the pairs of workers that do not reach each other, which keeps a region
	// from starting; the smaller id of each first. Of very many there are only some.
	Unlinked   [][2]string       `json:"unlinked,omitempty"`
	Regions    []RegionState     `json:"regions"`
	Components []ComponentCounts `json:"components"`
	Committed  int               `json:"committed"`
	Restarts   int               `json:"restarts"`
	Errors     []ErrorReport     `json:"errors,omitempty"`
	Error      string            `json:"error,omitempty"`     // why it has failed
	HeadMoved  bool              `json:"headMoved,omitempty"` // it has failed because of StartSpec.Unmoved
	UptimeSecs int64             `json:"uptimeSecs"`
	// Led: a topology master of this topology, this one or an earlier, had a generation. So
	// there has been a head in the checkpoint store.
	Led bool `json:"led,omitempty"`
}

// SaysUnlinked says in a few words which workers do not reach each other; "" if all do.
func (r *RunStatus) SaysUnlinked() string {
	if len(r.Unlinked) == 0 {
		return ""
	}
	first := r.Unlinked[0]
	text := fmt.Sprintf("workers %s and %s do not reach each other", first[0], first[1])
	if more := len(r.Unlinked) - 1; more > 0 {
		text += fmt.Sprintf(", nor do %d other pairs", more)
	}
	return text
}

// Phase is how far a run is.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting" // waits for its workers, or restores
	PhaseRunning  Phase = "running"
	PhaseStopped  Phase = "stopped"  // in order, after a last checkpoint
	PhaseFinished Phase = "finished" // all input was processed
	PhaseFailed   Phase = "failed"
)

// RegionState is how a region is.
type RegionState struct {
	Name       string                `json:"name"`
	Generation checkpoint.Generation `json:"generation"`
	Last       string                `json:"last,omitempty"` // newest checkpoint, GENERATION.BATCH
	Running    bool                  `json:"running"`
	Over       bool                  `json:"over,omitempty"`
	// Idle: nothing has changed since Last, so that nothing will be committed until it does.
	Idle     bool     `json:"idle,omitempty"`
	Restarts uint64   `json:"restarts,omitempty"`
	Degraded []string `json:"degraded,omitempty"`
}

// ComponentCounts counts the tuples of a component in this run.
type ComponentCounts struct {
	ID       string `json:"id"`
	Tasks    int    `json:"tasks"`
	Emitted  uint64 `json:"emitted"`
	Executed uint64 `json:"executed"`
}

// ErrorReport is an error that a component has reported, or that failed a task.
type ErrorReport struct {
	Time      time.Time `json:"time"`
	Component string    `json:"component"`
	Task      int       `json:"task"`
	Error     string    `json:"error"`
}

// Lease says who leads.
type Lease struct {
	Holder string `json:"holder"`
	Beat   uint64 `json:"beat"`
}
