package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/tuple"
)

// CrewConfig describes the workers of a topology to its master.
type CrewConfig struct {
	Identity
	Plan   *plan.Plan
	Lease  time.Duration
	Logger *slog.Logger
	// Changed is called when a worker has come or gone, or has told whom it does not reach,
	// if set.
	Changed func()
}

// Crew is the worker.Crew of a topology master whose tasks run in other processes.
type Crew struct {
	cfg   CrewConfig
	slots []*task.Slot // what workers report of their tasks

	mu        sync.Mutex
	place     map[int]string     // worker by task
	members   map[string]*member // by worker, those that are connected
	latest    map[string]uint64  // highest incarnation seen, by worker
	bases     map[string]map[int]worker.Count
	live      map[tuple.Generation]*crewTasks
	changed   chan struct{} // closed and replaced when place or members change
	closed    bool
	dismissed bool
	told      map[string]bool // workers that were told that the run is over
	serving   sync.WaitGroup
}

// member is a worker that is connected.
type member struct {
	*conn
	hello
	base map[int]worker.Count // what the tasks had done before this process
}

// NewCrew returns a Crew without workers.
func NewCrew(c CrewConfig) *Crew {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return &Crew{
		cfg:     c,
		slots:   task.NewSlots(c.Plan),
		place:   map[int]string{},
		members: map[string]*member{},
		latest:  map[string]uint64{},
		bases:   map[string]map[int]worker.Count{},
		told:    map[string]bool{},
		live:    map[tuple.Generation]*crewTasks{},
		changed: make(chan struct{}),
	}
}

// Place says which worker is to run which tasks from the next generation of their region
// on.
func (c *Crew) Place(workers map[string][]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place = map[int]string{}
	for id, tasks := range workers {
		for _, t := range tasks {
			c.place[t] = id
		}
	}
	c.change()
}

// change wakes whoever waits for another place or member. The caller holds mu.
func (c *Crew) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Workers returns the ids of those that are connected.
func (c *Crew) Workers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.members))
}

// Unlinked returns the pairs of workers that do not reach each other, so that a region
// cannot start: each pair once, its smaller id first, in order.
func (c *Crew) Unlinked() [][2]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	pairs := map[[2]string]bool{}
	for _, t := range c.live {
		t.unlinkedInto(pairs)
	}
	return slices.SortedFunc(maps.Keys(pairs), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
}

// Incomplete reports whether a worker that is to have tasks is not connected, or whether
// it is not even known who is to have them.
func (c *Crew) Incomplete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.place {
		if c.members[id] == nil {
			return true
		}
	}
	return len(c.place) == 0
}

// acceptAgain is the pause after a connection could not be taken, for want of files for one.
const acceptAgain = 100 * time.Millisecond

// Serve takes the connections of workers until l is closed. A failure to take one may pass,
// and nobody else would take the next.
func (c *Crew) Serve(l net.Listener) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.cfg.Logger.Warn("cannot take a connection of a worker", "at", l.Addr().String(), "err", err)
			again.Reset(acceptAgain)
			<-again.C
			continue
		}
		c.mu.Lock()
		if c.closed {
			_ = nc.Close() // no word was said on it
		} else {
			c.serving.Go(func() { c.serve(newConn(nc, c.cfg.Lease)) })
		}
		c.mu.Unlock()
	}
}

// serve talks to one worker until its connection is over.
func (c *Crew) serve(conn *conn) {
	log := c.cfg.Logger.With("from", conn.net.RemoteAddr().String())
	h, err := c.cfg.admit(conn)
	if err != nil {
		log.Warn("a worker was not admitted", "err", err)
		conn.end(err)
		return
	}
	m := &member{conn: conn, hello: *h}
	if err := c.enter(m); err != nil {
		c.cfg.refuse(conn, err)
		log.Warn("a worker was not admitted", "worker", h.Worker, "err", err)
		conn.end(err)
		return
	}
	log.Info("worker connected", "worker", h.Worker, "incarnation", h.Incarnation)
	err = c.converse(m)
	conn.end(err)
	conn.wait()
	c.leave(m)
	if !errors.Is(conn.err, errQuit) {
		log.Warn("worker lost", "worker", h.Worker, "err", conn.err)
	}
}

