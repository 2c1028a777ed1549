package txn

import (
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// TaskHook watches the tasks of a topology: for measuring and tracing, not for
// changing anything. Its methods are called on the goroutines of many tasks. Embed
// [NopHook] to implement only some.
type TaskHook interface {
	// Opened is called when a task has been restored, before its first tuple.
	Opened(c *Context)
	// Executed is called when a bolt has executed a frame, which is valid during the
	// call.
	Executed(c *Context, f *tuple.Frame, took time.Duration)
	// BatchFinished is called when a task has passed on the barrier of batch n.
	BatchFinished(c *Context, n BatchID)
	// Closed is called when a task has ended, also after a failure.
	Closed(c *Context)
}

// NopHook is a TaskHook that does nothing.
type NopHook struct{}

// Opened does nothing.
func (NopHook) Opened(*Context) {}

// Executed does nothing.
func (NopHook) Executed(*Context, *tuple.Frame, time.Duration) {}

// BatchFinished does nothing.
func (NopHook) BatchFinished(*Context, BatchID) {}

// Closed does nothing.
func (NopHook) Closed(*Context) {}
