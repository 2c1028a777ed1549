// Package master runs the topology master: the shell around the pure Coordinators
// and the Mover. It turns their actions into calls of tasks and store, and what comes
// of it into events. One goroutine owns all of its state.
package master

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/engine/worker"
)

// Config is what a run of a topology needs.
type Config struct {
	Plan  *plan.Plan
	Env   task.Env    // what is of the master's is set by it
	Crew  worker.Crew // the caller closes it
	Store checkpoint.Store
	// Timing is used for every region; Region and Tasks are set by the master.
	Timing      checkpoint.Config
	Retained    int
	StopTimeout time.Duration // for user code to return when its generation ends
	OrphanGrace time.Duration
	Engine      string // version of Isobar
	Logger      *slog.Logger
	Control     *Control // never nil
	Start       Start
	// Progress, if set, is called about once a second and at the end.
	Progress func(Progress)
	// Inspect, if set, is called once, when the run begins.
	Inspect func(*Inspector)
}

// Result tells how a run ended.
type Result struct {
	Outcome checkpoint.Outcome
	// From and Last are the first region's checkpoints that the run began from and
	// ended with; nil if there was none.
	From, Last *checkpoint.Ref
	Committed  int // checkpoints committed by this run
	Restarts   int
}

// Progress is a look at a running topology.
type Progress struct {
	Elapsed    time.Duration
	Components []ComponentProgress
	Committed  int             // checkpoints committed by this run
	Last       *checkpoint.Ref // the newest
	Restarts   int
	Errors     []ReportedError // the last ones, oldest first
	Final      bool            // the run has ended
}

// ComponentProgress counts tuples of a component in this run, replays included.
type ComponentProgress struct {
	ID                string
	Emitted, Executed uint64
}

// message is what the master's goroutine is told: one of the two events, of a region
// or of the head, or that a generation was built.
type message struct {
	region *region
	event  checkpoint.Event
	head   checkpoint.MoverEvent
	built  *built
	report *ReportedError
}

// ReportedError is an error that a component has reported, or that failed a task.
type ReportedError struct {
	Time      time.Time
	Component string
	Task      int // index within the component
	Err       error
}

// errorsKept is how many of the last reported errors are remembered.
const errorsKept = 20

// Master leads the regions of one topology.
type Master struct {
	cfg     Config
	inbox   *link.Mailbox[message]
	mover   *checkpoint.Mover
	regions []*region
	sweep   *sweeper
	// swapping is the head in the swap under way, or in the last one.
	swapping *checkpoint.Head
	began    time.Time
	io       sync.WaitGroup // store calls under way
	unique   string         // names this process's objects
	runID    string
	result   Result
	err      error
	errors   []ReportedError // the last ones
	// activity is what the operator last said about input.
	activity task.Activity
	saving   []*saving
	edits    int           // ids given to edits of the head
	pause    bool          // the last head call failed; wait before the next
	ending   time.Duration // when the last region ended in order; 0 = not yet
	ctx      context.Context
	cancel   context.CancelFunc
}

// region is the shell around one Coordinator.
type region struct {
	plan.Region
	coord    *checkpoint.Coordinator
	env      *task.Env
	gen      atomic.Pointer[generation] // set by the master, read by the Inspector
	started  bool                       // the tasks of gen run
	raising  bool                       // the next generation is being raised
	first    checkpoint.Generation      // of this run
	wakeAt   time.Duration              // 0 = never
	over     bool
	from     *checkpoint.Ref
	manifest *checkpoint.Manifest // the last one built
	record   *record
	suspects *poison.Counter
	injected checkpoint.BatchID // the last batch that was closed
	rolling  chan<- answer      // who has asked for the rollback under way, or nil
}

// generation is the tasks of a region in one generation.
type generation struct {
	number checkpoint.Generation
	worker.Tasks
}

