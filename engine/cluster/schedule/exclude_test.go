package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// supervisors returns a view of n supervisors, s0 and on, with two slots each.
func supervisors(n int) View {
	var v View
	for i := range n {
		s := Supervisor{Alive: true}
		s.ID, s.Host, s.Machine = fmt.Sprint("s", i), fmt.Sprint("h", i), fmt.Sprint("m", i/2)
		s.Ports = []int{1, 2}
		v.Supervisors = append(v.Supervisors, s)
	}
	return v
}

func wanting(v View, workers int) View {
	var top Topology
	top.Record.ID, top.Record.Name = fmt.Sprint("t", len(v.Topologies)), fmt.Sprint("t", len(v.Topologies))
	top.Record.Version = cluster.Version{Workers: workers, Components: []cluster.ComponentSpec{component("in", 1, 10)}}
	v.Topologies = append(slices.Clone(v.Topologies), top)
	return v
}

func excluded(v View) string {
	var ids []string
	for _, s := range v.Supervisors {
		if s.Excluded != "" {
			ids = append(ids, s.ID)
		}
	}
	return strings.Join(ids, " ")
}

func TestCordon(t *testing.T) {
	v := wanting(supervisors(6), 6)
	before := carryOut(v, Even(v))
	cordoned := Cordon(before, []string{"s0", "h3", "m2", "nobody"})
	if got := excluded(cordoned); got != "s0 s3 s4 s5" {
		t.Errorf("cordoned: %s", got)
	}
	if got := excluded(before); got != "" {
		t.Errorf("the view was altered: %s are excluded", got)
	}
	if got := excluded(Cordon(cordoned, nil)); got != "s0 s3 s4 s5" {
		t.Errorf("another cordon has freed those of the first: %s", got)
	}
	if plan := Even(cordoned); !equal(plan, Even(before)) {
		t.Errorf("what runs on cordoned supervisors has moved: %v", plan)
	}
	before.Topologies[0].Places[0].Dead = true // s0/1
	plan := Even(Cordon(before, []string{"s0", "m1", "m2"}))
	if got := plan["t0"].Workers[1].ID(); got != "s1/2" || len(plan["t0"].Workers) != 6 {
		t.Errorf("in the place of s0/1 comes %s: %v", got, plan["t0"].Workers)
	}
}

func TestBlacklist(t *testing.T) {
	const second = time.Second
	b := NewBlacklist(BlacklistConfig{Count: 3, Within: 300 * second, For: 1800 * second})
	v := supervisors(4)
	for _, step := range []struct {
		at     time.Duration
		failed string // before the look
		want   string
	}{
		{at: 0, failed: "s0", want: ""},
		{at: 100 * second, failed: "s0", want: ""},
		{at: 300 * second, failed: "s0", want: ""}, // the first is forgotten
		{at: 301 * second, failed: "s1", want: ""},
		{at: 399 * second, failed: "s0", want: "s0"},
		{at: 400 * second, failed: "s1", want: "s0"},
		{at: 401 * second, failed: "s1", want: "s0 s1"},
		{at: 500 * second, failed: "s0", want: "s0 s1"}, // does not add to what was counted
		{at: 2198 * second, want: "s0 s1"},
		{at: 2199 * second, want: "s1"},
		{at: 2200 * second, failed: "s0", want: "s1"},
		{at: 2201 * second, want: ""},
	} {
		if step.failed != "" {
			b.Failed(step.at, step.failed)
		}
		if got := excluded(b.Apply(step.at, v)); got != step.want {
			t.Errorf("at %v %q are excluded, want %q", step.at, got, step.want)
		}
	}
	if len(b.failures) != 1 || len(b.until) != 0 {
		t.Errorf("it remembers %v and %v", b.failures, b.until)
	}
	b.Apply(time.Hour, v)
	if len(b.failures) != 0 {
		t.Errorf("it remembers %v", b.failures)
	}
}

// What is on the list works again when slots are short, the first of it first.
func TestBlacklistYields(t *testing.T) {
	b := NewBlacklist(BlacklistConfig{Count: 1, Within: time.Minute, For: time.Hour})
	v := supervisors(5)
	v.Supervisors[1].Excluded = "cordoned"
	for i, id := range []string{"s1", "s4", "s2", "s3"} {
		b.Failed(time.Duration(i), id)
	}
	for _, step := range []struct {
		workers int
		want    string
	}{
		{0, "s1 s2 s3 s4"}, {2, "s1 s2 s3 s4"}, {3, "s1 s2 s3"}, {4, "s1 s2 s3"}, {6, "s1 s3"}, {1, "s1 s3"}, {9, "s1"},
	} {
		now := v
		if step.workers > 0 {
			now = wanting(v, step.workers)
		}
		if got := excluded(b.Apply(time.Minute, now)); got != step.want {
			t.Errorf("with %d workers %q are excluded, want %q", step.workers, got, step.want)
		}
	}
	// What is placed needs no slots, and what does not want to change neither.
	b.Failed(time.Minute, "s0")
	placed := wanting(supervisors(2), 3)
	placed.Topologies[0].Places = []Place{{WorkerPlace: cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: "s0", Port: 1}, Tasks: []int{1}}}}
	frozen := wanting(placed, 6)
	frozen.Topologies[1].Frozen = true
	if got := excluded(b.Apply(time.Minute, frozen)); got != "s0" {
		t.Errorf("%q are excluded, want s0", got)
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		config map[string]any
		want   string
	}{
		{nil, "[] 128 10 768"},
		{map[string]any{KeyHosts: " a, b ,,"}, "[a b] 128 10 768"},
		{map[string]any{KeyHosts: []any{"a", "b=c"}}, "[a b=c] 128 10 768"},
		{map[string]any{KeyHosts: []string{"a"}}, "[a] 128 10 768"},
		{map[string]any{KeyTaskMemory: 1.0, KeyTaskMemoryOffHeap: 2, KeyTaskCPU: 3, KeyWorkerMemory: 4.0}, "[] 3 3 4"},
	} {
		s := settingsOf(c.config)
		if got := fmt.Sprint(s.hosts, s.taskMemory, s.taskCPU, s.heapSize); got != c.want || s.err != nil {
			t.Errorf("%v: %s, %v; want %s", c.config, got, s.err, c.want)
		}
	}
	for _, config := range []map[string]any{
		{KeyHosts: 1.0}, {KeyHosts: []any{"a", 1}}, {KeyTaskCPU: "10"}, {KeyTaskCPU: 1.5}, {KeyTaskMemory: -1}, {KeyWorkerMemory: -1.0},
	} {
		if s := settingsOf(config); s.err == nil {
			t.Errorf("%v is accepted", config)
		}
	}
}
