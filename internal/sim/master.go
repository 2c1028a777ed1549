package sim

import (
	"errors"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/tuple"
)

// master is one topology master: the shell of a Mover and of a Coordinator for each
// region.
type master struct {
	w       *world
	name    string
	shape   *shape // what it leads
	alive   bool
	mover   *checkpoint.Mover
	regions []*lead
	chief   *chief // the process that it is, on a cluster
}

// lead is a region as one master leads it.
type lead struct {
	m      *master
	region *region
	core   *checkpoint.Coordinator
	gen    generation // of the last Restore
	alarms alarms
	over   bool
	err    error // of FailRegion

	suspects *poison.Counter
	failures map[poison.Key]int // that were told

	started  bool       // StartTasks was there for gen
	injected batchID    // the last batch that was closed
	stopFrom generation // from here on nothing but a last barrier may be injected; 0 = not asked to stop

	// On a cluster.
	tasks   *crewTasks // of gen
	raising bool       // the next generation is being raised
	rolling func(err error)
	last    *checkpoint.Ref // the newest checkpoint
	outcome checkpoint.Outcome
}

// begin reads the head and starts all regions.
func (m *master) begin() {
	m.w.store.readHead(func(h headRead, err error) {
		if !m.alive {
			return
		}
		if err != nil {
			m.w.after(m.w.timing.StoreRetry, m.begin)
			return
		}
		m.open(h, false, nil)
	})
}

// open begins to lead, from a head that was read. Regions go back to their targets.
func (m *master) open(h headRead, strict bool, targets map[string]*checkpoint.Target) {
	m.w.tracef("%s: begins with head %q", m.name, h.version)
	m.mover = checkpoint.NewMover(checkpoint.MoverConfig{
		Topology: "sim", RunID: runID, Head: h.head, Version: h.version,
		Writer: m.name, Retained: m.w.timing.Retained, Strict: strict,
	})
	for _, r := range m.shape.regions {
		c := m.config(r)
		c.From = targets[r.name]
		m.regions = append(m.regions, &lead{
			m: m, region: r, core: checkpoint.NewCoordinator(c),
			suspects: poison.NewCounter(), failures: map[poison.Key]int{},
		})
	}
	for _, l := range m.regions {
		l.step(checkpoint.Started{})
	}
}

func (m *master) config(r *region) checkpoint.Config {
	t := m.w.timing
	if r.ordered {
		t.SnapshotTimeout = 0
	}
	return checkpoint.Config{
		Region: r.name, Tasks: r.tasks, Interval: t.Interval, MaxPending: t.MaxPending,
		SnapshotTimeout: t.SnapshotTimeout, AckRepeat: t.AckRepeat, RestartMin: t.RestartMin,
		RestartMax: t.RestartMax, MaxRestarts: t.MaxRestarts, StoreRetry: t.StoreRetry,
	}
}

// die ends the master; its tasks notice after a while, some of them late.
func (m *master) die() {
	if !m.alive {
		return
	}
	m.alive = false
	m.w.tracef("%s: dies", m.name)
	for _, r := range m.shape.regions {
		m.endTasks(r, func(*task) bool { return true })
	}
}

// endTasks tells the tasks of this master to end, after which some are zombies.
func (m *master) endTasks(r *region, which func(*task) bool) {
	for _, spec := range r.tasks {
		for _, t := range m.shape.slots[spec.ID].tasks {
			switch {
			case t.m != m || t.cut || !which(t):
			case m.w.strikes(m.w.faults.Zombie):
				t.becomeZombie()
			default:
				m.w.after(m.w.hop(), t.end)
			}
		}
	}
}

// receive takes what a task says.
func (m *master) receive(r *region, ev checkpoint.Event) {
	if m.alive && len(m.regions) > 0 {
		m.regions[r.index].step(ev)
	}
}

// later gives an event to the region's Coordinator after all that happens now.
func (l *lead) later(ev checkpoint.Event) { l.m.w.after(0, func() { l.step(ev) }) }

