package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
)

// part is the tasks of a region that run on one worker, in one generation.
type part struct {
	order
	h       *hand
	up      *member
	ids     []taskID
	tasks   map[taskID]*task
	running int
	stopped bool
	over    bool

	links   map[string]*link
	linked  bool               // all links are there
	held    []checkpoint.Event // until then
	broken  bool
	dialing bool
}

// post passes on what a task says. That it is ready waits until its links are there.
func (p *part) post(ev checkpoint.Event) {
	if _, ready := ev.(checkpoint.TaskReady); ready && !p.linked {
		p.held = append(p.held, ev)
		return
	}
	m := p.up
	m.other.send(func() { m.of.told(p.gen, func(t *crewTasks) { t.event(ev) }) })
}

// failed fails the generation because of a link.
func (p *part) failed(err error) {
	if !p.broken {
		p.broken = true
		p.h.p.w.count("link broken")
		p.post(checkpoint.TaskFailed{Generation: p.gen, Task: p.ids[0], Err: fmt.Errorf("link: %w", err)})
	}
}

// connect gets the part its links to other workers. Of two the one with the smaller id
// dials, again and again.
func (p *part) connect() {
	if p.linked || p.stopped {
		return
	}
	missing := false
	for _, spec := range p.lead.region.tasks {
		at := p.where[spec.ID]
		if at == p.up || p.links[at.worker] != nil {
			continue
		}
		l := p.h.links[at.worker]
		if l != nil && !l.over && l.peer.spec.incarnation == at.incarnation {
			p.links[at.worker] = l
			continue
		}
		missing = true
		if p.h.spec.worker < at.worker {
			p.dial(at)
		}
	}
	if missing {
		return
	}
	p.linked = true
	for _, ev := range p.held {
		p.post(ev)
	}
	p.held = nil
}

// dial asks another worker's process for a link, which it grants when it expects this one.
func (p *part) dial(at *member) {
	w, me := p.h.p.w, p.h
	if p.dialing {
		return
	}
	p.dialing = true
	w.after(w.hop()+20*time.Millisecond, func() {
		p.dialing = false
		p.connect()
	})
	if !w.fleet.joined(me.p, at.at.p) {
		return
	}
	w.outside(func() {
		w.after(w.hop(), func() {
			at.at.p.deliver(func() {
				if me.p.dead || at.at.lives[me.spec.worker].incarnation != me.spec.incarnation {
					return
				}
				if l := at.at.links[me.spec.worker]; l != nil && !l.over && l.peer == me {
					return
				}
				mine, theirs := connect(me.spec.worker+"↔"+at.worker, me.p, at.at.p)
				at.at.install(me, theirs)
				theirs.send(func() { me.install(at.at, mine) })
			})
		})
	})
}

// carry brings a frame to its receiver, over a link if it is on another worker.
func (p *part) carry(f *frame) {
	at := p.where[f.to.id]
	if at == p.up {
		p.h.p.w.after(0, func() { p.h.take(f) })
		return
	}
	if l := p.links[at.worker]; l != nil {
		l.send(func() { l.peer.take(f) })
	}
}

// take brings a frame to its task, if its generation is still there.
func (h *hand) take(f *frame) {
	if p := h.part(f.gen); p != nil && !p.stopped {
		p.tasks[f.to.id].take(f)
	} else {
		h.p.w.count("void")
	}
}

// stop ends the tasks, each when its code has returned.
func (p *part) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	for _, id := range p.ids {
		p.h.p.w.after(p.h.p.w.hop(), p.tasks[id].end)
	}
	p.check()
}

// left is told that a task has ended.
func (p *part) left() {
	p.running--
	p.check()
}

func (p *part) check() {
	if !p.stopped || p.over || p.running > 0 {
		return
	}
	p.over = true
	p.h.parts = slices.DeleteFunc(p.h.parts, func(o *part) bool { return o == p })
	m := p.up
	m.other.send(func() { m.of.told(p.gen, func(t *crewTasks) { t.ended(m) }) })
}

func (m *master) lead(region string) *lead {
	for _, l := range m.regions {
		if l.region.name == region {
			return l
		}
	}
	panic(fmt.Sprintf("no region %q", region))
}
