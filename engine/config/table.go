package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Type is the type of a key's value.
type Type uint8

// The types. The Go types of their values are bool, int and string.
const (
	Bool Type = iota + 1
	Int
	String
)

// String returns the type's name as the reference page has it.
func (t Type) String() string {
	switch t {
	case Bool:
		return "bool"
	case Int:
		return "int"
	case String:
		return "string"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Scope says what one value of a key applies to.
type Scope string

// The scopes.
const (
	ScopeTopology Scope = "topology" // the topology as a whole
	ScopeRegion   Scope = "region"   // each region by itself
	ScopeTask     Scope = "task"     // each task by itself
)

// Key describes one configuration key.
type Key struct {
	Name    string
	Type    Type
	Default any // bool, int or string
	Min     int // the range of an Int key
	Max     int
	// Unit is the unit of one: time.Millisecond, time.Second; 0 if not a duration.
	Unit  time.Duration
	Scope Scope
	// Component is set for keys that a component may have a value of its own for.
	Component bool
	// List is set for String keys that hold several texts with commas between them. In a
	// file they may be a YAML list.
	List bool
	// Map is set for String keys that hold a JSON object. In a file they may be a YAML
	// mapping.
	Map     bool
	Meaning string
	// Check is a further check of a String value, or nil.
	Check func(string) error
}

// noMax is the upper end of a key without one. It fits an int everywhere, and any
// number of seconds up to it fits a time.Duration.
const noMax = math.MaxInt32

// table is ordered as the reference page shows it.
var table = []Key{
	{
		Name: "transaction.topology", Type: Bool, Default: true, Scope: ScopeTopology,
		Meaning: "Run with barriers and checkpoints. Off: at most once; nothing is checkpointed and sinks publish directly.",
	},
	{
		Name: "transaction.exactly.once.mode", Type: Bool, Default: true, Scope: ScopeTopology,
		Meaning: "Align barriers, so that each tuple counts exactly once. Off: at least once; no channel is ever held back.",
	},
	{
		Name: "transaction.schedule.batch.delay.ms", Type: Int, Default: 1000, Min: 1, Max: noMax,
		Unit: time.Millisecond, Scope: ScopeRegion,
		Meaning: "Milliseconds between two barriers of a region that is not idle.",
	},
	{
		Name: "transaction.max.pending.batch", Type: Int, Default: 2, Min: 0, Max: noMax, Scope: ScopeRegion,
		Meaning: "Batches that may be closed and not yet committed; at the limit the spouts pause. 0: no limit.",
	},
	{
		Name: "transaction.batch.snapshot.timeout", Type: Int, Default: 120, Min: 1, Max: noMax,
		Unit: time.Second, Scope: ScopeRegion,
		Meaning: "Seconds after which the checkpoint of a batch is given up; a later one covers it. " +
			"The clock stands still while the region is idle or the store cannot be reached.",
	},
	{
		Name: "topology.key.groups", Type: Int, Default: 256, Min: 1, Max: 1 << 16, Scope: ScopeTopology,
		Meaning: "Key groups that keyed state is divided into: the most tasks a keyed bolt can have. Fixed for the life of the state.",
	},
	{
		Name: "topology.workers", Type: Int, Default: 1, Min: 1, Max: 1 << 16, Scope: ScopeTopology,
		Meaning: "Worker processes in a cluster. With `run` there is one, whatever it says.",
	},
	{
		Name: "topology.message.timeout.secs", Type: Int, Default: 30, Min: 0, Max: noMax,
		Unit: time.Second, Scope: ScopeTopology,
		Meaning: "Seconds that the spouts of a topology are stopped in a cluster before it is killed or rebalanced, if the command does not say it.",
	},
	{
		Name: "topology.users", Type: String, List: true, Default: "", Scope: ScopeTopology,
		Meaning: "Users of a cluster who may do with the topology what its owner may.",
	},
	{
		Name: "topology.readonly.users", Type: String, List: true, Default: "", Scope: ScopeTopology,
		Meaning: "Users of a cluster who may see how the topology is.",
	},
	{
		Name: "topology.isolation.hosts", Type: String, List: true, Default: "", Scope: ScopeTopology,
		Meaning: "The only machines of a cluster that the topology may run on: host names, or labels as in `pool=batch`. Empty: any.",
	},
	{
		Name: KeyBlobs, Type: String, Map: true, Default: "", Scope: ScopeTopology, Check: checkBlobs,
		Meaning: "Blobs of a cluster that the topology's processes find in their working folder, by key, as in `{\"dict\":{\"localname\":\"dict.txt\"},\"model\":{}}`. " +
			"`localname` is the name of the file there, if it is not the key; `uncompress` unpacks a zip, tar or gzip file; " +
			"`workerRestart` has the processes made anew when the blob has new content, which otherwise takes the file's place while they run. " +
			"With `run` nothing is fetched: the files must be in the working folder.",
	},
	{
		Name: "topology.component.resources.onheap.memory.mb", Type: Int, Default: 128, Min: 0, Max: 1 << 30, Scope: ScopeTask,
		Meaning: "Megabytes that the scheduler `resource` of a cluster counts for a task whose component declares nothing else.",
	},
	{
		Name: "topology.component.resources.offheap.memory.mb", Type: Int, Default: 0, Min: 0, Max: 1 << 30, Scope: ScopeTask,
		Meaning: "Megabytes that it counts besides those.",
	},
	{
		Name: "topology.component.cpu.pcore.percent", Type: Int, Default: 10, Min: 0, Max: 1 << 20, Scope: ScopeTask,
		Meaning: "Processor time that it counts for a task; 100 is one core.",
	},
	{
		Name: "topology.worker.max.heap.size.mb", Type: Int, Default: 768, Min: 1, Max: 1 << 30, Scope: ScopeTopology,
		Meaning: "Megabytes that the tasks of one worker may have together, as it counts them.",
	},
	{
		Name: "topology.tasks", Type: Int, Default: 0, Min: 0, Max: 1 << 16, Scope: ScopeTask, Component: true,
		Meaning: "Tasks of a component. 0: as many as its parallelism.",
	},
	{
		Name: "topology.max.task.parallelism", Type: Int, Default: 0, Min: 0, Max: 1 << 16, Scope: ScopeTask, Component: true,
		Meaning: "The most tasks that a component is given, whatever its parallelism or `topology.tasks` says. 0: no limit.",
	},
	{
		Name: "topology.tick.tuple.freq.secs", Type: Int, Default: 0, Min: 0, Max: noMax,
		Unit: time.Second, Scope: ScopeTask, Component: true,
		Meaning: "Seconds between tick tuples, which a bolt receives from component `__system` on stream `__tick`. 0: none.",
	},
	{
		Name: "topology.debug", Type: Bool, Default: false, Scope: ScopeTask, Component: true,
		Meaning: "Log every tuple that is executed, at level debug.",
	},
	{
		Name: "topology.max.error.report.per.interval", Type: Int, Default: 5, Min: 1, Max: noMax, Scope: ScopeTask, Component: true,
		Meaning: "Errors that a task may report in each interval; the rest is counted and dropped.",
	},
	{
		Name: "topology.error.throttle.interval.secs", Type: Int, Default: 10, Min: 1, Max: noMax,
		Unit: time.Second, Scope: ScopeTask, Component: true,
		Meaning: "Seconds of the interval in which reported errors are counted.",
	},
	{
		Name: "topology.poison.max.attempts", Type: Int, Default: 0, Min: 0, Max: noMax, Scope: ScopeTask, Component: true,
		Meaning: "Failures of user code on the same tuple after which the tuple goes to the failed stream of its component instead. " +
			"Must be lower than `topology.restart.max`. 0: never; the region fails.",
	},
	{
		Name: "topology.state.cache.mb", Type: Int, Default: 256, Min: 1, Max: 1 << 20, Scope: ScopeTask, Component: true,
		Meaning: "Megabytes of keyed state that a task keeps in memory; the rest is read from its local store.",
	},
	{
		Name: "topology.frame.tuples", Type: Int, Default: 1024, Min: 64, Max: 1 << 16, Scope: ScopeTopology,
		Meaning: "The most tuples that travel in one frame.",
	},
	{
		Name: "topology.channel.frames", Type: Int, Default: 16, Min: 2, Max: 1 << 12, Scope: ScopeTopology,
		Meaning: "The frames that may wait in the channel between two tasks, rounded up to a power of two. When they do, the sender waits.",
	},
	{
		Name: "topology.restart.max", Type: Int, Default: 10, Min: 0, Max: noMax, Scope: ScopeRegion,
		Meaning: "Restarts of a region, without a commit or an hour of running between them, after which it has failed. 0: no limit.",
	},
	{
		Name: "topology.task.stop.timeout.secs", Type: Int, Default: 30, Min: 1, Max: noMax,
		Unit: time.Second, Scope: ScopeTask,
		Meaning: "Seconds that the code of a task has to return when its generation ends, before the process gives up on it.",
	},
	{
		Name: "topology.debug.poison.frames", Type: Bool, Default: false, Scope: ScopeTopology,
		Meaning: "Overwrite every frame when it is recycled, so that a tuple kept too long shows at once. For tests.",
	},
	{
		Name: "checkpoint.store", Type: String, Default: "", Scope: ScopeTopology, Check: checkStore,
		Meaning: "Where checkpoints are kept: a `file://` URL with an absolute path, or `s3://BUCKET/PREFIX`. Empty: the folder `checkpoints` in the data folder.",
	},
	{
		Name: "checkpoint.store.shared", Type: Bool, Default: false, Scope: ScopeTopology,
		Meaning: "The folder of a `file://` store is the same one on every machine of the cluster, such as one of a network file system. " +
			"Without it, a topology with such a store runs on one machine only.",
	},
	{
		Name: "checkpoint.s3.endpoint", Type: String, Default: "", Scope: ScopeTopology,
		Meaning: "URL of the S3 server, as `https://HOST:PORT`. Empty: AWS. Credentials are never configured here: they come from the AWS environment variables, " +
			"the shared credentials file, or the machine's role.",
	},
	{
		Name: "checkpoint.s3.region", Type: String, Default: "", Scope: ScopeTopology,
		Meaning: "Region of the bucket. Empty: asked of AWS; `us-east-1` at another endpoint.",
	},
	{
		Name: "checkpoint.s3.path.style", Type: Bool, Default: false, Scope: ScopeTopology,
		Meaning: "Name the bucket in the path of S3 requests instead of the host name, as many servers that are not AWS need it. At an IP address it always is.",
	},
	{
		Name: "checkpoint.s3.ca.file", Type: String, Default: "", Scope: ScopeTopology,
		Meaning: "PEM file of a certificate authority to trust for S3, besides the system's.",
	},
	{
		Name: "checkpoint.max.state.mb", Type: Int, Default: 0, Min: 0, Max: 1 << 30, Scope: ScopeTask, Component: true,
		Meaning: "Megabytes of state files of one task in a checkpoint beyond which the task fails: a guard against state that grows without end. 0: no limit.",
	},
	{
		Name: "checkpoint.retained", Type: Int, Default: 3, Min: 1, Max: 1000, Scope: ScopeRegion,
		Meaning: "Complete checkpoints that are kept, the newest included.",
	},
	{
		Name: "checkpoint.orphan.grace.secs", Type: Int, Default: 3600, Min: 0, Max: noMax,
		Unit: time.Second, Scope: ScopeTopology,
		Meaning: "Seconds that an object which no checkpoint names is left alone before it is deleted.",
	},
}

// userPrefix begins the keys that pass through unchecked.
const userPrefix = "user."

// Keys returns the table.
func Keys() []Key { return topologies.Keys() }

// Lookup returns the key of a name; the error for any other name says what would be
// right.
func Lookup(name string) (Key, error) { return topologies.Lookup(name) }

// Range says in words which values the key takes.
func (k Key) Range() string {
	switch {
	case k.Type == Bool:
		return "true or false"
	case k.Type == String && k.List:
		return "texts with commas between them"
	case k.Type == String && k.Map:
		return "a JSON object; in a file, a mapping"
	case k.Type == String:
		return "a text"
	case k.Max == noMax:
		return fmt.Sprintf("a whole number, %d or more", k.Min)
	}
	return fmt.Sprintf("a whole number from %d to %d", k.Min, k.Max)
}

// accept checks a value of the key's Go type.
func (k *Key) accept(v any) error {
	switch v := v.(type) {
	case bool:
		if k.Type == Bool {
			return nil
		}
	case int:
		if k.Type == Int && k.Min <= v && v <= k.Max {
			return nil
		}
	case string:
		if k.Type != String {
			break
		}
		if k.Check == nil {
			return nil
		}
		return k.Check(v)
	}
	return k.refuse(v)
}

func (k *Key) refuse(v any) error {
	var text string
	switch v := v.(type) {
	case nil:
		text = "empty"
	case string:
		text = fmt.Sprintf("the text %q", v)
	case bool, int:
		text = fmt.Sprint(v)
	default:
		text = fmt.Sprintf("%v of type %T", v, v)
	}
	return fmt.Errorf("%s is %s, must be %s", k.Name, text, k.Range())
}

// Nearest returns the one of names that takes the fewest edits to get to.
func Nearest(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(edits(name, a), edits(name, b)) })
}

// Near returns the nearest of names if it takes few edits to get there: a third of its letters.
func Near(name string, names []string) (near string, ok bool) {
	if len(names) == 0 {
		return "", false
	}
	near = Nearest(name, names)
	return near, isNear(name, near, edits(name, near))
}

// edits returns the Levenshtein distance of two texts.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
