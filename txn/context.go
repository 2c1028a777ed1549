package txn

import (
	"context"
	"log/slog"

	"github.com/isobar-io/isobar/tuple"
)

// Context tells a task who it is. It is valid for one generation of the task.
type Context struct {
	Topology   string
	Component  string
	TaskIndex  int // index within the component, from 0
	TaskCount  int // tasks of the component
	TaskID     int // topology-wide id
	Generation tuple.Generation
	Logger     *slog.Logger
	// Config returns the effective value of a configuration key for this task.
	Config func(key string) (value any, ok bool)

	ctx  context.Context
	wake func()
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

// Wake ends the idling of a spout: NextTuple is called at once. It may be called
// from any goroutine.
func (c *Context) Wake() {
	if c.wake != nil {
		c.wake()
	}
}
