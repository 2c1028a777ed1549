package engine

import "github.com/isobar-io/isobar/engine/master"

// Control steers a running topology from outside; see [WithControl]. Its methods do
// not wait and may be called at any time, also before the run.
type Control = master.Control

// NewControl returns a Control for one run.
func NewControl() *Control { return master.NewControl() }

// WithControl lets c steer the run.
func WithControl(c *Control) Option {
	return func(o *options) error { o.control = c; return nil }
}
