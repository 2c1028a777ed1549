package master

import "time"

// settleMax bounds how long the end of a run is held up to have the head say that
// everything is published. Nothing is lost without it: what the head does not know to be
// settled, an operator who undoes it and wants it back is asked about.
const settleMax = 3 * time.Second

// settling reports whether the end of a run still has to wait for that. A store that
// has not answered is not tried again. The loop asks once a second at least.
func (m *Master) settling() bool {
	if !m.mover.Busy() || m.pause {
		return false
	}
	if m.ending == 0 {
		m.ending = max(m.now(), 1)
	}
	return m.now()-m.ending < settleMax
}

// notSettled tells of a run that has ended in order and could not say so in the head.
func (m *Master) notSettled() {
	if m.mover != nil && m.mover.Busy() && m.err == nil {
		m.cfg.Logger.Warn("all is published, but the head could not be told: after a rollback the last checkpoint will count as not settled")
	}
}