func (l *lead) step(ev checkpoint.Event) {
	w := l.m.w
	if !l.m.alive || l.over {
		return
	}
	if _, stop := ev.(checkpoint.StopRequested); stop && l.stopFrom == 0 {
		l.stopFrom = l.gen
		if l.started {
			l.stopFrom++
		}
	}
	if f, ok := ev.(checkpoint.TaskFailed); ok {
		l.taskFailed(f)
		if m := l.m.chief; m != nil && !l.started && hopeless(f.Err) {
			ev = checkpoint.RestoreFailed{Generation: f.Generation, Err: f.Err}
		}
	}
	if !w.is(GenerationCheck) {
		ev = regenerated(ev, l.gen)
	}
	if w.trace != nil {
		w.tracef("%s/%s: %T%+v", l.m.name, l.region.name, ev, ev)
	}
	for _, a := range l.core.Step(w.clock(), ev) {
		if w.trace != nil {
			w.tracef("%s/%s:   → %T%+v", l.m.name, l.region.name, a, a)
		}
		l.do(a)
	}
}

func (l *lead) taskFailed(f checkpoint.TaskFailed) {
	w := l.m.w
	l.suspects.Failed(f.Err, func(string) int { return w.timing.PoisonAttempts })
	var e *poison.TupleError
	if errors.As(f.Err, &e) {
		l.failures[e.Key]++
		return
	}
	w.check.fails(l, f)
}

// regenerated returns what a task says as if its generation were g.
func regenerated(ev checkpoint.Event, g generation) checkpoint.Event {
	switch ev := ev.(type) {
	case checkpoint.TaskReady:
		ev.Generation = g
		return ev
	case checkpoint.InputChanged:
		ev.Generation = g
		return ev
	case checkpoint.SnapshotReported:
		ev.Generation = g
		return ev
	case checkpoint.StoreFailed:
		ev.Generation = g
		return ev
	case checkpoint.SpoutFinished:
		ev.Generation = g
		return ev
	case checkpoint.AckConfirmed:
		ev.Generation = g
		return ev
	default:
		return ev
	}
}

func (l *lead) do(a checkpoint.Action) {
	m, w := l.m, l.m.w
	switch a := a.(type) {
	case checkpoint.StopTasks:
		l.stopTasks(a.Generation)
	case checkpoint.RaiseGeneration:
		l.raising = true
		m.move(checkpoint.RaiseRequested{Region: l.region.name, To: a.To, Generation: a.Generation, Settled: a.Settled, Start: m.once()})
	case checkpoint.Restore:
		l.gen, l.started, l.raising, l.injected = a.Generation, false, false, 0
		if l.last = a.From; a.From != nil {
			l.injected = a.From.Batch
		}
		if !w.is(PoisonAcrossRollbacks) {
			l.suspects = poison.NewCounter()
		}
		l.renew(a)
	case checkpoint.StartTasks:
		l.started = true
		l.toTasks(a.Generation, func(t *task) { t.start(a.Generation, a.Next) })
		m.startedTasks(l)
	case checkpoint.InjectBarrier:
		w.count("barrier")
		if l.stopFrom > 0 && a.Generation >= l.stopFrom && a.Kind != tuple.MarkLastBarrier {
			w.violate("%s: barrier %d does not stop the region, which was asked for", l.region.name, a.Batch)
		}
		l.inject(a)
	case checkpoint.Resume:
		l.toSpouts(a.Generation, func(t *task) { t.resume(a.Generation) })
	case checkpoint.StoreManifest:
		l.storeManifest(a)
	case checkpoint.MoveHead:
		m.move(checkpoint.AdvanceRequested{Region: l.region.name, Generation: a.Generation, Ref: a.Ref, Settled: a.Settled})
	case checkpoint.AckCommit:
		w.check.acknowledges(l.region, a)
		l.acknowledge(a)
	case checkpoint.GiveUp:
		w.count("batch given up")
		w.check.givesUp(l, a)
	case checkpoint.Finish:
		m.move(checkpoint.SettleRequested{Region: l.region.name, Generation: a.Generation, Settled: a.Settled})
		l.outcome = a.Outcome
		l.finished(a.Outcome)
		l.end(nil)
	case checkpoint.FailRegion:
		l.end(a.Err)
	case checkpoint.Note:
	case checkpoint.WakeAt:
		l.alarms.set(w, a.At, func() { l.step(checkpoint.TimePassed{}) })
	}
}

