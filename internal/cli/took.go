package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// phases are the parts of a task in a checkpoint, as metrics name them.
var phases = []struct {
	name string
	of   func(checkpoint.Took) int64
}{
	{"align", func(t checkpoint.Took) int64 { return t.Align }},
	{"copy", func(t checkpoint.Took) int64 { return t.Copy }},
	{"write", func(t checkpoint.Took) int64 { return t.Write }},
}

// tookOf says how long a task took. The zero Took is that of a manifest which does not
// tell.
func tookOf(t checkpoint.Took) string {
	if t == (checkpoint.Took{}) {
		return "-"
	}
	var parts []string
	for _, phase := range phases {
		parts = append(parts, phase.name+" "+micros(phase.of(t)))
	}
	return strings.Join(parts, ", ")
}

// took prints how long a checkpoint took: as a whole, of all tasks together, and the task
// that took longest, altogether and in each phase.
func (p *printer) took(m *checkpoint.Manifest) {
	whole := "-"
	if m.TookMicros > 0 {
		whole = micros(m.TookMicros) + " from the barrier to the manifest"
	}
	p.line("%stook %s", indent, whole)
	if slowest, took := slowestTask(m, checkpoint.Took.Total); took > 0 {
		p.line("%s%sslowest task: %s, %s", indent, indent, micros(took), slowest)
	}
	for _, phase := range phases {
		sum := int64(0)
		for _, t := range m.Tasks {
			sum += phase.of(t.Took)
		}
		if slowest, took := slowestTask(m, phase.of); took > 0 {
			p.line("%s%s%s: %s in all tasks, the longest %s, %s", indent, indent, phase.name, micros(sum), micros(took), slowest)
		}
	}
}

// slowestTask returns the first of the tasks that took longest, and how long.
func slowestTask(m *checkpoint.Manifest, of func(checkpoint.Took) int64) (name string, took int64) {
	for _, t := range m.Tasks {
		if n := of(t.Took); n > took {
			name, took = fmt.Sprintf("%s/%d", t.Component, t.Index), n
		}
	}
	return name, took
}

// micros shows a number of microseconds with three digits or so.
func micros(n int64) string {
	d := time.Duration(n) * time.Microsecond
	for unit := time.Microsecond; unit < time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
