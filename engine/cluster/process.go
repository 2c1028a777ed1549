package cluster

import "time"

// EnvProcess names the environment variable that makes a topology program a process of
// a cluster: it holds the path of a file with a Process in JSON, readable by its user
// alone. Nothing else of the supervisor's environment is passed on but what the cluster's
// configuration names.
const EnvProcess = "ISOBAR_PROCESS"

// Process tells a process of a topology what it is.
type Process struct {
	Role     Role   `json:"role"`
	Topology string `json:"topology"` // name
	ID       string `json:"id"`
	Epoch    uint64 `json:"epoch"`
	// Incarnation is higher for every process that takes another's place: the later one
	// is right.
	Incarnation uint64         `json:"incarnation"`
	Supervisor  string         `json:"supervisor"`
	Args        []string       `json:"args"`
	Config      map[string]any `json:"config"`
	Start       StartSpec      `json:"start"`
	Tasks       map[string]int `json:"tasks"` // by component

	// Worker is the id of a worker, as WorkerPlace.ID has it; Listen is where it listens
	// for other workers, Host how they reach it. A topology master listens on any port of Listen's host.
	Worker string `json:"worker,omitempty"`
	Listen string `json:"listen"`
	// Ports are those that a topology master may listen on, of which it takes the first
	// free one; empty: any.
	Ports []int  `json:"ports,omitempty"`
	Host  string `json:"host"`
	// Master is where the topology master was last, or nil: for when the coordination
	// store does not answer.
	Master *MasterRecord `json:"master,omitempty"`

	// Dir is the working folder, the process's own; local state is below it. Beat is a
	// file in it that the process writes something new to each BeatEvery, so that its
	// supervisor sees that it lives.
	Dir       string        `json:"dir"`
	Beat      string        `json:"beat"`
	BeatEvery time.Duration `json:"beatEvery"`
	// Exit is a file in it to which a process that ends by itself writes its exit code, in
	// decimal, just before it ends: a supervisor that was started after the process has no
	// other way to learn it.
	Exit string `json:"exit"`
	// Lease is how long a worker goes on without its topology master.
	Lease time.Duration `json:"lease"`

	Store StoreAccess `json:"store"`
	Links LinkTLS     `json:"links,omitzero"`
	// Secret proves to other processes of the same topology that this one belongs to it.
	Secret string `json:"secret"`
}

// StoreAccess says how to reach the coordination store.
type StoreAccess struct {
	URLs  []string `json:"urls"`
	Creds string   `json:"creds,omitempty"` // path of a credentials file
	CA    string   `json:"ca,omitempty"`    // path of a PEM file
	Cert  string   `json:"cert,omitempty"`
	Key   string   `json:"key,omitempty"`
}

// LinkTLS are the PEM files for links between processes; without a Cert they are plain.
type LinkTLS struct {
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Exit codes of the processes of a topology. Whatever else they exit with, they are
// started again.
const (
	// ExitDone: the run has ended, in order or for good; nothing is to be started again
	// for this epoch. The topology's RunStatus tells how. A process that ends because of
	// a signal does not use it.
	ExitDone = 0
	// ExitSignal: ended in order, because of SIGTERM. It is started again, now or with the
	// machine, unless its supervisor has wanted it to end.
	ExitSignal = 143
	// ExitUsage: the program does not understand what it was told. Starting it again will
	// not help; the pause before that is the longest. It is not 2, with which Go programs
	// end when they panic.
	ExitUsage = 64
	// ExitFenced: a topology master that another one has taken over from. Who starts it
	// again takes over in turn, so the pause before that is the longest: a machine that
	// does not know that the topology was moved would not let it run elsewhere.
	ExitFenced = 75
)
