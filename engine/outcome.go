package engine

import (
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/master"
	"github.com/isobar-io/isobar/engine/task"
)

// Outcome says how a run ended in order.
type Outcome = checkpoint.Outcome

// ComponentProgress counts the tuples of a component; see [Progress].
type ComponentProgress = master.ComponentProgress

// ReportedError is an error that a component has reported; see [Progress].
type ReportedError = master.ReportedError

// FailedStream is the stream of a bolt to which tuples go on which its code keeps
// failing; see topology.poison.max.attempts. Its fields are "source", "stream",
// "reason", "attempts" and "values" (a []tuple.Value).
const FailedStream = task.FailedStream

// The outcomes.
const (
	Completed = checkpoint.Completed // all input has been processed
	Stopped   = checkpoint.Stopped   // it was asked to stop
)
