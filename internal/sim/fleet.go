package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/nimbus"
)

// The fault model of a cluster, beyond that of faults.
//
// Processes. Each has a clock of its own, a little fast or slow, which may jump forward.
// Any may be paused at any moment, also with a request in its hands or when the head is to
// be moved, alone or with its whole machine, and goes on later:
// with its timers long due, or with a clock that stood still; timers may ring before it
// sees what has come meanwhile. Any may die, alone or with its machine. Some that a
// supervisor has killed go on for a while beside their successors.
//
// Connections (between a worker and its topology master, and between two workers) carry
// messages in order and however late. Nothing is lost but with its connection. When that
// is cut, all that is under way is lost, and each end finds out at once, or by the lease,
// or later if it is paused. Machines may be cut off from each other, from the coordination
// store, or from the checkpoint store and the targets, each alone.
//
// The coordination store answers late, or not at all, or reads a little behind. A request
// may fail before or after it was carried out. A watch may leave out a value that was
// replaced, or bring one twice; after an outage it brings everything anew, old values
// first now and then. It may lose everything. Wall clocks of machines differ by seconds.
//
// The topology masters, workers, nimbuses and supervisors here are shells as theirs are in
// the engine; what nimbus and supervisors decide they do decide themselves.
type fleet struct {
	w          *world
	timing     fleetTiming
	faults     fleetFaults
	records    *records
	machines   []*machine
	daemons    []*daemon
	processes  []*process
	programs   map[string]*program // by SHA-256
	chiefs     map[string]*chief   // by address
	masters    int
	orders     *orders
	inputUntil time.Duration // the input comes bit by bit until then
	over       bool
}

// program is a topology program: the same shape but for numbers of tasks.
type program struct {
	shape  *shape
	broken bool // no task of it can be made
}

// fleetTiming is the configuration of a cluster: about a tenth of its defaults.
type fleetTiming struct {
	Lease, Reign, Status, Heartbeat, Monitor time.Duration
	Hung, Grace, Stop, Intent, Resync        time.Duration
	StopLimit, Update, Unneeded              time.Duration
	Times                                    nimbus.Times
}

// fleetFaults are the faults that only a cluster has; means of times between, or
// probabilities.
type fleetFaults struct {
	Pause, PauseMean, Jump, Crash, Cut, Partition time.Duration
	Machine, Supervisor, Nimbus, Away, Sick       time.Duration
	Wipe, Stall, StallSwap, Astray                float64
	Clocks                                        bool
	// Restless is set where the operator does little but kill the topology and start it from
	// some checkpoint, and topology masters are often stopped when they begin.
	Restless bool
}

func newFleet(w *world) *fleet {
	f := &fleet{w: w, programs: map[string]*program{}, chiefs: map[string]*chief{}}
	f.records = newRecords(w)
	f.draw(w.rng)
	f.orders = newOrders(f)
	for i := range 2 + w.rng.IntN(3) {
		m := &machine{w: w, id: fmt.Sprintf("s%d", i+1), begun: map[string]bool{}, epochs: map[string]uint64{}}
		for port := range 1 + w.rng.IntN(2) + i%2 {
			m.ports = append(m.ports, port+1)
		}
		m.wall = time.Duration(w.rng.Int64N(int64(10*time.Second))) - 5*time.Second
		f.machines = append(f.machines, m)
	}
	for i := range 1 + w.rng.IntN(3) {
		f.daemons = append(f.daemons, &daemon{w: w, name: fmt.Sprintf("n%d", i+1), machine: f.machines[i%len(f.machines)]})
	}
	return f
}

