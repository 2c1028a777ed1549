package nimbus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
)

// place is what is to become of a topology's processes.
type place uint8

const (
	placeRun  place = iota // they run, or are to be found slots
	placeKeep              // those that were assigned go on; without an assignment none is made
	placeEnd               // they are to end, and the assignment is to go
)

// view is what is known of one topology when it is decided about.
type view struct {
	now        time.Time // by the clock that sets deadlines
	stopLimit  time.Duration
	topology   cluster.Topology
	assignment *cluster.Assignment // nil: none
	run        *cluster.RunStatus  // of the epoch of topology.Version; nil: none yet
	ends       []string            // how processes of that epoch have ended
	// settled: everybody has had the time to tell how he is since this nimbus began to
	// lead, or the store came back. Before that no time limit is held against anybody.
	settled bool
}

// outcome is what is to be.
type outcome struct {
	topology cluster.Topology
	active   bool // spouts may emit
	stop     bool // take a last checkpoint and end
	place    place
	forget   bool // a killed topology has no processes any more: all of it goes
}

// decide returns what is to be of a topology. It is to be asked again when it has changed
// the topology.
func decide(v view) outcome {
	out := outcome{topology: v.topology}
	switch v.topology.Status {
	case cluster.Active, cluster.Inactive:
		v.running(&out)
	case cluster.Rebalancing, cluster.Updating:
		v.changing(&out)
	case cluster.Killed:
		v.killed(&out)
	case cluster.Finished, cluster.Failed:
		out.place = placeEnd
	}
	return out
}

func (v *view) phase() cluster.Phase {
	if v.run == nil {
		return ""
	}
	return v.run.Phase
}

// overdue reports whether a time limit is exceeded.
func (v *view) overdue(limit time.Time) bool { return v.settled && !v.now.Before(limit) }

func (v *view) running(out *outcome) {
	out.active = v.topology.Status == cluster.Active
	switch v.phase() {
	case cluster.PhaseFinished, cluster.PhaseFailed:
		v.ended(out)
	case cluster.PhaseStarting, cluster.PhaseRunning: // it is as it should be
	case cluster.PhaseStopped: // nobody wants it to be any more
		again(&out.topology)
	}
}

// ended makes a topology FINISHED or FAILED, as its master says. A change that was under
// way is dropped.
func (v *view) ended(out *outcome) {
	t := &out.topology
	out.active, out.place = false, placeEnd
	if t.Status = cluster.Finished; v.run.Phase == cluster.PhaseFailed {
		t.Status = cluster.Failed
		t.Error = v.run.Error
	}
	settle(t)
}

// settle forgets a change.
func settle(t *cluster.Topology) {
	t.Previous, t.Step, t.Before, t.Next, t.Left = "", "", nil, nil, nil
	t.UpdateSecs, t.Deadline = 0, time.Time{}
}

// again gives a topology new processes, which go on from the head.
func again(t *cluster.Topology) { t.Version = after(t.Version.Epoch, t.Version, nil) }

// after returns what version is to be after an epoch. It goes on from the head.
func after(epoch uint64, version cluster.Version, unmoved map[string]string) cluster.Version {
	version.Epoch = epoch + 1
	version.Start = cluster.StartSpec{From: cluster.FromHead, Unmoved: unmoved}
	return version
}

func (v *view) changing(out *outcome) {
	t := &out.topology
	switch t.Step {
	case cluster.StepDrain, cluster.StepStop:
		v.stopping(out)
	case cluster.StepTry:
		out.active = t.Previous == cluster.Active
		v.trying(out)
	case cluster.StepReturn:
		out.active = t.Previous == cluster.Active
		v.returning(out)
	default: // a step of a later version of Isobar
		out.place = placeKeep
	}
}

// stopping: the spouts are stopped, then the old version takes its last checkpoint, from
// which the new one goes on.
func (v *view) stopping(out *outcome) {
	t := &out.topology
	switch phase := v.phase(); {
	case phase == cluster.PhaseFinished, phase == cluster.PhaseFailed:
		v.ended(out)
	case t.Step == cluster.StepDrain && v.assignment != nil && v.now.Before(t.Deadline):
	case phase == cluster.PhaseStopped, v.assignment == nil:
		v.swap(out)
	case t.Step == cluster.StepDrain:
		t.Step, t.Deadline = cluster.StepStop, v.now.Add(v.stopLimit)
		out.stop = true
	case v.overdue(t.Deadline):
		v.giveUp(out)
	default:
		out.stop = true
	}
}

func (v *view) giveUp(out *outcome) {
	t := &out.topology
	t.Error = fmt.Sprintf("the %s was given up: the last checkpoint was not there after %v (nimbus.stop.timeout.secs)", change(t), v.stopLimit)
	t.Status = t.Previous
	out.active = t.Status == cluster.Active
	settle(t)
}

// change says what is being done to t.
func change(t *cluster.Topology) string {
	if t.Status == cluster.Updating {
		return "update"
	}
	return "rebalance"
}