// enter makes a worker a member. Of two processes for one worker the later one is right,
// at once, however alive the other may look.
func (c *Crew) enter(m *member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.New("the run is over")
	}
	if latest := c.latest[m.Worker]; m.Incarnation < latest {
		return fmt.Errorf("worker %s has been replaced by a later process", m.Worker)
	}
	if old := c.members[m.Worker]; old != nil {
		old.end(errors.New("replaced by a later process, or a later connection of it"))
		c.gone(old)
	}
	if m.Incarnation != c.latest[m.Worker] {
		base := map[int]worker.Count{}
		for _, s := range c.slots {
			base[s.ID] = worker.CountOf(s)
		}
		c.bases[m.Worker] = base
	}
	m.base = c.bases[m.Worker]
	if err := c.cfg.welcome(m.conn, &m.hello); err != nil {
		return err
	}
	c.latest[m.Worker] = m.Incarnation
	c.members[m.Worker] = m
	m.open()
	if c.dismissed {
		m.send(message{Kind: kindQuit})
	}
	c.change()
	go c.cfg.Changed()
	return nil
}

// leave takes note that a worker is not connected any more.
func (c *Crew) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[m.Worker] == m {
		c.told[m.Worker] = m.quit.Load()
		c.gone(m)
		c.change()
		go c.cfg.Changed()
	}
}

// gone fails the tasks on a worker. The caller holds mu.
func (c *Crew) gone(m *member) {
	delete(c.members, m.Worker)
	for _, t := range c.live {
		t.lost(m)
	}
}

// converse takes what a worker says.
func (c *Crew) converse(m *member) error {
	for {
		msg, err := m.read(maxMessage)
		if err != nil {
			return err
		}
		switch msg.Kind {
		case kindEvent, kindEnded, kindReport, kindUnlinked:
			c.mu.Lock()
			t := c.live[msg.Generation]
			c.mu.Unlock()
			if t == nil { // of a generation that is over
				continue
			}
			if err := t.told(m, msg); err != nil {
				return err
			}
		case kindCounts:
			if err := c.count(m, msg.Counts); err != nil {
				return err
			}
		default:
			return fmt.Errorf("a worker has sent a %q message", msg.Kind)
		}
	}
}

// Make has the workers make their tasks of a region, once all of them are there.
func (c *Crew) Make(ctx context.Context, env *task.Env, region plan.Region, n tuple.Generation, r *task.Restore) worker.Tasks {
	t := &crewTasks{crew: c, env: env, region: region, number: n, restore: r, ended: make(chan struct{}), stopped: make(chan struct{})}
	c.mu.Lock()
	c.live[n] = t
	c.mu.Unlock()
	c.serving.Go(func() { t.make(ctx) })
	return t
}

// Stats returns what the worker of a task has reported of it.
func (c *Crew) Stats(id int) *task.Stats { return &c.slots[id-1].Stats }

// Dismiss tells all workers that the run is over for good. It waits for those that Place
// has named and that are not connected, until ctx ends.
func (c *Crew) Dismiss(ctx context.Context) {
	c.mu.Lock()
	c.dismissed = true
	for _, m := range c.members {
		m.send(message{Kind: kindQuit})
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		changed, waits := c.changed, len(c.place) == 0 // it is not known yet who there is
		for _, id := range c.place {
			waits = waits || !c.told[id]
		}
		c.mu.Unlock()
		if !waits {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the connections, and waits until nothing of the Crew runs any more. Workers
// that were not dismissed look for another topology master.
func (c *Crew) Close(bool) {
	c.mu.Lock()
	c.closed = true
	for _, m := range c.members {
		m.end(errQuit)
	}
	c.mu.Unlock()
	c.serving.Wait()
}
