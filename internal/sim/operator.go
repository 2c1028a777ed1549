package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// session is one life of the topology, from start to an orderly end.
type session struct {
	stopAfter time.Duration // after each start of a master; 0 = runs to its end
	killAfter time.Duration // after its begin; 0 = is not killed
	append    bool          // input has come since the session before
	resize    bool          // with other numbers of tasks than the session before
}

// endBound is how long a session may last once faults have ended.
const endBound = 2 * time.Minute

// operator starts the topology, replaces its master when that is gone, stops it,
// and starts it again.
type operator struct {
	w        *world
	sessions []session
	at       int
	current  *master // nil while there is none
	masters  int
}

func newOperator(w *world) *operator {
	o := &operator{w: w}
	restless := w.rng.IntN(5) == 0 // killed and resized before it has published anything
	for range w.rng.IntN(3) {
		if w.rng.IntN(2) == 0 {
			o.sessions = append(o.sessions, session{stopAfter: w.around(4 * time.Second)})
		} else {
			o.sessions = append(o.sessions, session{killAfter: w.around(4 * time.Second)})
		}
	}
	if restless {
		for range 3 {
			o.sessions = append(o.sessions, session{killAfter: w.around(2 * time.Second)})
		}
	}
	o.sessions = append(o.sessions, session{})
	for range w.rng.IntN(3) { // again after the end: with nothing left to do, or with more input
		o.sessions = append(o.sessions, session{append: w.rng.IntN(2) == 0})
	}
	for i := range o.sessions[1:] {
		o.sessions[i+1].resize = restless || w.rng.IntN(2) == 0
	}
	return o
}

// begin begins the next session.
func (o *operator) begin() {
	at := o.at
	o.w.tracef("session %d: %+v", at, o.sessions[at])
	if o.sessions[at].append {
		o.w.shape.append(o.w.rng, o.w.timing.PoisonAttempts)
	}
	if o.sessions[at].resize {
		o.w.count("resized")
		o.w.shape = o.w.shape.resized(o.w.rng)
		o.w.tracef("topology %s", o.w.shape)
	}
	if kill := o.sessions[at].killAfter; kill > 0 {
		o.w.after(kill, func() {
			if o.at == at {
				o.kill()
			}
		})
	}
	o.w.at(max(o.w.now, o.w.faults.Until)+endBound, func() {
		if o.at == at && !o.w.done {
			o.w.violate("session %d is stuck\n%s", at, o.w.state())
		}
	})
	o.start()
}

// startLater starts another master in the same session.
func (o *operator) startLater(d time.Duration) {
	at := o.at
	o.w.after(d, func() {
		if o.at == at && o.current == nil {
			o.start()
		}
	})
}

func (o *operator) start() {
	o.masters++
	m := &master{w: o.w, name: fmt.Sprintf("m%d", o.masters), shape: o.w.shape, alive: true}
	o.current = m
	o.w.tracef("%s: starts", m.name)
	if stop := o.sessions[o.at].stopAfter; stop > 0 {
		o.w.after(stop, func() {
			if o.current == m {
				o.tellRegions(checkpoint.StopRequested{})
			}
		})
	}
	m.begin()
}

func (o *operator) tellRegions(ev checkpoint.Event) {
	if o.current != nil {
		for _, l := range o.current.regions {
			l.later(ev)
		}
	}
}

func (o *operator) sweep() {
	if o.current != nil {
		o.current.sweep()
	}
}

// crashMaster takes the master for dead and starts another one; it may be alive.
func (o *operator) crashMaster() {
	if o.current != nil {
		o.leaveMaster()
		o.startLater(o.w.hop())
	}
}

// kill ends a session without order.
func (o *operator) kill() {
	o.w.count("killed")
	o.w.tracef("session %d is killed", o.at)
	if o.current != nil {
		o.leaveMaster()
	}
	o.at++
	o.w.after(o.w.hop(), o.begin)
}

func (o *operator) leaveMaster() {
	m := o.current
	o.current = nil
	if o.w.strikes(o.w.faults.Zombie) {
		o.w.count("zombie master")
		o.w.tracef("%s: is a zombie now", m.name)
		o.w.after(o.w.linger(), m.die)
	} else {
		o.w.count("master crash")
		m.die()
	}
}

// over hears that all regions of a master have ended.
func (o *operator) over(m *master, err error) {
	m.die()
	if m != o.current {
		return
	}
	o.current = nil
	if err != nil {
		o.w.count("topology failed")
		o.startLater(o.w.around(300 * time.Millisecond))
		return
	}
	if o.at++; o.at < len(o.sessions) {
		o.w.after(o.w.around(time.Second), o.begin)
		return
	}
	o.w.done = true
}

// state describes who waits for what, for runs that are stuck.
func (w *world) state() string {
	if w.fleet != nil {
		return w.fleet.orders.state()
	}
	var sb strings.Builder
	fmt.Fprintf(&sb, "session %d of %d, at %v\n", w.operator.at, len(w.operator.sessions), w.now)
	if m := w.operator.current; m != nil {
		for _, l := range m.regions {
			fmt.Fprintf(&sb, "%s leads %s (over: %v): %+v\n", m.name, l.region.name, l.over, l.core)
		}
	}
	for _, s := range w.shape.slots {
		for _, t := range s.tasks {
			fmt.Fprintf(&sb, "%s: %s, cut %v, batch %d closed, paused %v, finished %v",
				t, taskStateNames[t.state], t.cut, t.closed, t.paused, t.saidFinished)
			for i := range t.inputs {
				fmt.Fprintf(&sb, ", input %d: %d queued, blocked %v", i, len(t.inputs[i].queue), t.inputs[i].blocked)
			}
			if t.committer != nil {
				fmt.Fprintf(&sb, ", %+v", t.committer.core)
			}
			sb.WriteByte('\n')
		}
	}
	return sb.String()
}