func (v *view) swap(out *outcome) {
	t := &out.topology
	before, next := t.Version, *t.Next
	next.Epoch = before.Epoch + 1
	t.Before, t.Version, t.Next = &before, next, nil
	t.Step, t.Deadline = cluster.StepTry, v.now.Add(time.Duration(t.UpdateSecs)*time.Second)
	t.Left = v.newest()
	out.active = t.Previous == cluster.Active
}

// newest returns the newest checkpoint of each region.
func (v *view) newest() map[string]string {
	newest := map[string]string{}
	if v.run != nil {
		for _, r := range v.run.Regions {
			newest[r.Name] = r.Last
		}
	}
	return newest
}

// moved reports whether a region has committed since the old version had stopped. Where
// that had stopped may not be known: then only what the generation that runs now has
// committed counts. Regions may have other names by now.
func (v *view) moved() bool {
	left := slices.Collect(maps.Values(v.topology.Left))
	return v.run != nil && slices.ContainsFunc(v.run.Regions, func(r cluster.RegionState) bool {
		g, _, err := checkpoint.ParseRef(r.Last)
		return err == nil && !slices.Contains(left, r.Last) && (len(left) > 0 || g == r.Generation)
	})
}

// quiet reports whether all regions run, and have from the start, and none has anything to
// commit. One that had to start again may fail at its first tuple every time, and has
// nothing to commit until that comes.
func (v *view) quiet() bool {
	idle := v.topology.Previous == cluster.Inactive
	return v.phase() == cluster.PhaseRunning && !slices.ContainsFunc(v.run.Regions, func(r cluster.RegionState) bool {
		return !r.Running || r.Restarts > 0 || !r.Idle && !idle
	})
}

// trying: the new version runs until it has committed, or its time is over.
func (v *view) trying(out *outcome) {
	t := &out.topology
	switch phase := v.phase(); {
	case phase == cluster.PhaseFinished:
		v.ended(out)
	case v.moved():
		t.Status, t.Error = t.Previous, ""
		settle(t)
	case phase == cluster.PhaseFailed:
		v.takeBack(out, v.run.Error)
	case phase == cluster.PhaseStopped:
		again(t)
	case !v.overdue(t.Deadline):
	case v.quiet():
		t.Status, t.Error = t.Previous, ""
		settle(t)
	default:
		v.takeBack(out, v.stuck())
	}
}

// stuck says what is known of a version that has not committed in time.
func (v *view) stuck() string {
	text := fmt.Sprintf("it committed nothing in %d s", v.topology.UpdateSecs)
	ends := ""
	if len(v.ends) > 0 {
		ends = fmt.Sprintf(": %s; see isobar logs %s", strings.Join(v.ends, ", "), v.topology.Name)
	}
	if v.run == nil {
		return text + ", its topology master has not come up" + ends
	}
	if v.run.Error != "" {
		return text + ": " + v.run.Error
	}
	if n := len(v.run.Errors); n > 0 {
		last := v.run.Errors[n-1]
		return fmt.Sprintf("%s, the last error was %s in %s: %s", text, last.Time.Format(time.TimeOnly), last.Component, last.Error)
	}
	var down []string
	for _, r := range v.run.Regions {
		if !r.Running {
			down = append(down, r.Name)
		}
	}
	if len(down) > 0 {
		text += ", not running: " + strings.Join(down, ", ")
	}
	return text + ends
}

// takeBack lets what ran before take its place again, if the head is still where it was.
func (v *view) takeBack(out *outcome, why string) {
	t := &out.topology
	refused := t.Version
	t.Error = fmt.Sprintf("the %s was taken back: %s", change(t), why)
	t.Version = after(t.Version.Epoch, *t.Before, t.Left)
	t.Next, t.Before = &refused, nil
	t.Step = cluster.StepReturn
	t.Deadline = time.Time{}
}

func (v *view) returning(out *outcome) {
	t := &out.topology
	switch phase := v.phase(); {
	case phase == cluster.PhaseFailed && v.run.HeadMoved:
		t.Version = after(t.Version.Epoch, *t.Next, nil)
		t.Status, t.Error = t.Previous, ""
		settle(t)
	case phase == cluster.PhaseFailed:
		why := t.Error
		v.ended(out)
		t.Error = why + "; then it failed: " + t.Error
	case phase == cluster.PhaseFinished:
		v.ended(out)
	case phase == cluster.PhaseStopped:
		t.Version = after(t.Version.Epoch, t.Version, t.Left)
	case phase == cluster.PhaseRunning:
		t.Status = t.Previous
		settle(t)
	}
}

// killed: the spouts are stopped until the deadline, then a last checkpoint is taken, then
// all ends.
func (v *view) killed(out *outcome) {
	t := &out.topology
	out.place = placeKeep
	phase := v.phase()
	over := phase == cluster.PhaseStopped || phase == cluster.PhaseFinished || phase == cluster.PhaseFailed
	switch {
	case v.assignment == nil:
		out.forget = true
	case v.assignment.Stop, over:
		out.place = placeEnd
	case v.now.Before(t.Deadline):
	case t.NoCheckpoint, v.overdue(t.Deadline.Add(v.stopLimit)):
		out.place = placeEnd
	default:
		out.stop = true
	}
}