func (f *fleet) draw(rng *rand.Rand) {
	ms := func(from, to int) time.Duration { return time.Duration(from+rng.IntN(to-from)) * time.Millisecond }
	f.timing = fleetTiming{
		Lease: ms(600, 2000), Reign: ms(1500, 3000), Status: ms(300, 600), Heartbeat: ms(500, 1000), Monitor: ms(800, 1500),
		Hung: ms(2000, 4000), Grace: ms(500, 2000), Intent: ms(400, 900), Resync: ms(1500, 3000),
		StopLimit: ms(6000, 12000), Update: ms(5000, 12000), Unneeded: ms(4000, 8000),
		Times: nimbus.Times{Supervisor: ms(5000, 8000), Task: ms(2500, 4000), Launch: ms(6000, 12000)},
	}
	f.timing.Stop = 2*f.timing.Lease + ms(500, 3000)
	w := f.w
	w.faults.Loss, w.faults.Double, w.faults.Stray, w.faults.Zombie = 0, 0, 0, 0
	w.faults.FrameLoss, w.faults.FrameDouble = 0, 0
	w.faults.ConnectionCut, w.faults.MasterCrash = 0, 0
	w.faults.OutagesOnly = false
	w.faults.Until += ms(0, 15000)
	w.faults.RequestFail /= 2
	w.faults.RequestLost /= 2
	w.timing.MaxRestarts = 0
	w.timing.Emit *= 2
	f.inputUntil = time.Duration(rng.Int64N(int64(w.faults.Until)))
	every := func(from, to int) time.Duration {
		if rng.IntN(2) == 0 {
			return 0
		}
		return ms(from, to)
	}
	f.faults = fleetFaults{
		Pause: every(500, 6000), PauseMean: ms(200, 4000), Jump: every(1000, 8000), Crash: every(1500, 10000),
		Cut: every(800, 8000), Partition: every(2000, 12000), Machine: every(5000, 20000),
		Supervisor: every(4000, 15000), Nimbus: every(2000, 12000), Away: every(3000, 15000), Sick: every(5000, 20000),
		Clocks: rng.IntN(2) == 0,
	}
	if rng.IntN(2) == 0 {
		f.faults.Stall = rng.Float64() * 0.02
	}
	if rng.IntN(3) == 0 {
		f.faults.StallSwap = rng.Float64() * 0.3
	}
	if rng.IntN(3) == 0 {
		f.faults.Astray = rng.Float64()
	}
	if rng.IntN(4) == 0 {
		f.faults.Wipe = 0.5
	}
	if f.faults.Restless = rng.IntN(4) == 0; f.faults.Restless {
		f.faults.StallSwap, f.faults.PauseMean, f.faults.Wipe = 0.3, ms(2000, 6000), 0.5
		f.faults.Crash, f.faults.Machine = ms(2000, 6000), 0
		w.faults.Until += ms(5000, 15000)
	}
}

// pauseTime draws how long a process is paused, or a machine is down.
func (f *fleet) pauseTime() time.Duration { return time.Millisecond + f.w.around(f.faults.PauseMean) }

// begin starts all daemons and the operator.
func (f *fleet) begin() {
	f.program(f.w.shape, false)
	for _, m := range f.machines {
		m.startSupervisor()
	}
	for _, d := range f.daemons {
		d.start()
	}
	f.orders.begin()
}

// program makes a program of a shape and returns its SHA-256.
func (f *fleet) program(s *shape, broken bool) string {
	sha := fmt.Sprintf("%064x", len(f.programs)+1)
	f.programs[sha] = &program{s, broken}
	return sha
}

// joined reports whether two processes can connect now.
func (f *fleet) joined(a, b *process) bool {
	return !a.dead && !b.dead && (a.machine == b.machine || a.reaches(toPeers) && b.reaches(toPeers))
}

// end ends everything: nothing is to be done any more.
func (f *fleet) end() {
	f.over = true
	f.w.tracef("all is done")
	for _, p := range f.processes {
		p.stop(true)
	}
}

func (f *fleet) scheduleFaults() {
	w := f.w
	w.every(f.faults.Pause, func() { f.any((*process).pause) })
	w.every(f.faults.Jump, func() { f.any(func(p *process) { p.jump(w.around(2 * f.timing.Lease)) }) })
	w.every(f.faults.Crash, func() { f.anyHosted(f.crash) })
	w.every(f.faults.Cut, f.cut)
	w.every(f.faults.Partition, f.partition)
	w.every(f.faults.Machine, func() { f.machine().crash() })
	w.every(f.faults.Supervisor, func() { f.machine().restartSupervisor() })
	w.every(f.faults.Nimbus, func() { f.daemons[w.rng.IntN(len(f.daemons))].crash() })
	w.every(f.faults.Away, func() { f.records.fail(w.around(3*time.Second), w.chance(f.faults.Wipe)) })
	w.every(f.faults.Sick, f.sicken)
	w.queue.push(w.faults.Until, f.heal)
}

