package sim

import (
	"errors"
	"slices"
	"time"
)

// end is one of the two ends of a connection between processes. Messages come in order,
// however late. Once the connection is cut, what is under way is lost, and each end finds
// out by itself.
type end struct {
	p      *process
	other  *end
	name   string
	cut    *bool // the connection is cut: of both ends
	cutAt  *time.Duration
	over   bool
	lost   func(err error) // is told once that the end is over
	heard  time.Duration   // when something last came, by the clock of the process
	lands  time.Duration   // when the last message for this end comes
	queued time.Duration   // since when there has been one under way all the time
}

var (
	errSilent = errors.New("nothing has come for the lease")
	errClosed = errors.New("the other end has closed the connection")
)

// connect joins two processes. Each end has its own lost.
func connect(name string, a, b *process) (*end, *end) {
	cut, cutAt := false, time.Duration(0)
	x := &end{p: a, name: name, cut: &cut, cutAt: &cutAt, heard: a.clock()}
	y := &end{p: b, name: name, cut: &cut, cutAt: &cutAt, heard: b.clock()}
	x.other, y.other = y, x
	for _, e := range []*end{x, y} {
		e.p.ends = append(slices.DeleteFunc(e.p.ends, func(e *end) bool { return e.over }), e)
		e.watch()
	}
	return x, y
}

// send lets do happen at the other end.
func (e *end) send(do func()) {
	o, w := e.other, e.p.w
	if e.over || *e.cut {
		return
	}
	if o.lands <= w.now {
		o.queued = w.now
	}
	o.lands = max(o.lands, w.now+w.hop())
	w.queue.push(o.lands, func() {
		if *o.cut {
			return
		}
		o.p.deliver(func() {
			if !o.over {
				o.heard = o.p.clock()
				do()
			}
		})
	})
}

// close ends this end, and the other one when it hears of that.
func (e *end) close(err error) {
	if e.over {
		return
	}
	e.over = true
	e.hangUp()
	if e.lost != nil {
		e.lost(err)
	}
}

// hangUp tells the other end that this one is over.
func (e *end) hangUp() {
	o, w := e.other, e.p.w
	at := max(o.lands, w.now+w.hop())
	if w.chance(0.3) { // what was under way goes with it
		at = w.now + w.hop()
	}
	w.queue.push(at, func() {
		if !*o.cut {
			o.p.deliver(func() { o.close(errClosed) })
		}
	})
}

// sever cuts the connection. Each end may find out at once, by an error, or by the lease.
func (e *end) sever() {
	if *e.cut || e.over && e.other.over {
		return
	}
	w := e.p.w
	*e.cut, *e.cutAt = true, w.now
	w.tracef("%s: cut", e.name)
	w.count("connection cut")
	for _, x := range []*end{e, e.other} {
		if w.rng.IntN(2) == 0 {
			w.queue.push(w.now+w.around(w.fleet.timing.Lease/3), func() {
				x.p.deliver(func() { x.close(errors.New("connection reset")) })
			})
		}
	}
}

// watch gives the end up when nothing has come for the lease.
func (e *end) watch() {
	w, lease := e.p.w, e.p.w.fleet.timing.Lease
	due := e.heard + lease
	e.p.after(max(time.Millisecond, due-e.p.clock()), func() {
		if e.over || !w.is(Leases) {
			return
		}
		// One that was stopped meanwhile may look at its timer before it looks at what has come.
		late := e.p.clock() - due
		if late < lease/3 || w.rng.IntN(2) == 0 {
			e.heard = max(e.heard, e.p.clock()-e.silence())
		}
		if e.p.clock()-e.heard < lease {
			e.watch()
			return
		}
		w.count("lease over")
		w.tracef("%s: %s hears nothing any more", e.name, e.p.name)
		e.close(errSilent)
	})
}

// silence returns how long ago the last of the pings came that the other end sends in each
// third of the lease, unless something keeps it from that.
func (e *end) silence() time.Duration {
	w, o := e.p.w, e.other
	last := w.now
	if o.p.dead || o.p.paused {
		last = o.p.asleep
	}
	if *e.cut {
		last = min(last, *e.cutAt)
	}
	if e.lands > w.now {
		last = min(last, e.queued)
	}
	return w.now - last + time.Duration(w.rng.Int64N(int64(w.fleet.timing.Lease/3)))
}
