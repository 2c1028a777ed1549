package txn

import (
	"context"
	"log/slog"

	"github.com/isobar-io/isobar/tuple"
)

// Context tells a task who it is. It is valid for one generation of the task; that of
// an instance that lives on (see [StatefulBolt]) moves on with it.
type Context struct {
	Topology   string
	Component  string
	TaskIndex  int    // index within the component, from 0
	TaskCount  int    // tasks of the component
	TaskID     int    // topology-wide id, from 1
	RunID      string // names the line of checkpoints; part of transaction ids
	Generation tuple.Generation
	Logger     *slog.Logger
	// Config returns the effective value of a configuration key for this task.
	Config func(key string) (value any, ok bool)
	// TaskIDs returns the topology-wide ids of a component's tasks, in order; nil if
	// there is no such component.
	TaskIDs func(component string) []int
	// Secrets returns what Credentials does, if set.
	Secrets func() map[string]string
	Outputs []*tuple.Stream // what the component emits
	Inputs  []*tuple.Stream // what it subscribes to

	ctx   context.Context
	wake  func()
	error func(error)
	cut   func()
}

// NewContext returns a copy of c that ends with ctx and whose Wake calls wake.
// The engine and the conformance suites use it.
func NewContext(ctx context.Context, c Context, wake func()) *Context {
	c.ctx, c.wake = ctx, wake
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &c
}

// Context returns a context that ends with the task's generation: whatever waits
// inside a component must end with it.
func (c *Context) Context() context.Context { return c.ctx }

// Credentials returns the secrets that the topology was given last (isobar
// upload-credentials), by name; ask again, for they are renewed while it runs. There are
// none outside of a cluster. The map must not be changed. It may be called from any
// goroutine.
func (c *Context) Credentials() map[string]string {
	if c.Secrets == nil {
		return nil
	}
	return c.Secrets()
}

// OnError sets what is told of errors that the component reports. The engine and
// tests call it.
func (c *Context) OnError(report func(error)) { c.error = report }

// ReportError shows an error to operators without failing the task. So many are shown
// in each interval (topology.max.error.report.per.interval), the rest is counted. It
// may be called from any goroutine.
func (c *Context) ReportError(err error) {
	if c.error != nil && err != nil {
		c.error(err)
	}
}

// OnCheckpoint sets what is called to ask for a checkpoint. The engine and tests call
// it.
func (c *Context) OnCheckpoint(request func()) { c.cut = request }

// RequestCheckpoint asks that the open batch be closed now, whatever the interval is:
// for spouts that know where a batch should end. It may be called from any goroutine,
// does not wait, and promises no more than that a barrier follows soon.
func (c *Context) RequestCheckpoint() {
	if c.cut != nil {
		c.cut()
	}
}

// Wake ends the idling of a spout: NextTuple is called at once. It may be called
// from any goroutine.
func (c *Context) Wake() {
	if c.wake != nil {
		c.wake()
	}
}
