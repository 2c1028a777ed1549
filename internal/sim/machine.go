package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// machine is where processes run. Its supervisor is the shell of a Table of package slots.
type machine struct {
	w      *world
	id     string // of its supervisor
	ports  []int
	down   bool
	cutOff [realms]time.Duration // until when
	wall   time.Duration         // how far its wall clock is ahead
	begun  map[string]bool       // starts that have begun here

	sup    *process
	table  *slots.Table
	alarms alarms
	saved  uint64      // the changes that are on disk
	state  slots.State // on disk
	hosted []*hosted   // processes that run, and what is left of those that ended
	epochs map[string]uint64
	pids   int
	beat   uint64
	sick   string
}

// hosted is a process of a topology.
type hosted struct {
	p           *process
	place       slots.Place
	epoch       uint64
	incarnation uint64
	pid         int
	code        int  // with which it has ended by itself; below 0: it has not
	astray      bool // the supervisor takes it for dead
	main        interface {
		run()
		terminate()
	}
}

// spec tells a process what it is.
type spec struct {
	role        cluster.Role
	id          string
	epoch       uint64
	incarnation uint64
	worker      string
	start       cluster.StartSpec
	begun       bool
	program     *program
	master      *cluster.MasterRecord
}

// unix returns what the wall clock of the machine says.
func (m *machine) unix() int64 {
	return int64(time.Hour*24*365) + int64(m.w.now) + int64(m.wall)
}

// startSupervisor starts the machine's supervisor, which finds what a former one has left.
func (m *machine) startSupervisor() {
	if m.down || m.w.fleet.over || m.sup != nil && !m.sup.dead {
		return
	}
	m.sup, m.alarms = newProcess(m, m.id), alarms{}
	f := m.w.fleet
	m.table = slots.New(slots.Limits{
		Supervisor: m.id, Ports: m.ports, BeatTimeout: f.timing.Hung, StartTimeout: 2 * f.timing.Hung,
		Grace: f.timing.Grace, CloseGrace: 2 * f.timing.Grace, DumpTime: f.timing.Grace / 2,
		RestartMin: 50 * time.Millisecond, RestartMax: f.timing.Lease, Settled: 2 * f.timing.Lease,
	}, m.onDisk())
	m.sup.deliver(func() {
		var found slots.Recovered
		for _, h := range m.hosted {
			switch {
			case !h.p.dead && !h.astray:
				found.Alive = append(found.Alive, slots.Alive{Place: h.place, Epoch: h.epoch, Incarnation: h.incarnation, PID: h.pid})
			case h.code >= 0:
				found.Ended = append(found.Ended, slots.Exited{Place: h.place, Incarnation: h.incarnation, Code: h.code})
			}
		}
		m.step(found)
		m.step(slots.HealthFound{Unhealthy: m.sick})
		f.records.watch(cluster.BucketAssignments+"/", m.see)
		m.heartbeat()
		m.look()
		m.resync()
	})
}

// onDisk returns what the last supervisor has kept, as a file holds it.
func (m *machine) onDisk() slots.State {
	var state slots.State
	text, err := json.Marshal(m.state)
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		m.w.violate("%s: what it knows cannot be kept: %v", m.id, err)
	}
	return state
}

// see takes what a watch of the assignments says.
func (m *machine) see(e entry) {
	switch v := e.value.(type) {
	case cluster.Assignment:
		m.step(slots.Assigned{Assignment: v})
	case nil:
		if e.key == "" {
			m.list()
		} else if id := e.key[len(cluster.BucketAssignments)+1:]; id != cluster.KeyMark {
			m.step(slots.Removed{ID: id})
		}
	}
}

// list has the table know all assignments that there are.
func (m *machine) list() {
	m.w.fleet.records.list(cluster.BucketAssignments+"/", false, func(all []entry, err error) {
		if err != nil {
			return // the next one will do
		}
		var ev slots.Listed
		for _, e := range all {
			switch v := e.value.(type) {
			case cluster.Assignment:
				ev.Assignments = append(ev.Assignments, v)
			case string:
				ev.Mark = v
			}
		}
		m.step(ev)
	})
}

// resync lists them again and again: what was lost on its way costs no more than that.
func (m *machine) resync() {
	m.w.after(m.w.fleet.timing.Resync, func() {
		m.list()
		m.resync()
	})
}

