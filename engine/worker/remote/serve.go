package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/tuple"
)

// WorkerConfig describes a worker process.
type WorkerConfig struct {
	Identity
	Worker      string // its id
	Incarnation uint64
	Plan        *plan.Plan
	Env         task.Env // but for what its master says, or leads to it
	// Links lead to the other workers; LinkAddress is where those reach this one.
	Links       Links
	LinkAddress string
	// Masters sends where the topology master is, whenever that has changed.
	Masters <-chan string
	Dial    Dialer
	// Lease is after how much silence the master is taken for lost.
	Lease time.Duration
	// StopTimeout is how long the code of tasks may take to return.
	StopTimeout time.Duration
	Logger      *slog.Logger
	// Running, if set, is told the Worker once, for metrics.
	Running func(*worker.Worker)
}

// Links are the links of a worker to the others of its topology.
type Links interface {
	// Generation returns the links of a generation to the workers that it has tasks on.
	// failed is called at most once, when one of them has broken.
	Generation(n tuple.Generation, place map[int]string, peers map[string]Peer, failed func(error)) (GenerationLinks, error)
}

// GenerationLinks are the links of one generation. All channels are made before Connect.
type GenerationLinks interface {
	task.Links
	// Connect returns once the channels lead somewhere.
	Connect(ctx context.Context) error
	// Unlinked returns the workers that Connect waits for, in order. It may be called on
	// another goroutine.
	Unlinked() []string
	// Close lets go of them. Nothing is sent or received any more.
	Close()
}

// ErrHung is returned when the code of tasks has not returned in time: the process must
// be replaced.
var ErrHung = errors.New("user code did not return")

// Serve runs tasks as the topology master says, until the run is over or ctx ends. A
// master that is lost costs what was under way: all tasks end, and the next master is
// looked for.
func Serve(ctx context.Context, cfg WorkerConfig) error {
	began := time.Now()
	cfg.Env.Now = func() time.Duration { return time.Since(began) }
	s := &server{cfg: cfg, tasks: worker.New(cfg.Plan, cfg.Logger)}
	if cfg.Running != nil {
		cfg.Running(s.tasks)
	}
	err := s.run(ctx)
	s.tasks.Close(errors.Is(err, ErrHung))
	if errors.Is(err, errQuit) { // whatever hangs, nobody waits for it
		return nil
	}
	return err
}

// Bounds of the pause before a topology master is dialed again.
const (
	dialMin = 100 * time.Millisecond
	dialMax = 2 * time.Second
)

type server struct {
	cfg   WorkerConfig
	tasks *worker.Worker
}

// run dials master after master.
func (s *server) run(ctx context.Context) error {
	address, pause := "", dialMin
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case address = <-s.cfg.Masters:
			pause = dialMin
			next.Reset(0)
			continue
		case <-next.C:
		}
		if address == "" {
			continue
		}
		later, err := s.attend(ctx, address)
		switch {
		case errors.Is(err, errQuit), errors.Is(err, ErrHung):
			return err
		case ctx.Err() != nil:
			return nil
		}
		s.cfg.Logger.Warn("no topology master", "address", address, "err", err)
		if later != "" {
			address, pause = later, dialMin
			next.Reset(0)
			continue
		}
		next.Reset(pause)
		pause = min(2*pause, dialMax)
	}
}

// attend serves one topology master until the connection is over, or another one is told,
// whose address it returns then.
func (s *server) attend(ctx context.Context, address string) (later string, err error) {
	nc, err := s.cfg.Dial(address)
	if err != nil {
		return "", err
	}
	c := newConn(nc, s.cfg.Lease)
	stop := context.AfterFunc(ctx, func() { c.end(ctx.Err()) })
	defer stop()
	me := hello{Worker: s.cfg.Worker, Incarnation: s.cfg.Incarnation, Links: s.cfg.LinkAddress}
	if err := s.cfg.join(c, me); err != nil {
		c.end(err)
		return "", err
	}
	s.cfg.Logger.Info("topology master found", "address", address)
	c.open()
	var watching sync.WaitGroup
	watching.Go(func() { later = s.awaitLater(c, address) })
	v := &service{server: s, conn: c, live: map[tuple.Generation]*part{}}
	err = v.obey()
	c.end(err)
	c.wait()
	watching.Wait()
	if later != "" && !errors.Is(err, errQuit) {
		err = c.reason()
	}
	return later, errors.Join(err, v.end())
}

