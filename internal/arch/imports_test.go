package arch

import (
	"strings"
)

// layer says what the packages in a folder and below it may import of the module.
// The longest folder that fits decides.
type layer struct {
	dir   string
	below []string // folders, each with all below it
	exact []string // folders alone
}

var layers = []layer{
	{dir: "tuple"},
	{dir: "tuple/wire", exact: []string{"tuple"}},
	{dir: "txn", below: []string{"tuple"}, exact: []string{"txn"}},
	{dir: "barrier", below: []string{"tuple"}, exact: []string{"txn"}},
	{dir: "checkpoint", below: []string{"tuple"}, exact: []string{"txn", "barrier"}},
	// Adapters see the package whose interface they fill, and nothing of each other.
	{dir: "checkpoint/checkpointtest", below: []string{"tuple"}, exact: []string{"txn", "checkpoint", "checkpoint/memstore"}},
	{dir: "checkpoint/filestore", below: []string{"tuple", "internal/atomicfile", "internal/filelock"}, exact: []string{"txn", "checkpoint"}},
	{dir: "checkpoint/memstore", below: []string{"tuple"}, exact: []string{"txn", "checkpoint"}},
	{dir: "checkpoint/s3store", below: []string{"tuple"}, exact: []string{"txn", "checkpoint"}},
	{dir: "checkpoint/s3store/s3test"},
	{dir: "checkpoint/pebblestate", below: []string{"tuple", "internal/atomicfile"}, exact: []string{"txn", "checkpoint"}},
	// It reads the tables of checkpoints where they are.
	{dir: "checkpoint/inspect", below: []string{"tuple", "internal/parallel"}, exact: []string{"txn", "checkpoint", "checkpoint/pebblestate"}},
	{dir: "spout", below: []string{"tuple", "spout", "internal/atomicfile"}, exact: []string{"txn"}},
	{dir: "bolt", below: []string{"tuple", "bolt", "internal/atomicfile", "internal/filelock"}, exact: []string{"txn"}},
	// Its suite drives keyed sinks over a state in memory.
	{dir: "bolt/bolttest", below: []string{"tuple"}, exact: []string{"txn", "checkpoint", "checkpoint/memstore"}},
	{dir: "engine/config"},
	{dir: "engine/plan", below: []string{"tuple"}, exact: []string{"txn", "engine/config"}},
	{dir: "engine/poison"},
	{dir: "engine/link/peer", below: []string{"tuple"}, exact: []string{"engine/link"}},
	// A run without a data folder keeps its checkpoints in memory.
	{dir: "engine", below: []string{"tuple", "barrier", "txn", "engine"}, exact: []string{"checkpoint", "checkpoint/memstore"}},
	// It locks its data folder as the engine does.
	{dir: "engine/cluster/supervisor", below: []string{"engine/cluster"}, exact: []string{"checkpoint/filestore"}},
	{dir: "engine/cluster/process", below: []string{"tuple", "engine"}, exact: []string{"checkpoint", "internal/atomicfile"}},
	{dir: "engine/cluster/natscluster", exact: []string{"engine/cluster"}},
	{dir: "engine/cluster/natsserver", exact: []string{"internal/filelock"}},
	{dir: "engine/app", below: []string{"tuple", "barrier", "txn", "checkpoint", "engine", "spout", "bolt", "internal/atomicfile"}},
	{dir: "compat", below: []string{"tuple", "txn", "engine", "spout", "bolt", "compat"}},
	{dir: "internal/cli", below: []string{"tuple", "txn", "checkpoint", "engine", "compat", "internal/parallel"}},
	{dir: "cmd", below: []string{"internal/cli"}},
	{dir: "examples", below: []string{"tuple", "txn", "engine", "spout", "bolt", "compat", "internal/kjv", "internal/atomicfile"}},
	{dir: "internal/arch"},
	{dir: "internal/atomicfile"},
	{dir: "internal/filelock"},
	{dir: "internal/kjv"},
	{dir: "internal/parallel"},
	{dir: "internal/sim", below: []string{"tuple", "txn", "barrier", "checkpoint"}, exact: []string{"engine/poison", "engine/cluster", "engine/cluster/nimbus", "engine/cluster/schedule", "engine/cluster/supervisor/slots"}},
	{dir: "internal/crash", below: []string{"tuple", "txn", "barrier", "checkpoint", "engine", "spout", "bolt", "internal"}},
	{dir: "internal/chaos", below: []string{"tuple", "txn", "engine", "spout", "bolt", "internal/kjv", "internal/chaos"}},
	{dir: "internal/damage", below: []string{"tuple", "txn", "checkpoint", "engine", "internal/cli"}},
	{dir: "internal/metamorphic"}, // all of it is tests
	{dir: "internal/bench", below: []string{"tuple", "txn", "barrier", "checkpoint", "engine", "spout", "bolt", "internal"}},
}