// heartbeat tells the cluster that the supervisor lives.
func (m *machine) heartbeat() {
	m.beat++
	s := cluster.Supervisor{ID: m.id, Host: m.id, Machine: m.id, Ports: m.ports, Beat: m.beat, Unhealthy: m.sick}
	for _, slot := range m.table.Slots() {
		s.Processes = append(s.Processes, cluster.ProcessStatus{ID: slot.ID, Role: slot.Role, Port: slot.Port, Epoch: slot.Epoch, Running: slot.Phase.Alive(), Coming: slot.Phase.Coming()})
	}
	m.w.fleet.records.put(cluster.BucketSupervisors+"/"+m.id, s, func(uint64, error) {})
	m.w.after(m.w.fleet.timing.Heartbeat, m.heartbeat)
}

// look looks at the beats of all processes.
func (m *machine) look() {
	for _, h := range slices.Clone(m.hosted) {
		if !h.p.dead && !h.astray {
			m.step(slots.Looked{Place: h.place, Incarnation: h.incarnation, Changed: !h.p.paused})
		}
	}
	m.w.after(m.w.fleet.timing.Hung/5, m.look)
}

// step lets the table decide, keeps what it knows, and does what it says.
func (m *machine) step(ev slots.Event) {
	if m.sup.dead {
		return
	}
	actions := m.table.Step(slots.Moment{Now: m.sup.clock(), Unix: m.unix()}, ev)
	if n := m.table.Changes(); n != m.saved {
		m.state, m.saved = m.table.State(), n
	}
	if next, ok := m.table.Next(); ok {
		m.alarms.set(m.w, next, func() { m.step(slots.Ticked{}) })
	}
	for _, a := range actions {
		m.w.tracef("%s: %s", m.id, a)
		m.do(a)
	}
}

// later gives the table an event after a while.
func (m *machine) later(d time.Duration, ev slots.Event) { m.w.after(d, func() { m.step(ev) }) }

func (m *machine) do(a slots.Action) {
	w := m.w
	switch a := a.(type) {
	case slots.Prepare:
		w.after(w.hop()+w.around(100*time.Millisecond), func() { m.prepare(a) })
	case slots.Abandon:
		m.later(w.hop(), slots.PrepareFailed{Place: a.Place, Reason: "abandoned"})
	case slots.Start:
		w.after(w.hop(), func() { m.spawn(a) })
	case slots.Terminate:
		m.signal(a.Place, func(h *hosted) { h.main.terminate() })
	case slots.DumpStacks:
		w.after(w.hop(), func() { m.kill(a.Place) })
	case slots.Kill:
		w.after(w.hop(), func() { m.kill(a.Place) })
	case slots.Clean:
		m.later(w.hop(), slots.Cleaned{Place: a.Place})
	case slots.Adopt, slots.Complain:
	}
}

// prepare fetches what a process needs: secrets, and where the last topology master was.
func (m *machine) prepare(a slots.Prepare) {
	r := m.w.fleet.records
	id := a.Assignment.ID
	r.get(cluster.TopologyBucket(id)+"/"+cluster.KeyMaster, func(e entry, err error) {
		if v, ok := e.value.(cluster.MasterRecord); ok && err == nil {
			m.step(slots.MasterSeen{ID: id, Record: v})
		}
		if err != nil && !errors.Is(err, errAbsent) && m.epochs[id] != a.Assignment.Version.Epoch {
			m.step(slots.PrepareFailed{Place: a.Place, Reason: "no secrets"})
			return
		}
		m.epochs[id] = a.Assignment.Version.Epoch
		m.step(slots.Prepared{Place: a.Place})
	})
}

// spawn starts a process.
func (m *machine) spawn(a slots.Start) {
	v := a.Assignment.Version
	s := spec{
		role: a.Place.Role, id: a.Place.ID, epoch: v.Epoch, incarnation: a.Incarnation, start: v.Start,
		program: m.w.fleet.programs[v.Binary.SHA256], master: a.Master,
	}
	s.begun = m.begun[fmt.Sprintf("%s/%d", s.id, s.epoch)]
	m.pids++
	h := &hosted{place: a.Place, epoch: v.Epoch, incarnation: a.Incarnation, pid: m.pids, code: -1}
	name := fmt.Sprintf("%s/%s@%s.%d#%d", m.id, a.Place.Name(), s.id, s.epoch, m.pids)
	h.p = newProcess(m, name)
	h.p.hosted = h
	if s.role == cluster.RoleMaster {
		h.main = newChief(h.p, s)
	} else {
		s.worker = cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: m.id, Port: a.Place.Port}}.ID()
		h.main = newHand(h.p, s)
	}
	m.hosted = append(slices.DeleteFunc(m.hosted, func(o *hosted) bool { return o.p.dead && o.place == h.place }), h)
	m.w.tracef("%s: starts, incarnation %d", name, a.Incarnation)
	h.p.deliver(h.main.run)
	m.step(slots.Started{Place: a.Place, PID: h.pid})
}