// heal ends all faults: what is paused goes on, and what is taken for dead ends.
func (f *fleet) heal() {
	f.w.tracef("no more faults")
	for _, p := range slices.Clone(f.processes) {
		if p.resume(); p.hosted != nil && p.hosted.astray {
			p.end()
		}
	}
}

func (f *fleet) machine() *machine { return f.machines[f.w.rng.IntN(len(f.machines))] }

// any does something to a process that lives; topology masters are hit most often.
func (f *fleet) any(do func(*process)) {
	f.processes = slices.DeleteFunc(f.processes, func(p *process) bool { return p.dead })
	var all []*process
	for _, p := range f.processes {
		all = append(all, p)
		if p.hosted != nil && p.hosted.place.Role == cluster.RoleMaster {
			all = append(all, p, p)
		}
	}
	if len(all) > 0 {
		do(all[f.w.rng.IntN(len(all))])
	}
}

func (f *fleet) anyHosted(do func(*process)) {
	f.any(func(p *process) {
		if p.hosted != nil {
			do(p)
		}
	})
}

// anyMaster has a topology master do something.
func (f *fleet) anyMaster(do func(*master)) {
	if c := f.orders.chief(); c != nil {
		c.p.deliver(func() { do(c.m) })
	}
}

// request asks for a checkpoint of every region.
func (m *master) request() {
	for _, l := range m.regions {
		l.later(checkpoint.CheckpointRequested{})
	}
}

// crashTask lets user code fail somewhere.
func (f *fleet) crashTask() {
	f.anyHosted(func(p *process) {
		h, ok := p.hosted.main.(*hand)
		if !ok || len(h.parts) == 0 {
			return
		}
		part := h.parts[f.w.rng.IntN(len(h.parts))]
		t := part.tasks[part.ids[f.w.rng.IntN(len(part.ids))]]
		f.w.count("task crash")
		p.deliver(func() { t.fail(errors.New("crashed")) })
	})
}

// crash kills a process of a topology.
func (f *fleet) crash(p *process) {
	f.w.count("process crash")
	p.end()
	if !p.hosted.astray {
		p.machine.gone(p.hosted)
	}
}

// cut cuts a connection.
func (f *fleet) cut() {
	f.anyHosted(func(p *process) {
		if n := len(p.ends); n > 0 {
			p.ends[f.w.rng.IntN(n)].sever()
		}
	})
}

// partition cuts a machine off from something for a while.
func (f *fleet) partition() {
	m, w := f.machine(), f.w
	all := w.rng.IntN(3) == 0
	for r := range realms {
		if all || w.rng.IntN(2) == 0 {
			m.cutOff[r] = w.now + f.pauseTime()
			w.count("machine cut off")
			w.tracef("%s: cut off from %d until %v", m.id, r, m.cutOff[r])
		}
	}
	f.records.cutOff(func(p *process) bool { return !p.reaches(toRecords) })
	for _, p := range f.processes {
		for _, e := range p.ends {
			if !f.joined(e.p, e.other.p) && !e.p.dead && !e.other.p.dead {
				e.sever()
			}
		}
	}
}

// sicken lets a machine fail its health check for a while.
func (f *fleet) sicken() {
	m, w := f.machine(), f.w
	if m.sick != "" {
		return
	}
	tell := func(why string) {
		m.sick = why
		m.sup.deliver(m.tellHealth)
	}
	w.count("machine sick")
	tell("it is not well")
	w.queue.push(w.now+w.around(4*time.Second), func() { tell("") })
}

// show returns a record for the trace.
func (f *fleet) show(v any) string {
	switch v := v.(type) {
	case cluster.Assignment:
		s := fmt.Sprintf("assignment %d of epoch %d: master %s", v.Number, v.Version.Epoch, v.Master)
		for _, p := range v.Workers {
			s += fmt.Sprintf(" %s%v", p.ID(), p.Tasks)
		}
		if v.Stop {
			s += " stop"
		}
		return s
	case cluster.Topology:
		return fmt.Sprintf("%s %s step %q epoch %d from %q left %v, error %q", v.ID, v.Status, v.Step, v.Version.Epoch, v.Version.Start.From, v.Left, v.Error)
	}
	return fmt.Sprintf("%+v", v)
}