func layerOf(dir string) (layer, bool) {
	var best layer
	found := false
	for _, l := range layers {
		if within(dir, l.dir) && (!found || len(l.dir) > len(best.dir)) {
			best, found = l, true
		}
	}
	return best, found
}

func (l layer) allows(dir string) bool {
	for _, e := range l.exact {
		if dir == e {
			return true
		}
	}
	return within(dir, l.below...)
}

// checkLayers: imports within the module point down. Tests may look anywhere.
func checkLayers(s *source) []string {
	if s.isTest() {
		return nil
	}
	l, found := layerOf(s.dir)
	if !found {
		return []string{s.at(s.ast.Name, "folder %s is in no layer; give it one in internal/arch", s.dir)}
	}
	var problems []string
	for p, spec := range s.imports() {
		if !within(p, module) {
			continue
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(p, module), "/")
		if !l.allows(dir) {
			problems = append(problems, s.at(spec, "%s must not import %s", s.dir, dir))
		}
	}
	return problems
}

// drivers names, for each package from outside the standard library, the folders
// that may import it. Tests, and the suites that adapters run in theirs, may import
// those for tests as well.
var drivers = map[string][]string{
	"github.com/cockroachdb/pebble/v2":  {"checkpoint/pebblestate", "internal/bench"},
	"github.com/klauspost/compress":     {"spout/file"},
	"github.com/minio/minio-go/v7":      {"checkpoint/s3store"},
	"github.com/nats-io/jwt/v2":         {"engine/cluster/natscluster", "engine/cluster/natsserver"},
	"github.com/nats-io/nats-server/v2": {"engine/cluster/natsserver"},
	"github.com/nats-io/nats.go":        {"engine/cluster/natscluster"},
	"github.com/nats-io/nkeys":          {"engine/cluster/natscluster"},
	"github.com/prometheus":             {"engine/metrics"},
	"github.com/spf13/cobra":            {"cmd", "internal/cli", "engine/app"},
	"github.com/spf13/pflag":            {"cmd", "internal/cli", "engine/app"},
	"golang.org/x/sys":                  {"engine/cluster/supervisor", "internal/filelock", "spout/file"},
	"golang.org/x/term":                 {"cmd", "internal/cli", "engine/app"},
	"gopkg.in/yaml.v3":                  {"engine/config", "engine/cluster/client", "engine/cluster/daemonconf"},
	"k8s.io":                            {"deploy/kubernetes/test"}, // a module of its own
	"sigs.k8s.io/yaml":                  {"deploy/kubernetes/test"},
}

// The file systems in memory of Pebble stand in for those that crash.
var forTests = []string{"github.com/cockroachdb/datadriven", "github.com/cockroachdb/pebble/v2/vfs", "pgregory.net/rapid"}

// checkDrivers: what comes from outside is imported only where it belongs.
func checkDrivers(s *source) []string {
	var problems []string
	for p, spec := range s.imports() {
		if isStandard(p) || within(p, module) || (s.isTest() || isSuite(s)) && within(p, forTests...) {
			continue
		}
		known := false
		for driver, dirs := range drivers {
			if within(p, driver) {
				known = true
				if !within(s.dir, dirs...) {
					problems = append(problems, s.at(spec, "%s must not import %s; only %s may",
						s.dir, p, strings.Join(dirs, ", ")))
				}
			}
		}
		if !known {
			problems = append(problems, s.at(spec, "%s imports %s, which has no place in internal/arch", s.dir, p))
		}
	}
	return problems
}

// isSuite reports whether a file belongs to a conformance suite: a package named for
// what it tests.
func isSuite(s *source) bool { return strings.HasSuffix(s.dir, "test") }

// isStandard reports whether p is of the standard library: its first element is no
// host name.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}