// once names the start that the master makes, if it has a name.
func (m *master) once() string {
	if m.chief == nil {
		return ""
	}
	return m.chief.once()
}

// stopTasks ends the tasks of a generation.
func (l *lead) stopTasks(g generation) {
	if l.m.chief == nil {
		l.m.endTasks(l.region, func(t *task) bool { return t.gen == g })
	} else if l.tasks != nil && l.tasks.gen == g {
		l.tasks.halt()
	}
}

// renew makes the tasks of a generation; on a cluster, once those before have ended.
func (l *lead) renew(a checkpoint.Restore) {
	if l.tasks == nil {
		l.restore(a)
		return
	}
	l.tasks.halt()
	l.tasks.whenOver(func() { l.restore(a) })
}

func (l *lead) finished(outcome checkpoint.Outcome) {
	w := l.m.w
	switch {
	case outcome == checkpoint.Stopped:
		w.count("stopped")
	case w.operator != nil && w.operator.at > 0:
		w.count("finished again")
	default:
		w.count("finished")
	}
	w.check.finished(l, outcome)
}

// end takes the region as over; the master is over when all its regions are.
func (l *lead) end(err error) {
	l.over, l.err = true, err
	if l.m.chief == nil {
		l.m.endTasks(l.region, func(*task) bool { return true })
	}
	var errs []error
	for _, r := range l.m.regions {
		if !r.over {
			return
		}
		errs = append(errs, r.err)
	}
	if l.m.chief != nil {
		l.m.chief.over(errors.Join(errs...))
		return
	}
	l.m.w.operator.over(l.m, errors.Join(errs...))
}

// send brings a message to a task of a generation, in order unless it is lossy. It
// may also come to the incarnation there is then.
func (l *lead) send(id taskID, g generation, lossy bool, do func(*task)) {
	w := l.m.w
	if l.m.chief != nil {
		if l.tasks != nil && l.tasks.gen == g {
			l.tasks.send(id, do)
		}
		return
	}
	if lossy && w.strikes(w.faults.Loss) {
		return
	}
	s := l.m.shape.slots[id]
	at := w.now + w.hop()
	if t := s.of(g); t != nil && t.m == l.m && !t.cut {
		if !lossy {
			at = max(at, t.downAt)
			t.downAt = at
		}
		w.at(at, func() {
			if t.state != ended && !t.cut {
				do(t)
			}
		})
	}
	if w.strikes(w.faults.Stray) {
		w.at(at+w.late(), func() {
			if t := s.current(); t != nil && t.gen != g {
				do(t)
			}
		})
	}
}

func (l *lead) toTasks(g generation, do func(*task)) {
	for _, t := range l.region.tasks {
		l.send(t.ID, g, false, do)
	}
}

func (l *lead) toSpouts(g generation, do func(*task)) {
	for _, t := range l.region.tasks {
		if t.Spout {
			l.send(t.ID, g, false, do)
		}
	}
}

// inject sends a barrier to the spouts. It may be lost and may come twice.
func (l *lead) inject(a checkpoint.InjectBarrier) {
	w := l.m.w
	l.injected = a.Batch
	for _, t := range l.region.tasks {
		if !t.Spout || !l.region.ordered && w.strikes(w.faults.Loss/10) {
			continue
		}
		l.send(t.ID, a.Generation, false, func(t *task) { t.inject(a) })
		if w.strikes(w.faults.Double) {
			l.send(t.ID, a.Generation, false, func(t *task) { t.inject(a) })
		}
	}
}

func (l *lead) acknowledge(a checkpoint.AckCommit) {
	w := l.m.w
	for _, id := range a.Tasks {
		deliver := func(t *task) {
			if t.committer != nil {
				t.committer.acknowledge(a)
			}
		}
		l.send(id, a.Generation, true, deliver)
		if w.strikes(w.faults.Double) {
			l.send(id, a.Generation, true, deliver)
		}
	}
}

