package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/poison"
)

// hand is a worker process: it looks for its topology master, obeys it as long as it is
// connected, and has links to the other workers.
type hand struct {
	p           *process
	spec        spec
	newest      uint64 // incarnation of the topology master that was last heard of
	address     *chief // where it is
	fresh       bool   // it has changed since it was last dialed
	pause       time.Duration
	dials       int
	up          *member // its connection, seen from the other end
	parts       []*part
	lives       map[string]life // those of the other workers that count
	links       map[string]*link
	terminating bool
}

// life says since which generation a worker's process is expected.
type life struct {
	incarnation uint64
	since       generation
}

// link is a connection to another worker's process.
type link struct {
	*end
	peer *hand
}

// order has a worker make its tasks of a region in a generation.
type order struct {
	gen      generation
	lead     *lead
	from     *checkpoint.Manifest
	where    map[taskID]*member
	suspects *poison.Suspects
	failures map[poison.Key]int
}

const (
	dialMin = 50 * time.Millisecond
	dialMax = 500 * time.Millisecond
)

func newHand(p *process, s spec) *hand {
	return &hand{p: p, spec: s, lives: map[string]life{}, links: map[string]*link{}}
}

// run is what the process begins with.
func (h *hand) run() {
	f := h.p.w.fleet
	if m := h.spec.master; m != nil {
		h.address = f.chiefs[m.Address]
	}
	f.records.watch(cluster.TopologyBucket(h.spec.id)+"/", func(e entry) {
		m, ok := e.value.(cluster.MasterRecord)
		if !ok || m.Epoch != h.spec.epoch || m.Incarnation < h.newest {
			return
		}
		h.newest, h.address, h.fresh = m.Incarnation, f.chiefs[m.Address], true
		if h.up == nil {
			h.dialSoon(0)
		}
	})
	h.dialSoon(0)
}

// dialSoon dials the topology master after a while, unless it is dialed before.
func (h *hand) dialSoon(d time.Duration) {
	h.dials++
	n := h.dials
	h.p.w.after(d, func() {
		if h.dials == n && h.up == nil && h.address != nil && !h.terminating {
			h.dial()
		}
	})
}

func (h *hand) dial() {
	w, c := h.p.w, h.address
	if h.fresh {
		h.fresh, h.pause = false, dialMin
	}
	again := func() {
		d := max(h.pause, dialMin)
		h.pause = min(2*d, dialMax)
		h.dialSoon(d)
	}
	h.dials++
	if !w.fleet.joined(h.p, c.p) {
		w.after(w.hop(), again)
		return
	}
	mine, theirs := connect(h.spec.worker+"↔"+c.p.name, h.p, c.p)
	m := &member{end: theirs, worker: h.spec.worker, incarnation: h.spec.incarnation, of: c.crew, at: h}
	h.up = m
	mine.lost = h.lost
	mine.send(func() {
		if c.spec.id != h.spec.id || c.spec.epoch != h.spec.epoch {
			theirs.close(errors.New("it belongs to another run"))
		} else if err := c.crew.enter(m); err != nil {
			theirs.close(err)
		}
	})
}

// lost ends all tasks, waits for that, and then looks for a topology master again.
func (h *hand) lost(err error) {
	h.p.w.tracef("%s: has lost its topology master: %v", h.p.name, err)
	for _, p := range slices.Clone(h.parts) {
		p.stop()
	}
	h.whenIdle(func() {
		h.up = nil
		if h.terminating {
			h.p.exit(cluster.ExitSignal)
			return
		}
		d := max(h.pause, dialMin)
		if h.pause = min(2*d, dialMax); h.fresh {
			d = 0
		}
		h.dialSoon(d)
	})
}

// whenIdle calls then when no tasks run any more.
func (h *hand) whenIdle(then func()) {
	if len(h.parts) == 0 {
		then()
		return
	}
	h.p.w.after(10*time.Millisecond, func() { h.whenIdle(then) })
}

