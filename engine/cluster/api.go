package cluster

import (
	"encoding/json"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// Call is a request to a service: a verb and what it needs, one of the types below.
type Call struct {
	Verb string          `json:"verb"`
	Body json.RawMessage `json:"body,omitempty"`
}

// The verbs, with their bodies and replies. Nimbus answers all of them; those of a
// topology master are passed on to it, those of a supervisor too.
const (
	VerbCheck       = "check"       // Submission → Checked: what Submit would say; nothing is kept
	VerbSubmit      = "submit"      // Submission → Submitted
	VerbKill        = "kill"        // Kill → nothing
	VerbActivate    = "activate"    // Named → nothing
	VerbDeactivate  = "deactivate"  // Named → nothing
	VerbRebalance   = "rebalance"   // Rebalance → nothing
	VerbList        = "list"        // nothing → []Summary
	VerbStatus      = "status"      // Named → Detail
	VerbSupervisors = "supervisors" // nothing → []Supervisor
	VerbForget      = "forget"      // Named, a supervisor that is silent → nothing
	VerbHealth      = "health"      // nothing → Health
	VerbLogLevel    = "log-level"   // SetLogLevel → nothing
	VerbCredentials = "credentials" // SetCredentials → nothing
	VerbLogs        = "logs"        // Logs → LogPart; a supervisor's
	VerbSavepoint   = "savepoint"   // Savepoint → SavepointTaken; a master's
	VerbRollback    = "rollback"    // Rollback → nothing; a master's
	VerbHead        = "head"        // Named → checkpoint.Head; a master's
	VerbConfig      = "config"      // nothing → map[string]any: the cluster's configuration
	VerbBlobCheck   = "blob-check"  // BlobCheck → BlobChecked: what the next two would say; nothing is kept
	VerbBlobCreated = "blob-create" // BlobChange → nothing: its content is there
	VerbBlobUpdated = "blob-update" // BlobChange → nothing: its content is there
	VerbBlobDeleted = "blob-delete" // BlobChange → nothing
	VerbBlobACL     = "blob-acl"    // BlobChange → nothing
	VerbBlobs       = "blobs"       // nothing → []BlobInfo
	VerbBlobRead    = "blob-read"   // BlobRead → BlobPart

	// A supervisor's own. It answers VerbHealth with NodeHealth.
	VerbKillWorkers = "kill-workers" // nothing → KilledWorkers
)

// Submission asks for a topology to be run.
type Submission struct {
	Name       string          `json:"name"`
	Binary     Binary          `json:"binary"`
	Platform   string          `json:"platform"` // GOOS/GOARCH of the binary
	Engine     string          `json:"engine"`   // version of Isobar in it
	Args       []string        `json:"args"`
	Config     map[string]any  `json:"config"` // what the topology and the command line set
	Components []ComponentSpec `json:"components"`
	Start      StartSpec       `json:"start"`
	Inactive   bool            `json:"inactive,omitempty"` // begin INACTIVE
	// Update replaces what runs under the name.
	Update bool `json:"update,omitempty"`
	// UpdateTimeoutSecs is in how long an update must commit; 0 is the default.
	UpdateTimeoutSecs int `json:"updateTimeoutSecs,omitempty"`
}

// Checked is what speaks against a Submission, all of it.
type Checked struct {
	Problems []string `json:"problems,omitempty"`
	// HasBinary: the binary is there, it need not be uploaded.
	HasBinary bool     `json:"hasBinary"`
	Warnings  []string `json:"warnings,omitempty"`
}

// Submitted tells what has become of a Submission.
type Submitted struct {
	ID       string   `json:"id"`
	Warnings []string `json:"warnings,omitempty"`
}

// Named names a topology.
type Named struct {
	Name string `json:"name"`
}

// Kill ends a topology.
type Kill struct {
	Name string `json:"name"`
	// WaitSecs is how long its spouts are stopped before it ends, so that what is under
	// way is processed; -1 is the default, topology.message.timeout.secs, or 0 with
	// NoCheckpoint.
	WaitSecs     int  `json:"waitSecs"`
	NoCheckpoint bool `json:"noCheckpoint,omitempty"`
}

// Rebalance changes how a topology is spread.
type Rebalance struct {
	Name     string         `json:"name"`
	WaitSecs int            `json:"waitSecs"`          // -1 is the default
	Workers  int            `json:"workers,omitempty"` // 0: as now
	Tasks    map[string]int `json:"tasks,omitempty"`   // executors by component
	Config   map[string]any `json:"config,omitempty"`
}

// Summary is a topology in a list.
type Summary struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Owner      string `json:"owner"`
	Status     Status `json:"status"`
	Tasks      int    `json:"tasks"`
	Workers    int    `json:"workers"` // that are connected
	Wanted     int    `json:"wantedWorkers"`
	UptimeSecs int64  `json:"uptimeSecs"`
	Error      string `json:"error,omitempty"`
}