func (l *lead) storeManifest(a checkpoint.StoreManifest) {
	w := l.m.w
	man := &checkpoint.Manifest{
		Topology: "sim", RunID: runID, Region: l.region.name, Generation: a.Generation,
		Batch: a.Batch, Ended: a.Ended, UnixMilli: w.now.Milliseconds(), Tasks: a.Tasks,
	}
	ref := checkpoint.Ref{
		Generation: a.Generation, Batch: a.Batch, Size: 1, UnixMilli: man.UnixMilli,
		Manifest: checkpoint.ManifestName(a.Generation, a.Batch, l.region.name, w.unique()),
	}
	if !w.is(AckOrder) {
		early := checkpoint.AckCommit{Generation: a.Generation, Batch: a.Batch}
		for _, t := range l.region.tasks {
			early.Tasks = append(early.Tasks, t.ID)
		}
		l.acknowledge(early)
	}
	w.store.put(ref.Manifest, man, func(err error) {
		if err != nil {
			l.step(checkpoint.ManifestFailed{Generation: a.Generation, Batch: a.Batch, Err: err})
			return
		}
		l.step(checkpoint.ManifestStored{Generation: a.Generation, Ref: ref})
	})
}

// move gives an event to the Mover.
func (m *master) move(ev checkpoint.MoverEvent) {
	if !m.alive {
		return
	}
	w := m.w
	if w.trace != nil {
		w.tracef("%s/head: %T", m.name, ev)
	}
	for _, a := range m.mover.Step(ev) {
		if w.trace != nil {
			w.tracef("%s/head:   → %T", m.name, a)
		}
		m.do(a)
	}
}

func (m *master) do(a checkpoint.MoverAction) {
	w := m.w
	switch a := a.(type) {
	case checkpoint.Swap:
		if p := w.on; p != nil && w.strikes(w.fleet.faults.StallSwap) {
			p.pause()
			p.deliver(func() { m.do(a) })
			return
		}
		w.store.swapHead(a.Old, a.Head, func(v checkpoint.Version, err error) {
			switch {
			case err == nil:
				m.move(checkpoint.SwapSucceeded{Version: v})
			case errors.Is(err, checkpoint.ErrHeadMoved):
				m.move(checkpoint.SwapRefused{})
			default:
				m.move(checkpoint.SwapUnknown{Err: err})
			}
		})
	case checkpoint.Reread:
		w.after(w.timing.StoreRetry, func() {
			w.store.readHead(func(h headRead, err error) {
				if err != nil {
					m.move(checkpoint.RereadFailed{Err: err})
					return
				}
				m.move(checkpoint.HeadReread{Head: h.head, Version: h.version})
			})
		})
	case checkpoint.Raised:
		l := m.lead(a.Region)
		switch rolling := l.rolling; {
		case rolling != nil:
			l.rolling = nil
			rolling(a.Err)
		case a.Err != nil: // the start was to be from there, and from nowhere else
			l.later(checkpoint.RestoreFailed{Err: a.Err})
			return
		}
		l.later(checkpoint.GenerationRaised{Generation: a.Generation, From: a.From, Oldest: a.Oldest})
	case checkpoint.Edited:
		m.chief.edited(a)
	case checkpoint.Advanced:
		w.count("commit")
		l := m.lead(a.Region)
		l.later(checkpoint.HeadMoved{Generation: a.Generation, Batch: a.Batch, Oldest: a.Oldest})
		m.drop(a.Dropped)
		if m.chief != nil {
			m.chief.committed(l, a.Generation, a.Batch)
		}
	case checkpoint.SwapFailed:
		m.lead(a.Region).later(checkpoint.HeadFailed{Generation: a.Generation, Err: a.Err})
	case checkpoint.Lost:
		w.count("fenced master")
		if strings.HasPrefix(w.store.head.Writer, m.name+"-") {
			w.violate("%s takes itself for fenced, but nobody else has moved the head", m.name)
		}
		for _, l := range m.regions {
			l.later(checkpoint.Fenced{Err: a.Err})
		}
	}
}