// terminate is what the supervisor's signal does.
func (h *hand) terminate() {
	if h.terminating {
		return
	}
	h.terminating = true
	if h.up == nil {
		h.p.exit(cluster.ExitSignal)
		return
	}
	h.up.other.close(errors.New("told to end"))
}

// exitDismissed is the exit code of a worker that was told that the run is over. With
// cluster.ExitDone it would not be started again in its epoch, though the topology master
// that has said so may have been moved meanwhile, and its successor wait for workers.
const exitDismissed = 1

// dismissed is told that the run is over.
func (h *hand) dismissed() {
	for _, p := range slices.Clone(h.parts) {
		p.stop()
	}
	code := exitDismissed
	if !h.p.w.is(DismissedAgain) {
		code = cluster.ExitDone
	}
	h.whenIdle(func() { h.p.exit(code) })
}

// restore makes the tasks that are to run here.
func (h *hand) restore(m *member, o order) {
	p := &part{h: h, up: m, order: o, links: map[string]*link{}, tasks: map[taskID]*task{}}
	for _, spec := range o.lead.region.tasks {
		at := o.where[spec.ID]
		if at == m {
			p.ids = append(p.ids, spec.ID)
			continue
		}
		known := h.lives[at.worker]
		if known.since > o.gen && known.incarnation != at.incarnation {
			m.other.close(errors.New("it names a worker's process that was replaced"))
			return
		}
		h.expect(at, o.gen)
	}
	h.parts = append(h.parts, p)
	for _, id := range p.ids {
		s := h.spec.program.shape.slots[id]
		h.p.w.check.makes(s, o.gen)
		t := makeTask(o.lead.m, s, o.gen, h.p.w.originOf(o.from, s), o.suspects, maps.Clone(o.failures))
		t.home = p
		p.tasks[id] = t
		p.running++
	}
	for _, id := range p.ids {
		p.tasks[id].open(h.spec.program.broken)
	}
	p.connect()
}

// open restores a task, unless its program is one that does not work.
func (t *task) open(broken bool) {
	t.w.after(t.w.hop(), func() {
		switch {
		case t.state == ended:
		case broken:
			t.fail(errors.New("this version does not work"))
		default:
			t.restore()
		}
	})
}

// expect notes which process of a worker counts from a generation on; a link to another
// one is over.
func (h *hand) expect(at *member, g generation) {
	if g < h.lives[at.worker].since {
		return
	}
	h.lives[at.worker] = life{at.incarnation, g}
	if l := h.links[at.worker]; l != nil && l.peer.spec.incarnation != at.incarnation {
		l.close(errors.New("replaced by a later process"))
	}
}

func (h *hand) part(g generation) *part {
	for _, p := range h.parts {
		if p.gen == g {
			return p
		}
	}
	return nil
}

func (h *hand) stop(g generation) {
	if p := h.part(g); p != nil {
		p.stop()
	}
}

// tell brings a message to a task of a generation.
func (h *hand) tell(g generation, id taskID, do func(*task)) {
	if p := h.part(g); p != nil {
		if t := p.tasks[id]; t != nil && t.state != ended {
			do(t)
		}
	}
}

// install makes a connection the link to a worker. An older one is over, which fails the
// generations that use it.
func (h *hand) install(peer *hand, e *end) {
	old := h.links[peer.spec.worker]
	l := &link{e, peer}
	h.links[peer.spec.worker] = l
	e.lost = func(err error) { h.broken(l, err) }
	if old != nil && !old.over {
		old.close(errors.New("it has connected anew"))
	}
	for _, p := range h.parts {
		p.connect()
	}
}

// broken fails the generations that use a link.
func (h *hand) broken(l *link, err error) {
	if !h.p.w.is(Links) {
		return
	}
	for _, p := range slices.Clone(h.parts) {
		if p.links[l.peer.spec.worker] == l {
			p.failed(err)
		}
	}
}