// awaitLater ends a connection when another topology master is told of: the one at its other
// end may be cut off from everybody but its workers, and would keep them for ever. It returns
// the address of the other, or "" if the connection has ended before.
func (s *server) awaitLater(c *conn, address string) string {
	for {
		select {
		case other := <-s.cfg.Masters:
			if other != address {
				c.end(fmt.Errorf("there is a later one at %s", other))
				return other
			}
		case <-c.done:
			return ""
		}
	}
}

// service is what is done for one topology master.
type service struct {
	*server
	conn *conn
	live map[tuple.Generation]*part // of the goroutine of obey
	all  sync.WaitGroup
}

// part is the tasks of a region here, in one generation.
type part struct {
	*task.Generation
	ids    []int
	cancel context.CancelFunc
}

// obey does what the master says until the connection is over.
func (v *service) obey() error {
	ended := make(chan struct{})
	defer close(ended)
	v.all.Go(func() { v.count(ended) })
	for {
		m, err := v.conn.read(maxMessage)
		if err != nil {
			return err
		}
		p := v.live[m.Generation]
		switch {
		case m.Kind == kindQuit:
			return errQuit
		case m.Kind == kindRestore && m.Restore != nil && p == nil:
			if err := v.restore(m.Generation, m.Restore); err != nil {
				return err
			}
		case p == nil: // stopped before
		case m.Kind == kindStart:
			p.Start()
		case m.Kind == kindStop:
			delete(v.live, m.Generation)
			p.Stop() // first: a task whose context has ended goes on until it is told
			p.cancel()
			v.all.Go(func() {
				if err := v.await(p); err != nil {
					v.conn.end(err)
				}
			})
		case m.Kind == kindSpout && m.Spout != nil:
			m.Spout.Control.At = v.cfg.Env.Now() // the clocks of two processes differ
			p.Spout(m.Spout.Task, m.Spout.Control)
		case m.Kind == kindAck && m.Ack != nil:
			p.AckCommit(m.Ack.Task, m.Ack.Batch, m.Ack.Oldest, m.Ack.Last)
		default:
			return fmt.Errorf("the topology master has sent a %q message that makes no sense", m.Kind)
		}
	}
}

