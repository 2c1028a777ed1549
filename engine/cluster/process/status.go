package process

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
)

// reportEvery is how often a topology master tells how it is.
const reportEvery = 2 * time.Second

// status is what a topology master tells of itself.
type status struct {
	began     time.Time
	active    atomic.Bool
	elsewhere atomic.Bool // the run has failed with engine.ErrElsewhere
	inspector atomic.Pointer[engine.Inspector]

	writing sync.Mutex
	asked   bool        // what was told before is known; guarded by writing
	led     atomic.Bool // it was told before that the topology was led

	mu    sync.Mutex
	last  engine.Progress
	beat  uint64
	phase cluster.Phase // of a run that is over
	err   error
}

func (s *status) progress(p engine.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = p
}

func (s *status) fail(p cluster.Phase, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.err = p, err
}

func (s *status) end(p cluster.Phase) { s.fail(p, nil) }

// report writes the status again and again, and when something has changed.
func (m *leader) report(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for m.starting(ctx) {
		m.write(ctx)
	}
	if m.Epoch > 1 {
		m.write(ctx)
		m.prove(ctx, tick.C)
	}
	for {
		m.write(ctx)
		select {
		case <-tick.C:
		case <-m.changed:
		case <-ctx.Done():
			return
		}
	}
}

// lookEvery is how often a topology master looks whether its run has come up.
const lookEvery = 50 * time.Millisecond

// starting waits until there is news of a run that comes up; it returns false when it has,
// or ctx has ended. It notes that the run has begun.
func (m *leader) starting(ctx context.Context) bool {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	told := time.NewTimer(reportEvery)
	defer told.Stop()
	begun := false
	for {
		now := m.now()
		if !begun && len(now.Regions) > 0 && now.Regions[0].Generation > 0 {
			if err := begin(m.Process); err != nil {
				m.Logger.Warn("cannot note that the run has begun", "err", err)
			}
			begun = true
		}
		if now.Phase != cluster.PhaseStarting {
			return false
		}
		select {
		case <-look.C:
		case <-told.C:
			return true
		case <-m.changed:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// proofWait is how long a version that is new waits for input to prove itself with.
const proofWait = 5 * time.Second

// prove asks for a checkpoint, which shows that a version that is new works: behind its first
// input, since without any even one that cannot process a tuple has a checkpoint. If none
// comes for a while, that is all there is to prove.
// The status is written at each tick meanwhile.
func (m *leader) prove(ctx context.Context, tick <-chan time.Time) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	late := time.NewTimer(proofWait)
	defer late.Stop()
	for waits := true; waits; {
		select {
		case <-look.C:
			waits = slices.ContainsFunc(m.now().Regions, func(r cluster.RegionState) bool {
				return !r.Over && (!r.Running || r.Idle)
			})
		case <-late.C:
			waits = false
		case <-tick:
			m.write(ctx)
		case <-m.changed:
			m.write(ctx)
		case <-ctx.Done():
			return
		}
	}
	m.control.Checkpoint()
}

// unlinkedMax bounds how many pairs a status names; see texts.
const unlinkedMax = 200

// tell has the status written soon.
func (m *leader) tell() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// write writes the status, if the store lets it; the next one will do as well.
func (m *leader) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportEvery)
	defer cancel()
	if err := m.writeStatus(ctx); err != nil {
		m.Logger.Debug("cannot tell how the run is", "err", err)
	}
}

// An older status must not be the last one that is written.
func (m *leader) writeStatus(ctx context.Context) error {
	m.status.writing.Lock()
	defer m.status.writing.Unlock()
	if err := m.askLed(ctx); err != nil {
		return err
	}
	return put(ctx, m.Store, m.ID, cluster.KeyStatus, m.now())
}

// now returns the status.
func (m *leader) now() cluster.RunStatus {
	s := &m.status
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat++
	r := cluster.RunStatus{
		Epoch: m.Epoch, Incarnation: m.Incarnation, Beat: s.beat,
		Phase: s.phase, Active: s.active.Load(), HeadMoved: s.elsewhere.Load(),
		Committed: s.last.Committed, Restarts: s.last.Restarts,
		UptimeSecs: int64(time.Since(s.began).Seconds()),
	}
	var texts texts
	if s.err != nil {
		r.Error = texts.clip(s.err.Error())
	}
	if crew := m.crew.Load(); crew != nil {
		r.Workers = crew.Workers()
		r.Unlinked = crew.Unlinked()
		r.Unlinked = r.Unlinked[:min(len(r.Unlinked), unlinkedMax)]
	}
	running := false
	if i := s.inspector.Load(); i != nil {
		p := i.Plan()
		running = true
		for _, g := range i.Regions() {
			state := cluster.RegionState{Name: g.Name, Generation: g.Generation, Running: g.Running, Over: g.Over, Idle: g.Idle, Restarts: g.Restarts, Degraded: texts.some(g.Degraded)}
			if g.Last != nil {
				state.Last = g.Last.String()
			}
			r.Regions = append(r.Regions, state)
			running = running && (g.Running || g.Over)
		}
		for _, c := range p.Components {
			n := cluster.ComponentCounts{ID: c.ID, Tasks: c.Tasks}
			for _, id := range p.IDs(c.ID) {
				n.Emitted += i.Stats(id).TuplesEmitted()
				n.Executed += i.Stats(id).TuplesExecuted()
			}
			r.Components = append(r.Components, n)
		}
	}
	r.Led = s.led.Load() || led(r)
	for _, e := range s.last.Errors {
		r.Errors = append(r.Errors, cluster.ErrorReport{Time: e.Time, Component: e.Component, Task: e.Task, Error: texts.clip(e.Err.Error())})
	}
	if r.Phase == "" {
		r.Phase = cluster.PhaseStarting
		if running {
			r.Phase = cluster.PhaseRunning
		}
	}
	return r
}
