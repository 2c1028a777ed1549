package master

import (
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/task"
)

// Control steers a running topology from outside.
type Control struct{ mail *link.Mailbox[command] }

type command uint8

const (
	activate command = iota
	deactivate
	checkpointNow
)

// NewControl returns a Control for one run.
func NewControl() *Control { return &Control{link.NewMailbox[command]()} }

// Deactivate stops the input: spouts emit nothing more until Activate. What is under
// way is processed and committed.
func (c *Control) Deactivate() { c.mail.Put(deactivate) }

// Activate lets spouts emit again.
func (c *Control) Activate() { c.mail.Put(activate) }

// Checkpoint asks for a checkpoint now, whatever the interval is.
func (c *Control) Checkpoint() { c.mail.Put(checkpointNow) }

// obey does what the operator says.
func (m *Master) obey(c command) {
	switch c {
	case activate, deactivate:
		m.activity = task.Active
		if c == deactivate {
			m.activity = task.Inactive
		}
		for _, r := range m.regions {
			if r.started {
				m.spouts(r, task.Control{Activity: m.activity})
			}
		}
	case checkpointNow:
		for _, r := range m.regions {
			m.step(r, checkpoint.CheckpointRequested{})
		}
	}
}
