package remote

import (
	"fmt"

	"github.com/isobar-io/isobar/engine/worker"
)

// count takes what a worker has counted, on top of what earlier processes had.
func (c *Crew) count(m *member, all []worker.Count) error {
	for _, n := range all {
		if n.Task < 1 || n.Task > len(c.slots) {
			return fmt.Errorf("counts of task %d, and there are %d", n.Task, len(c.slots))
		}
		s := c.slots[n.Task-1]
		if len(n.Emitted) != len(s.Emitted) || len(n.Executed) != len(s.Executed) {
			return fmt.Errorf("counts of task %d are of %d streams and %d inputs, and it has %d and %d", n.Task, len(n.Emitted), len(n.Executed), len(s.Emitted), len(s.Executed))
		}
		base := m.base[n.Task]
		for i, v := range n.Emitted {
			if base.Emitted != nil {
				v += base.Emitted[i]
			}
			s.Emitted[i].Store(v)
		}
		for i, v := range n.Executed {
			if base.Executed != nil {
				v += base.Executed[i]
			}
			s.Executed[i].Store(v)
		}
	}
	return nil
}
