package engine

import "github.com/isobar-io/isobar/checkpoint"

// Outcome says how a run ended in order.
type Outcome = checkpoint.Outcome

// The outcomes.
const (
	Completed = checkpoint.Completed // all input has been processed
	Stopped   = checkpoint.Stopped   // it was asked to stop
)
