package nimbus

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/engine/cluster"
)

// The transcripts are read with these commands; each but the first prints what is decided.
//
//	topology STATUS [from=STATUS] [step=STEP] [deadline=SECS] [left=REGION:REF,…] [unsettled] [nothing] [no-checkpoint]
//	run PHASE [REGION:REF[:down|:idle]…] [error=TEXT] [moved]     the status of the epoch that runs
//	at SECS                                                        time passes
//	settled, assigned, ended                                       what is known changes
func TestDecisions(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		var v view
		start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "topology":
				v = given(d, start)
			case "run":
				v.run = runOf(d, v.topology.Version.Epoch)
			case "at":
				secs, err := strconv.Atoi(d.CmdArgs[0].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				v.now = start.Add(time.Duration(secs) * time.Second)
			case "settled":
				v.settled = true
			case "assigned":
				v.assignment = &cluster.Assignment{Version: v.topology.Version}
			case "ended":
				v.assignment = nil
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			return transcript(&v, start)
		})
	})
}

func given(d *datadriven.TestData, start time.Time) view {
	t := cluster.Topology{Name: "wc", ID: "wc-1-1", UpdateSecs: 60}
	t.Version = cluster.Version{Epoch: 3, Binary: cluster.Binary{SHA256: "old"}}
	v := view{now: start, stopLimit: 20 * time.Second, settled: true, assignment: &cluster.Assignment{}}
	for i, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch {
		case i == 0:
			t.Status = cluster.Status(arg.Key)
		case arg.Key == "from":
			t.Previous = cluster.Status(value)
		case arg.Key == "step":
			t.Step = cluster.Step(value)
		case arg.Key == "deadline":
			secs, _ := strconv.Atoi(value)
			t.Deadline = start.Add(time.Duration(secs) * time.Second)
		case arg.Key == "left":
			t.Left = map[string]string{}
			for part := range strings.SplitSeq(value, ",") {
				region, ref, _ := strings.Cut(part, ":")
				t.Left[region] = ref
			}
		case arg.Key == "unsettled":
			v.settled = false
		case arg.Key == "nothing":
			v.assignment = nil
		case arg.Key == "no-checkpoint":
			t.NoCheckpoint = true
		}
	}
	other := cluster.Version{Epoch: 2, Binary: cluster.Binary{SHA256: "new"}, Start: cluster.StartSpec{From: "latest"}}
	switch t.Step {
	case cluster.StepDrain, cluster.StepStop, cluster.StepReturn:
		t.Next = &other
	case cluster.StepTry:
		t.Before = &other
		t.Version.Binary.SHA256, other.Binary.SHA256 = "new", "old"
	}
	v.topology = t
	return v
}

func runOf(d *datadriven.TestData, epoch uint64) *cluster.RunStatus {
	run := &cluster.RunStatus{Epoch: epoch, Phase: cluster.Phase(d.CmdArgs[0].Key)}
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "error":
			run.Error = strings.Join(arg.Vals, ",")
		case "moved":
			run.HeadMoved = true
		default:
			parts := strings.Split(arg.Key, ":")
			r := cluster.RegionState{Name: parts[0], Last: parts[1], Running: true}
			if len(parts) > 2 {
				r.Running, r.Idle = parts[2] != "down", parts[2] == "idle" || parts[2] == "again"
				if parts[2] == "again" {
					r.Restarts = 1
				}
			}
			run.Regions = append(run.Regions, r)
		}
	}
	return run
}

// transcript decides until nothing changes, and tells each decision.
func transcript(v *view, start time.Time) string {
	var sb strings.Builder
	for range stepsMax {
		out := decide(*v)
		same := reflect.DeepEqual(out.topology, v.topology)
		if out.topology.Version.Epoch != v.topology.Version.Epoch {
			v.run = nil
		}
		v.topology = out.topology
		if same {
			fmt.Fprintln(&sb, describe(out, start))
			return sb.String()
		}
	}
	return "it does not come to rest\n"
}

