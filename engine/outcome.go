package engine

import (
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/master"
)

// Outcome says how a run ended in order.
type Outcome = checkpoint.Outcome

// ComponentProgress counts the tuples of a component; see [Progress].
type ComponentProgress = master.ComponentProgress

// The outcomes.
const (
	Completed = checkpoint.Completed // all input has been processed
	Stopped   = checkpoint.Stopped   // it was asked to stop
)
