package sim

import (
	"slices"
	"time"
)

// process is a program on a machine. What is to happen in it waits while it is paused, and
// never happens once it is dead. It goes by a clock of its own.
type process struct {
	w       *world
	name    string
	machine *machine
	dead    bool
	paused  bool
	frozen  bool          // its clock stands still while it is paused
	asleep  time.Duration // since when it is paused or dead, by the world's clock

	reading, since time.Duration // of its clock, and when by the world's
	speed          int64         // of its clock, in parts of clockSpeed
	timers         []*timer
	timersMax      int
	inbox          []func()      // what has come while it is paused
	cutOff         bool          // the coordination store could not be reached since this was last looked at
	asks           time.Duration // when its last request comes to the coordination store
	ends           []*end        // of its connections
	hosted         *hosted       // nil: it is a daemon
}

// clockSpeed is that of the world's clock.
const clockSpeed = 100

type timer struct {
	due  time.Duration
	do   func()
	rung bool
}

func newProcess(m *machine, name string) *process {
	p := &process{w: m.w, name: name, machine: m, since: m.w.now, speed: clockSpeed}
	if m.w.fleet.faults.Clocks {
		p.speed += int64(m.w.rng.IntN(13) - 3)
		p.reading = m.w.around(time.Hour)
	}
	m.w.fleet.processes = append(m.w.fleet.processes, p)
	return p
}

// clock returns what its clock says.
func (p *process) clock() time.Duration {
	if p.paused && p.frozen {
		return p.reading
	}
	return p.reading + time.Duration(int64(p.w.now-p.since)*p.speed/clockSpeed)
}

// settle begins to count anew from now.
func (p *process) settle() { p.reading, p.since = p.clock(), p.w.now }

// after lets do happen in the process, when its clock has gone on by d.
func (p *process) after(d time.Duration, do func()) {
	t := &timer{due: p.clock() + d, do: do}
	if len(p.timers) >= p.timersMax {
		p.timers = slices.DeleteFunc(p.timers, func(t *timer) bool { return t.rung })
		p.timersMax = 2*len(p.timers) + 32
	}
	p.timers = append(p.timers, t)
	p.arm(t)
}

func (p *process) arm(t *timer) {
	left := max(0, int64(t.due-p.clock()))
	p.w.queue.push(p.w.now+time.Duration((left*clockSpeed+p.speed-1)/p.speed), func() { p.ring(t) })
}

func (p *process) ring(t *timer) {
	switch {
	case p.dead, t.rung, p.paused: // resume sees to what was due
	case p.clock() < t.due:
		p.arm(t)
	default:
		t.rung = true
		p.deliver(t.do)
	}
}

// deliver lets do happen in the process now, or when it goes on.
func (p *process) deliver(do func()) {
	switch {
	case p.dead:
	case p.paused:
		p.inbox = append(p.inbox, do)
	default:
		was := p.w.on
		p.w.on = p
		do()
		p.w.on = was
	}
}

// pause stops the process for a while; now and then its whole machine.
func (p *process) pause() {
	if p.w.rng.IntN(6) == 0 {
		p.machine.freeze()
	} else {
		p.pauseFor(p.w.fleet.pauseTime(), p.w.rng.IntN(3) == 0)
	}
}

func (p *process) pauseFor(d time.Duration, frozen bool) {
	if p.paused || p.dead || p.w.now >= p.w.faults.Until {
		return
	}
	p.settle()
	p.paused, p.asleep, p.frozen = true, p.w.now, frozen
	p.w.count("process paused")
	p.w.tracef("%s: paused for %v, its clock stands still: %v", p.name, d, p.frozen)
	p.w.queue.push(p.w.now+d, p.resume)
}

// resume lets it go on. What was due or has come meanwhile happens now: timers first, or
// messages.
func (p *process) resume() {
	if !p.paused || p.dead {
		return
	}
	p.settle()
	p.paused = false
	p.w.tracef("%s: goes on", p.name)
	inbox := p.inbox
	p.inbox = nil
	messages := func() {
		for _, do := range inbox {
			p.w.queue.push(p.w.now, func() { p.deliver(do) })
		}
	}
	if p.w.rng.IntN(2) == 0 {
		messages()
		p.rearm()
		return
	}
	p.rearm()
	messages()
}

// rearm sets all timers by the clock as it is now.
func (p *process) rearm() {
	for _, t := range slices.SortedStableFunc(slices.Values(p.timers), func(a, b *timer) int { return int(a.due - b.due) }) {
		if !t.rung {
			p.arm(t)
		}
	}
}

// jump lets its clock go forward at once.
func (p *process) jump(d time.Duration) {
	p.settle()
	p.reading += d
	p.w.count("clock jumped")
	p.w.tracef("%s: its clock jumps by %v", p.name, d)
	if !p.paused {
		p.rearm()
	}
}

// die ends the process. Who is connected to it hears that soon, unless its machine has
// died with it.
func (p *process) die(silently bool) {
	if p.dead {
		return
	}
	p.w.tracef("%s: dies", p.name)
	if !p.paused {
		p.asleep = p.w.now
	}
	p.dead = true
	for _, e := range p.ends {
		if e.over {
			continue
		}
		e.over = true
		if !silently {
			e.hangUp()
		}
	}
	p.ends, p.inbox, p.timers = nil, nil, nil
}

// realm says what a process may be cut off from.
type realm uint8

const (
	toStore   realm = iota // the checkpoint store and the targets
	toRecords              // the coordination store
	toPeers                // processes on other machines
	realms
)

// reaches reports whether a process can reach something. What is no process reaches all.
func (p *process) reaches(r realm) bool {
	return p == nil || p.w.now >= p.machine.cutOff[r] || p.w.now >= p.w.faults.Until
}