// Unique returns a random text that names one process's writes.
func Unique() string {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("broken invariant: no randomness: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}

// Run runs a topology until all input has been processed, until ctx ends, which
// takes a last checkpoint, or until it fails.
func Run(ctx context.Context, cfg Config) (Result, error) {
	m := &Master{cfg: cfg, inbox: link.NewMailbox[message](), unique: Unique(), began: time.Now()}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer m.cancel()
	defer cfg.Control.end()
	head, version, err := readHead(m.ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	runID := Unique()
	if head != nil {
		runID = head.RunID
	}
	m.runID = runID
	targets, err := m.targets(head)
	if err != nil {
		return Result{}, err
	}
	m.mover = checkpoint.NewMover(checkpoint.MoverConfig{
		Topology: cfg.Plan.Topology,
		RunID:    runID,
		Head:     head,
		Version:  version,
		Writer:   m.unique,
		Retained: cfg.Retained,
		Strict:   len(cfg.Start.Unmoved)+len(targets) > 0,
	})
	m.sweep = newSweeper(cfg.Store, cfg.Plan, cfg.Logger, cfg.OrphanGrace, cfg.Env.Hook)
	for _, r := range cfg.Plan.Regions {
		m.regions = append(m.regions, m.newRegion(r, runID, targets[r.Name]))
		if cfg.Start.begun(head, r.Name) {
			m.regions[len(m.regions)-1].first = head.Regions[r.Name].StartedAt
		}
	}
	m.inspect()
	m.lead(ctx)
	m.end()
	return m.result, m.err
}

func (m *Master) newRegion(r plan.Region, runID string, from *checkpoint.Target) *region {
	c := m.cfg.Timing
	c.Region = r.Name
	c.From = from
	c.Tasks = task.CoordinatorTasks(m.cfg.Plan, r)
	for _, id := range r.Tasks {
		if m.cfg.Plan.Component(id).Ordered {
			c.SnapshotTimeout = 0 // nothing is given up where the outside is written in order
		}
	}
	reg := &region{Region: r, coord: checkpoint.NewCoordinator(c), manifest: newManifest(m.cfg, r, runID), record: newRecord(), suspects: poison.NewCounter()}
	env := m.cfg.Env
	env.Post = func(ev checkpoint.Event) { m.inbox.Put(message{region: reg, event: ev}) }
	env.Now = m.now
	env.RunID = runID
	env.Reported = m.report
	reg.env = &env
	return reg
}

func (m *Master) inspect() {
	if m.cfg.Inspect != nil {
		m.cfg.Inspect(&Inspector{m})
	}
}

func (m *Master) now() time.Duration { return time.Since(m.began) }

// lead is the master's loop.
func (m *Master) lead(ctx context.Context) {
	defer func() { m.stopTasks(); m.cancel() }()
	progress := time.NewTicker(time.Second)
	defer progress.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for _, r := range m.regions {
		m.step(r, checkpoint.Started{})
	}
	stop := ctx.Done()
	for !m.over() {
		m.setTimer(timer)
		select {
		case <-m.inbox.Signal():
			for _, msg := range m.inbox.Take() {
				m.take(msg)
			}
		case <-timer.C:
			for _, r := range m.regions {
				if r.wakeAt != 0 && m.now() >= r.wakeAt {
					r.wakeAt = 0
					m.step(r, checkpoint.TimePassed{})
				}
			}
		case <-m.cfg.Control.mail.Signal():
			for _, c := range m.cfg.Control.mail.Take() {
				m.obey(c)
			}
		case <-stop:
			stop = nil
			for _, r := range m.regions {
				m.step(r, checkpoint.StopRequested{})
			}
		case <-progress.C:
			m.progress(false)
		}
	}
}

func (m *Master) over() bool {
	if m.err != nil {
		return true
	}
	for _, r := range m.regions {
		if !r.over {
			return false
		}
	}
	return !m.settling()
}

func (m *Master) setTimer(t *time.Timer) {
	next := time.Duration(0)
	for _, r := range m.regions {
		if r.wakeAt != 0 && (next == 0 || r.wakeAt < next) {
			next = r.wakeAt
		}
	}
	if next == 0 {
		t.Reset(time.Hour)
		return
	}
	t.Reset(max(0, next-m.now()))
}

func (m *Master) take(msg message) {
	switch {
	case msg.head != nil:
		m.moveHead(msg.head)
	case msg.report != nil:
		m.cfg.Logger.Warn("error reported", "component", msg.report.Component, "task", msg.report.Task, "err", msg.report.Err)
		m.reported(*msg.report)
	case msg.built != nil:
		m.builtGeneration(msg.region, msg.built)
	default:
		m.step(msg.region, msg.event)
	}
}

// reported remembers an error for Progress.
func (m *Master) reported(e ReportedError) {
	m.errors = append(m.errors, e)
	if len(m.errors) > errorsKept {
		m.errors = m.errors[1:]
	}
}

// report has an error remembered; it may be called from any goroutine.
func (m *Master) report(component string, task int, err error) {
	m.inbox.Put(message{report: &ReportedError{time.Now(), component, task, err}})
}

// stopTasks ends all generations. That goes before the end of the master's context, by
// which theirs ends too: a task that finds its context ended and its generation not over
// would go round without a pause.
func (m *Master) stopTasks() {
	for _, r := range m.regions {
		if g := r.gen.Load(); g != nil {
			g.Stop()
		}
	}
}

// end waits for what has been stopped.
func (m *Master) end() {
	m.unanswered()
	m.notSettled()
	for _, r := range m.regions {
		g := r.gen.Load()
		if g == nil {
			continue
		}
		if err := m.awaitEnd(g); err != nil && m.err == nil {
			m.err = err
		}
	}
	m.io.Wait()
	m.sweep.close()
	m.progress(true)
}

// ErrHung is wrapped by the error of a run whose user code did not return in time
// when its generation had ended. Nothing is lost, but the process must be replaced.
var ErrHung = errors.New("user code did not return")

// awaitEnd waits until every goroutine of a generation has returned: only then may
// its tasks be made anew (invariant I9).
func (m *Master) awaitEnd(g *generation) error {
	late := time.NewTimer(m.cfg.StopTimeout)
	defer late.Stop()
	select {
	case <-g.Ended():
		return nil
	case <-late.C:
		return fmt.Errorf("stop generation %d: tasks did not end within %s: %w; stacks:\n%s",
			g.number, m.cfg.StopTimeout, ErrHung, stacks())
	}
}

func (m *Master) progress(final bool) {
	if m.cfg.Progress == nil {
		return
	}
	p := Progress{
		Elapsed:   m.now(),
		Committed: m.result.Committed,
		Last:      m.result.Last,
		Restarts:  m.result.Restarts,
		Errors:    slices.Clone(m.errors),
		Final:     final,
	}
	for _, c := range m.cfg.Plan.Components {
		first, n := m.cfg.Plan.TaskIDs(c.ID)
		cp := ComponentProgress{ID: c.ID}
		for id := first; id < first+n; id++ {
			s := m.cfg.Crew.Stats(id)
			cp.Emitted += s.TuplesEmitted()
			cp.Executed += s.TuplesExecuted()
		}
		p.Components = append(p.Components, cp)
	}
	m.cfg.Progress(p)
}