func describe(o outcome, start time.Time) string {
	t := o.topology
	words := []string{string(t.Status)}
	if t.Step != "" {
		words = append(words, string(t.Step)+" back to "+string(t.Previous))
	}
	words = append(words, fmt.Sprintf("%s epoch %d", t.Version.Binary.SHA256, t.Version.Epoch))
	if t.Version.Start.From != "" {
		words = append(words, "from "+t.Version.Start.From)
	}
	for _, region := range slices.Sorted(maps.Keys(t.Version.Start.Unmoved)) {
		words = append(words, "if "+region+" is at "+t.Version.Start.Unmoved[region])
	}
	if !t.Deadline.IsZero() {
		words = append(words, fmt.Sprintf("until %v", t.Deadline.Sub(start)))
	}
	if o.active {
		words = append(words, "active")
	}
	if o.stop {
		words = append(words, "stop")
	}
	words = append(words, [...]string{"run", "keep", "end"}[o.place])
	if o.forget {
		words = append(words, "forget")
	}
	text := strings.Join(words, ", ")
	if t.Error != "" {
		text += "\n  " + t.Error
	}
	return text
}

// Whatever is known, a decision comes to rest, spouts emit only where the status says so, a
// killed topology never comes back, and an epoch never goes down.
func TestDecisionsComeToRest(t *testing.T) {
	statuses := []cluster.Status{cluster.Active, cluster.Inactive, cluster.Killed, cluster.Rebalancing, cluster.Updating, cluster.Finished, cluster.Failed}
	phases := []cluster.Phase{"", cluster.PhaseStarting, cluster.PhaseRunning, cluster.PhaseStopped, cluster.PhaseFinished, cluster.PhaseFailed}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		v := view{now: now, stopLimit: 20 * time.Second, settled: rapid.Bool().Draw(t, "settled")}
		top := cluster.Topology{Status: rapid.SampledFrom(statuses).Draw(t, "status"), Version: cluster.Version{Epoch: 5}}
		top.Deadline = now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "left")) * time.Second)
		if top.Status == cluster.Rebalancing || top.Status == cluster.Updating {
			top.Previous = rapid.SampledFrom([]cluster.Status{cluster.Active, cluster.Inactive}).Draw(t, "previous")
			top.Step = rapid.SampledFrom([]cluster.Step{cluster.StepDrain, cluster.StepStop, cluster.StepTry, cluster.StepReturn}).Draw(t, "step")
			other := &cluster.Version{Epoch: 4}
			if top.Next = other; top.Step == cluster.StepTry {
				top.Next, top.Before = nil, other
			}
		}
		if rapid.Bool().Draw(t, "assigned") {
			v.assignment = &cluster.Assignment{Stop: rapid.Bool().Draw(t, "stop")}
		}
		if phase := rapid.SampledFrom(phases).Draw(t, "phase"); phase != "" {
			v.run = &cluster.RunStatus{Phase: phase, HeadMoved: rapid.Bool().Draw(t, "moved"),
				Regions: []cluster.RegionState{{Name: "a", Last: rapid.SampledFrom([]string{"", "1.1"}).Draw(t, "last"), Running: rapid.Bool().Draw(t, "running")}}}
		}
		v.topology = top
		for range stepsMax {
			out := decide(v)
			now := out.topology
			if top.Status == cluster.Killed && now.Status != cluster.Killed {
				t.Fatalf("a killed topology is %s", now.Status)
			}
			if now.Version.Epoch < v.topology.Version.Epoch {
				t.Fatalf("epoch %d after %d", now.Version.Epoch, v.topology.Version.Epoch)
			}
			mayRun := now.Status == cluster.Active || now.Step != "" && now.Previous == cluster.Active
			if out.active && (!mayRun || now.Step == cluster.StepDrain || now.Step == cluster.StepStop) {
				t.Fatalf("spouts emit although it is %s, step %q", now.Status, now.Step)
			}
			if out.forget && (now.Status != cluster.Killed || v.assignment != nil) {
				t.Fatalf("a topology that is %s is forgotten", now.Status)
			}
			if reflect.DeepEqual(now, v.topology) {
				return
			}
			if now.Version.Epoch != v.topology.Version.Epoch {
				v.run = nil
			}
			v.topology = now
		}
		t.Fatalf("does not come to rest")
	})
}