// restore makes the tasks that are to run here.
func (v *service) restore(n tuple.Generation, r *restore) error {
	var ids []int
	for id, name := range r.Place {
		switch {
		case id < 1 || id > len(v.cfg.Plan.Tasks):
			return fmt.Errorf("restore generation %d: task %d is placed, and there are %d", n, id, len(v.cfg.Plan.Tasks))
		case name == v.cfg.Worker:
			ids = append(ids, id)
		}
	}
	if slices.Sort(ids); len(ids) == 0 {
		return fmt.Errorf("restore generation %d: no task is placed on this worker", n)
	}
	g := &gate{conn: v.conn, number: n, first: checkpoint.TaskID(ids[0])}
	links, err := v.cfg.Links.Generation(n, r.Place, r.Links, g.failed)
	if err != nil { // other regions go on
		g.failed(fmt.Errorf("restore generation %d: %w", n, err))
		v.conn.send(message{Kind: kindEnded, Generation: n})
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	env := v.cfg.Env
	env.RunID = r.RunID
	env.Suspects = r.known()
	env.Post = g.post
	env.Reported = func(component string, task int, err error) {
		v.conn.send(message{Kind: kindReport, Generation: n, Report: &errorReport{component, task, err.Error()}})
	}
	p := &part{ids: ids, cancel: cancel}
	p.Generation = v.tasks.MakeSome(ctx, &env, ids, n, &task.Restore{Batch: r.Batch, Tasks: r.Tasks}, links)
	v.live[n] = p
	linked := make(chan struct{})
	v.all.Go(func() { v.awaitLinks(n, ids[0], links, linked) })
	v.all.Go(func() {
		err := links.Connect(ctx)
		close(linked)
		if err != nil && ctx.Err() == nil {
			g.failed(err)
		} else {
			g.open()
		}
		<-p.Ended()
		links.Close()
		v.conn.send(message{Kind: kindCounts, Counts: v.tasks.Counts(ids)})
		v.conn.send(message{Kind: kindEnded, Generation: n})
	})
	return nil
}

// awaitLinks tells which workers this one does not reach, once it has waited for its links
// for long, and again when that has changed. Nobody else would see why the region does not
// go on: all of them are connected to the master.
func (v *service) awaitLinks(n tuple.Generation, first int, links GenerationLinks, linked <-chan struct{}) {
	look := time.NewTicker(v.cfg.Lease)
	defer look.Stop()
	var told []string
	tell := func(waits []string) {
		if !slices.Equal(waits, told) {
			v.unlinked(n, first, waits)
			told = waits
		}
	}
	for {
		select {
		case <-look.C:
			tell(links.Unlinked())
		case <-linked:
			tell(nil)
			return
		}
	}
}

// unlinked says which workers this one does not reach, and reports it in the name of a task.
func (v *service) unlinked(n tuple.Generation, first int, others []string) {
	v.conn.send(message{Kind: kindUnlinked, Generation: n, Unlinked: others})
	if len(others) == 0 {
		return
	}
	t := v.cfg.Plan.Task(first)
	v.conn.send(message{Kind: kindReport, Generation: n, Report: &errorReport{
		v.cfg.Plan.Components[t.Component].ID, t.Index,
		fmt.Sprintf("worker %s waits for its links to others: it does not reach %s", v.cfg.Worker, strings.Join(others, ", ")),
	}})
}

// known returns what the master knows of poison tuples.
func (o *restore) known() *poison.Suspects {
	s := &poison.Suspects{OneByOne: map[string]bool{}, Failed: map[poison.Key]poison.Failure{}}
	for _, c := range o.OneByOne {
		s.OneByOne[c] = true
	}
	for _, f := range o.Failed {
		s.Failed[f.Key] = f.Failure
	}
	return s
}

// await waits for the tasks of a stopped part to end.
func (v *service) await(p *part) error {
	late := time.NewTimer(v.cfg.StopTimeout)
	defer late.Stop()
	select {
	case <-p.Ended():
		return nil
	case <-late.C:
		buf := make([]byte, 1<<20)
		return fmt.Errorf("stop generation %d: tasks did not end within %s: %w; stacks:\n%s",
			p.Number, v.cfg.StopTimeout, ErrHung, buf[:runtime.Stack(buf, true)])
	}
}

// end stops all tasks and waits for them. If some hang, so would waiting for the rest.
func (v *service) end() error {
	for _, p := range v.live {
		p.Stop()
		p.cancel()
	}
	for _, p := range v.live {
		if err := v.await(p); err != nil {
			return err
		}
	}
	if !errors.Is(v.conn.reason(), ErrHung) {
		v.all.Wait()
	}
	return v.hung()
}

// hung returns the reason of the connection's end if that was a task that hangs.
func (v *service) hung() error {
	if err := v.conn.reason(); errors.Is(err, ErrHung) {
		return err
	}
	return nil
}

// countEvery is how often the counts of tasks are reported.
const countEvery = time.Second

// count reports what the tasks have done.
func (v *service) count(ended <-chan struct{}) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.conn.send(message{Kind: kindCounts, Counts: v.tasks.Counts(v.tasks.Running())})
		case <-ended:
			return
		}
	}
}