// at returns the process that the supervisor knows at a place, or nil.
func (m *machine) at(p slots.Place) *hosted {
	for _, h := range m.hosted {
		if h.place == p && !h.p.dead && !h.astray {
			return h
		}
	}
	return nil
}

func (m *machine) signal(p slots.Place, send func(*hosted)) {
	if h := m.at(p); h != nil {
		m.w.outside(func() { m.w.after(m.w.hop(), func() { h.p.deliver(func() { send(h) }) }) })
	}
}

// kill ends a process. Some that are taken for dead go on for a while.
func (m *machine) kill(p slots.Place) {
	h := m.at(p)
	if h == nil {
		return
	}
	if m.w.strikes(m.w.fleet.faults.Astray) {
		m.w.count("process astray")
		h.astray = true
		m.w.outside(func() { m.w.after(4*m.w.linger(), func() { h.p.end() }) })
	} else {
		h.p.end()
	}
	m.gone(h)
}

// gone tells the supervisor that a process has ended.
func (m *machine) gone(h *hosted) {
	sup := m.sup
	ev := slots.Exited{Place: h.place, Incarnation: h.incarnation, Code: h.code}
	m.w.outside(func() {
		m.w.after(m.w.hop(), func() {
			sup.deliver(func() { m.step(ev) })
		})
	})
}

// exit ends a process of its own will.
func (p *process) exit(code int) {
	if p.dead {
		return
	}
	p.w.tracef("%s: exits with %d", p.name, code)
	h := p.hosted
	h.code = code
	p.end()
	if !h.astray {
		p.machine.gone(h)
	}
}

// end ends a process, with the tasks that run in it.
func (p *process) end() { p.stop(false) }

func (p *process) stop(silently bool) {
	if p.dead {
		return
	}
	p.die(silently)
	if p.hosted == nil {
		return
	}
	switch main := p.hosted.main.(type) {
	case nil:
	case *chief:
		main.m.alive = false
	case *hand:
		for _, part := range slices.Clone(main.parts) {
			for _, id := range part.ids {
				part.tasks[id].leave()
			}
		}
	}
}

// crash ends all processes of the machine at once, and starts it again after a while.
func (m *machine) crash() {
	if m.down {
		return
	}
	m.w.count("machine crash")
	m.w.tracef("%s: the machine crashes", m.id)
	m.down = true
	silently := m.w.rng.IntN(3) > 0
	for _, h := range m.hosted {
		h.p.stop(silently)
	}
	m.sup.die(silently)
	for _, n := range m.w.fleet.daemons {
		if n.machine == m && n.p != nil {
			n.crash()
		}
	}
	m.w.queue.push(m.w.now+m.w.fleet.pauseTime(), func() {
		m.down = false
		m.w.tracef("%s: the machine is up again", m.id)
		m.startSupervisor()
	})
}

// freeze stops all that runs on the machine for a while, long enough for others to take its
// place.
func (m *machine) freeze() {
	m.w.count("machine frozen")
	d := m.w.around(m.w.fleet.timing.Times.Launch)
	for _, p := range m.w.fleet.processes {
		if p.machine == m {
			p.pauseFor(d, false)
		}
	}
}

// restartSupervisor ends the supervisor alone; what it watched goes on.
func (m *machine) restartSupervisor() {
	if m.down || m.sup.dead {
		return
	}
	m.w.count("supervisor restarted")
	m.sup.stop(false)
	m.w.queue.push(m.w.now+m.w.around(time.Second), m.startSupervisor)
}

// tellHealth lets the supervisor know how the machine is.
func (m *machine) tellHealth() { m.step(slots.HealthFound{Unhealthy: m.sick}) }
