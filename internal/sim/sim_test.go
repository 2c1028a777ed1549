package sim

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var (
	seeds = flag.Int("sim.seeds", 200, "how many seeds TestSimulation runs")
	first = flag.Uint64("sim.first", 0, "the first of them")
	seed  = flag.Int64("sim.seed", -1, "the one seed to run instead, with a full trace")
)

func TestSimulation(t *testing.T) {
	t.Parallel()
	simulate(t, "TestSimulation", *seeds, Options{})
}

// On a cluster a seed takes longer, and there are fewer of them.
func TestCluster(t *testing.T) {
	t.Parallel()
	simulate(t, "TestCluster", max(*seeds/clusterShare, min(*seeds, 200)), Options{Cluster: true})
}

// clusterShare is how many seeds of a plain run there are for each of a cluster.
const clusterShare = 4

func simulate(t *testing.T, name string, n int, o Options) {
	if *seed >= 0 {
		o.Seed, o.Trace = uint64(*seed), os.Stdout
		if r := Run(o); r.Violation != nil {
			t.Fatalf("seed %d: violation: %v", *seed, r.Violation)
		}
		return
	}
	violations, events, counts := 0, 0, map[string]int{}
	for i := range n {
		o.Seed = *first + uint64(i)
		r := Run(o)
		if r.Violation != nil {
			if violations++; violations == 5 {
				t.Fatal("more violations than need be seen")
			}
			t.Errorf("seed %d: violation: %.1500s; replay with go test ./internal/sim -run '^%s$' -sim.seed=%d", o.Seed, r.Violation.Error(), name, o.Seed)
		}
		events += r.Events
		for what, n := range r.Counts {
			counts[what] += n
		}
	}
	t.Logf("%d seeds, %d events: %v", n, events, counts)
}

// What the fault model promises must happen in the seeds that are always run, or a
// green run would say little.
func TestEveryFaultHappens(t *testing.T) {
	happens(t, Options{}, []string{
		"commit", "batch given up", "connection cut", "task crash", "zombie task", "master crash", "zombie master",
		"fenced master", "fenced write", "frame doubled", "frame lost", "rejected", "repeated injection", "void",
		"outage", "target outage", "orphan", "topology failed", "finished again", "stopped", "restored", "object dropped",
		"resized", "killed", "rescaled sink task", "marker found", "tuple failed", "frame failed", "diverted", "interrupted", "store failed", "settled",
	})
}

// The same on a cluster.
func TestEveryClusterFaultHappens(t *testing.T) {
	happens(t, Options{Cluster: true}, []string{
		"commit", "connection cut", "lease over", "link broken", "worker replaced", "old worker refused", "fenced master", "fenced write",
		"process paused", "machine frozen", "machine crash", "machine cut off", "machine sick", "process crash", "process astray",
		"clock jumped", "records away", "records wiped", "stale read", "nimbus crash", "nimbus deposed", "supervisor restarted",
		"master moved", "worker moved", "replaced master", "rollback", "rollback went back", "went back", "start went back", "savepoint",
		"update", "rebalance", "update taken back", "killed", "submitted from a checkpoint", "activate", "deactivate", "stopped", "finished",
	})
}

func happens(t *testing.T, o Options, all []string) {
	counts := map[string]int{}
	for o.Seed = range 200 {
		for what, n := range Run(o).Counts {
			counts[what] += n
		}
	}
	for _, what := range all {
		if counts[what] == 0 {
			t.Errorf("no seed of the first 200 shows: %s", what)
		}
	}
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	for s := range uint64(20) {
		for _, cluster := range []bool{false, true} {
			var a, b bytes.Buffer
			Run(Options{Seed: s, Cluster: cluster, Trace: &a})
			Run(Options{Seed: s, Cluster: cluster, Trace: &b})
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("seed %d gives different traces, cluster: %v", s, cluster)
			}
		}
	}
}

// rule is a rule that a test does without, and the seed from which on it looks for one
// that shows it.
type rule struct {
	name  string
	off   Rule
	first uint64
}

// Without any one of its rules the engine breaks, and the checks notice.
func TestChecksNoticeAMissingRule(t *testing.T) {
	notice(t, Options{}, 500, []rule{
		{"alignment", Alignment, 0},
		{"generation check", GenerationCheck, 0},
		{"fence", Fence, 0},
		{"head compare", HeadCompare, 0},
		{"ack order", AckOrder, 0},
		{"restored handles", RestoredHandles, 0},
		{"handle lists", HandleLists, 0},
		{"ordered commits", OrderedCommits, 0},
		{"retained sources", RetainedSources, 0},
		{"staged marker", StagedMarker, 0},
		{"poison across rollbacks", PoisonAcrossRollbacks, 0},
		{"interruptions", Interruptions, 0},
		{"store failures", StoreFailures, 0},
	})
}

// The same on a cluster. Some rules are needed only when several things go wrong at once.
func TestClusterChecksNoticeAMissingRule(t *testing.T) {
	notice(t, Options{Cluster: true}, 4000, []rule{
		{"fence", Fence, 193},
		{"head compare", HeadCompare, 3},
		{"ack order", AckOrder, 0},
		{"incarnations", Incarnations, 8},
		{"leases", Leases, 29},
		{"links", Links, 225},
		{"start once", StartOnce | OldStarts, 27},
		{"old starts", OldStarts, 2746},
		{"strict starts", StrictStarts, 12497},
		{"master's word", MastersWord, 817},
		{"master records", MasterRecords, 1101},
		{"dismissed again", DismissedAgain, 335},
		{"hung again", HungAgain, 74},
		{"nothing left", NothingLeft, 30},
	})
}

func notice(t *testing.T, o Options, most uint64, rules []rule) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			o.Off = rule.off
			for o.Seed = rule.first; o.Seed < rule.first+most; o.Seed++ {
				if r := Run(o); r.Violation != nil {
					t.Logf("seed %d: %.300s", o.Seed, r.Violation)
					return
				}
			}
			t.Errorf("%d seeds without this rule violate nothing", most)
		})
	}
}
