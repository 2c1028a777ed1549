package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/engine/worker/remote"
)

// Master leads the topology until the run is over, and has told so. Its error is one
// after which it is to be started again.
func Master(ctx context.Context, c Config) error {
	l, err := listenAgain(c)
	if err != nil {
		return err
	}
	defer l.Close()
	m := &leader{Config: c, control: engine.NewControl(), listener: l, address: reached(c.Host, l), changed: make(chan struct{}, 1), announced: make(chan struct{}, 1), dropped: make(chan struct{}, 1), ended: make(chan struct{})}
	m.status.began, m.noted = time.Now(), notedOf(c)
	m.remember(func(n *noted) { n.Port = portOf(l) })
	return m.lead(ctx)
}

// leader is a topology master at work.
type leader struct {
	Config
	control  *engine.Control
	listener net.Listener
	address  string
	changed  chan struct{} // the status is to be told at once
	ended    chan struct{} // closed when the run has
	// announced: a topology master has told where it is.
	announced chan struct{}
	// dropped: nobody wants a last checkpoint.
	dropped chan struct{}
	status  status
	crew    atomic.Pointer[remote.Crew]
	stop    atomic.Bool // the cluster wants the run to end

	mu    sync.Mutex
	place map[string][]int // the last one that was read
	noted noted            // what was told last, to this topology master or to the former one
}

// intentTime is how long the first intent is waited for. Without the coordination store
// there is none; the topology goes on.
const intentTime = 5 * time.Second

func (m *leader) lead(ctx context.Context) error {
	others := newBackground(ctx)
	defer others.end()
	run, end := context.WithCancel(ctx)
	defer end()
	m.control.Deactivate() // until it is known whether it is active
	late := time.AfterFunc(intentTime, m.activateUnknown)
	defer late.Stop()
	others.run(func(ctx context.Context) {
		follow(ctx, m.Store, m.ID, m.Logger, func(e cluster.Entry) { m.told(e, end) })
	})
	others.run(m.announce)
	others.run(m.report)
	defer context.AfterFunc(ctx, m.interrupted)()
	stopServing := m.serve()
	defer stopServing()

	var taken sync.WaitGroup
	options := append(m.Options,
		engine.WithControl(m.control),
		engine.WithProgress(m.status.progress),
		engine.WithInspector(m.inspect),
		engine.WithCrew(func(p *plan.Plan) (worker.Crew, error) {
			crew := remote.NewCrew(remote.CrewConfig{Identity: m.identity(p), Plan: p, Lease: m.Lease, Logger: m.Logger, Changed: m.tell})
			m.crew.Store(crew)
			m.replace(nil)
			taken.Go(func() { crew.Serve(m.listener) })
			return kept{crew}, nil
		}))
	result, err := engine.Run(run, m.Build, options...)
	close(m.ended)
	err = m.over(ctx, result, err)
	crew := m.crew.Load()
	if crew != nil && err == nil {
		patience, done := context.WithTimeout(ctx, m.Lease)
		crew.Dismiss(patience)
		done()
	}
	_ = m.listener.Close() // it ends Serve
	taken.Wait()
	if crew != nil {
		crew.Close(false)
	}
	return err
}

// kept is a crew that outlives the run, until it is known whether that is the last one.
type kept struct{ *remote.Crew }

func (kept) Close(bool) {}

// interrupted is called when the machine wants this process to end, which takes a last
// checkpoint. For that all workers must be there, and they are told to end, too, if it is
// the cluster that wants none.
func (m *leader) interrupted() {
	late := time.NewTimer(m.Lease)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			if crew := m.crew.Load(); crew != nil && crew.Incomplete() {
				m.control.Abandon()
			}
			late.Reset(m.Lease)
		case <-m.dropped:
			m.control.Abandon()
		case <-m.ended:
			return
		}
	}
}

func (m *leader) inspect(i *engine.Inspector) {
	m.status.inspector.Store(i)
	if m.Inspect != nil {
		m.Inspect(i)
	}
}

// over tells how the run has ended, until somebody has written it down.
func (m *leader) over(ctx context.Context, result engine.Result, err error) error {
	switch {
	case errors.Is(err, engine.ErrAbandoned):
		return ErrInterrupted
	case errors.Is(err, checkpoint.ErrHeadMoved):
		return fmt.Errorf("%w: %w", ErrFenced, err) // the other one reports
	case errors.Is(err, engine.ErrHung):
		return err // this process was paused for long, or a worker was
	case errors.Is(err, engine.ErrStoreUnreachable):
		m.status.fail(cluster.PhaseStarting, err)
		m.write(ctx)
		return err
	case err != nil:
		m.status.fail(cluster.PhaseFailed, err)
		m.status.elsewhere.Store(errors.Is(err, engine.ErrElsewhere))
	case result.Outcome == checkpoint.Completed:
		m.status.end(cluster.PhaseFinished)
	case m.stop.Load():
		m.status.end(cluster.PhaseStopped)
	default:
		return ErrInterrupted
	}
	return persist(ctx, m.Logger, "tell that the run is over", func(ctx context.Context) error {
		err := m.writeStatus(ctx)
		if errors.Is(err, cluster.ErrNotFound) {
			m.Logger.Warn("the topology is not known any more, and nobody is told that the run is over", "err", err)
			return nil
		}
		return err
	})
}

// told takes what the cluster wants.
func (m *leader) told(e cluster.Entry, end func()) {
	switch e.Key {
	case cluster.KeyAssignment:
		var a cluster.Assignment
		if e.Value == nil || json.Unmarshal(e.Value, &a) != nil || a.Version.Epoch != m.Epoch {
			return
		}
		place := map[string][]int{}
		for _, w := range a.Workers {
			place[w.ID()] = w.Tasks
		}
		m.replace(place)
		m.remember(func(n *noted) { n.Place = place })
		if a.Stop {
			select {
			case m.dropped <- struct{}{}:
			default: // it is known
			}
		}
	case cluster.KeyMaster:
		select {
		case m.announced <- struct{}{}:
		default: // it will look
		}
	case cluster.KeyIntent:
		in, ok := m.heed(e)
		if !ok {
			return
		}
		m.remember(func(n *noted) { n.Active = in.Active })
		m.activate()
		if in.Stop {
			m.stop.Store(true)
			end()
		}
	}
}

// replace gives the crew the places of the tasks; nil stands for the last ones.
func (m *leader) replace(place map[string][]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place != nil {
		m.place = place
	}
	if crew := m.crew.Load(); crew != nil && m.place != nil {
		crew.Place(m.place)
	}
}

// activate has the spouts do what was told last.
func (m *leader) activate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noted.Active {
		m.control.Activate()
	} else {
		m.control.Deactivate()
	}
	m.status.active.Store(m.noted.Active)
	m.tell()
}

// activateUnknown goes by what a former topology master was told.
func (m *leader) activateUnknown() {
	m.mu.Lock()
	if m.place == nil {
		m.place = m.noted.Place
	}
	m.mu.Unlock()
	m.replace(nil)
	m.activate()
}