// Detail is all about a topology.
type Detail struct {
	Topology   Topology        `json:"topology"`
	Assignment *Assignment     `json:"assignment,omitempty"`
	Run        *RunStatus      `json:"run,omitempty"`
	RunAgeSecs float64         `json:"runAgeSecs"`           // since the last sign of the master
	Conditions []string        `json:"conditions,omitempty"` // such as: too few slots
	Processes  []ProcessStatus `json:"processes,omitempty"`
}

// Health is how the cluster is.
type Health struct {
	Leader      string   `json:"leader"`
	Supervisors int      `json:"supervisors"`
	Slots       int      `json:"slots"`
	UsedSlots   int      `json:"usedSlots"`
	Topologies  int      `json:"topologies"`
	Problems    []string `json:"problems,omitempty"`
}

// SetLogLevel sets log levels of a topology's processes for a time.
type SetLogLevel struct {
	Name   string           `json:"name"`
	Levels map[string]Level `json:"levels"`
	Remove []string         `json:"remove,omitempty"`
}

// SetCredentials gives a topology secrets.
type SetCredentials struct {
	Name   string      `json:"name"`
	Values Credentials `json:"values"`
}

// Logs asks for a part of a process's log.
type Logs struct {
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Slot   Slot   `json:"slot"`         // of a worker; of a master only the supervisor, or nothing
	ID     string `json:"id,omitempty"` // of the topology; set by nimbus
	Offset int64  `json:"offset"`       // below 0: so many bytes before the end
	Limit  int    `json:"limit"`
}

// LogPart is a part of a log.
type LogPart struct {
	Data   []byte `json:"data"`
	Offset int64  `json:"offset"` // of Data
	Size   int64  `json:"size"`   // of the log now
}

// NodeHealth is what the health checks of a supervisor's machine say when they are run.
type NodeHealth struct {
	// Unhealthy is why the machine is to be given no work, or "".
	Unhealthy string `json:"unhealthy,omitempty"`
	Checks    int    `json:"checks"` // that were run
}

// KilledWorkers tells how many processes a supervisor was told to end, and to start again
// where they are still wanted. Those of an assignment that has vanished are not.
type KilledWorkers struct {
	Processes int `json:"processes"`
}

// Savepoint asks for a checkpoint that is kept under a name.
type Savepoint struct {
	Topology string `json:"topology"`
	Name     string `json:"name,omitempty"`
}

// Rollback asks for a topology to go back to a checkpoint that it keeps.
type Rollback struct {
	Topology        string `json:"topology"`
	To              string `json:"to"` // GENERATION.BATCH
	DropUnpublished bool   `json:"dropUnpublished,omitempty"`
}

// SavepointTaken is a savepoint's reply.
type SavepointTaken struct {
	Checkpoints []checkpoint.Ref `json:"checkpoints"`
}

// BlobChange is about a user's blob. Its content is put to the object store by the caller,
// under its SHA-256, before nimbus is asked to create or update the blob.
type BlobChange struct {
	Key string   `json:"key"`
	ACL []string `json:"acl,omitempty"` // u:USER:rwa or o::r--
	// SHA256 (hex) and Size are those of the content that it gets.
	SHA256 string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"`
}

// BlobCheck asks, before anything is uploaded, what speaks against creating a blob, or
// against updating one.
type BlobCheck struct {
	BlobChange
	Update bool `json:"update,omitempty"`
}

// BlobChecked is the answer if nothing does.
type BlobChecked struct {
	// HasContent: the content is there and is sound, it need not be uploaded.
	HasContent bool `json:"hasContent"`
}

// BlobRead asks for a part of a blob's content: from Offset on, of the content with that
// SHA-256, any if it is "".
type BlobRead struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"`
	SHA256 string `json:"sha256,omitempty"`
}

// BlobPart is a part of a blob's content. Whoever has all of it checks the SHA-256.
type BlobPart struct {
	Data   []byte `json:"data"`
	SHA256 string `json:"sha256"` // of the whole content
	Size   int64  `json:"size"`   // of the whole content
}

// BlobInfo is a blob in a list.
type BlobInfo struct {
	Key     string    `json:"key"`
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	Owner   string    `json:"owner"`
	ACL     []string  `json:"acl"`
	Changed time.Time `json:"changed,omitzero"`
}
