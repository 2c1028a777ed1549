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
	if *seed >= 0 {
		if r := Run(Options{Seed: uint64(*seed), Trace: os.Stdout}); r.Violation != nil {
			t.Fatalf("seed %d: violation: %v", *seed, r.Violation)
		}
		return
	}
	violations, events, counts := 0, 0, map[string]int{}
	for i := range *seeds {
		s := *first + uint64(i)
		r := Run(Options{Seed: s})
		if r.Violation != nil {
			if violations++; violations == 5 {
				t.Fatal("more violations than need be seen")
			}
			t.Errorf("seed %d: violation: %.1500s; replay with go test ./internal/sim -run TestSimulation -sim.seed=%d", s, r.Violation.Error(), s)
		}
		events += r.Events
		for what, n := range r.Counts {
			counts[what] += n
		}
	}
	t.Logf("%d seeds, %d events: %v", *seeds, events, counts)
}

// What the fault model promises must happen in the seeds that are always run, or a
// green run would say little.
func TestEveryFaultHappens(t *testing.T) {
	counts := map[string]int{}
	for s := range uint64(200) {
		for what, n := range Run(Options{Seed: s}).Counts {
			counts[what] += n
		}
	}
	for _, what := range []string{
		"commit", "batch given up", "connection cut", "task crash", "zombie task", "master crash", "zombie master",
		"fenced master", "fenced write", "frame doubled", "frame lost", "rejected", "repeated injection", "void",
		"outage", "target outage", "orphan", "topology failed", "finished again", "stopped", "restored", "object dropped",
		"resized", "killed", "rescaled sink task", "marker found", "tuple failed", "frame failed", "diverted", "interrupted", "store failed", "settled",
	} {
		if counts[what] == 0 {
			t.Errorf("no seed of the first 200 shows: %s", what)
		}
	}
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	for s := range uint64(20) {
		var a, b bytes.Buffer
		Run(Options{Seed: s, Trace: &a})
		Run(Options{Seed: s, Trace: &b})
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("seed %d gives different traces", s)
		}
	}
}

// Without any one of its rules the engine breaks, and the checks notice.
func TestChecksNoticeAMissingRule(t *testing.T) {
	for _, rule := range []struct {
		name string
		off  Rule
	}{
		{"alignment", Alignment},
		{"generation check", GenerationCheck},
		{"fence", Fence},
		{"head compare", HeadCompare},
		{"ack order", AckOrder},
		{"restored handles", RestoredHandles},
		{"handle lists", HandleLists},
		{"ordered commits", OrderedCommits},
		{"retained sources", RetainedSources},
		{"staged marker", StagedMarker},
		{"poison across rollbacks", PoisonAcrossRollbacks},
		{"interruptions", Interruptions},
		{"store failures", StoreFailures},
	} {
		t.Run(rule.name, func(t *testing.T) {
			const most = 500
			for s := range uint64(most) {
				if r := Run(Options{Seed: s, Off: rule.off}); r.Violation != nil {
					t.Logf("seed %d: %.300s", s, r.Violation)
					return
				}
			}
			t.Errorf("%d seeds without this rule violate nothing", most)
		})
	}
}
