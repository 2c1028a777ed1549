package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// Supervisor looks after the processes of one data folder.
type Supervisor struct {
	cfg    Config
	dir    string // absolute, without symbolic links
	log    *slog.Logger
	began  time.Time
	unlock func() error

	cache   *cache
	logs    *logs
	heart   *heart
	folders sync.Mutex // held to make and to remove working folders

	// work ends when the supervisor does; running are all goroutines that end with it.
	work    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	events  chan message
	blobs   chan []blobUse // holds what is in use now; see followBlobs
	trashed chan struct{}  // there is something in the trash

	// The loop owns the rest.
	table     *slots.Table
	saved     uint64 // the changes that are on disk
	unsaved   bool   // the last attempt to save has failed
	shown     uint64 // the changes that the heartbeat has
	processes map[slots.Place]*process
	preparing map[slots.Place]context.CancelFunc
	kits      map[slots.Place]kit
	watched   map[string]context.CancelFunc
	unhealthy string
}

// message is an event, with what belongs to it outside of the decisions.
type message struct {
	event   slots.Event
	process *process // of Started
	kit     kit      // of Prepared
	done    chan int // of KillOrdered: receives how many processes are affected
}

// New takes over a data folder. It starts nothing before Run, which must be called.
func New(cfg Config) (*Supervisor, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("configure the supervisor: %w", err)
	}
	unlock, err := filestore.LockFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s, err := open(cfg)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	s.unlock = unlock
	return s, nil
}

func open(cfg Config) (*Supervisor, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", cfg.Dir, err)
	}
	for _, name := range []string{binariesDir, blobsDir, topologiesDir, logsDir, trashDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("open data folder %s: %w", dir, err)
		}
	}
	if cfg.ID, err = identity(dir, cfg.ID); err != nil {
		return nil, err
	}
	log := cfg.Logger.With("supervisor", cfg.ID)
	cfg.Logger = log
	s := &Supervisor{
		cfg: cfg, dir: dir, log: log, began: time.Now(),
		cache:     newCache(dir, int64(cfg.CacheMB)<<20, cfg.Store, log),
		logs:      &logs{dir: filepath.Join(dir, logsDir), max: int64(cfg.LogMB) << 20, parts: cfg.LogParts, log: log},
		heart:     newHeart(cfg),
		events:    make(chan message),
		blobs:     make(chan []blobUse, 1),
		trashed:   make(chan struct{}, 1),
		processes: map[slots.Place]*process{},
		preparing: map[slots.Place]context.CancelFunc{},
		kits:      map[slots.Place]kit{},
		watched:   map[string]context.CancelFunc{},
	}
	state, err := s.load()
	if err != nil {
		return nil, err
	}
	s.table = slots.New(cfg.limits(), state)
	return s, s.cache.sweep()
}

// ID returns the supervisor's name in its cluster.
func (s *Supervisor) ID() string { return s.cfg.ID }

func (s *Supervisor) moment() slots.Moment {
	now := time.Now()
	return slots.Moment{Now: now.Sub(s.began), Unix: now.UnixNano()}
}

// Run looks after the processes until ctx ends. Then it leaves them running, or ends them
// if StopProcesses is set.
func (s *Supervisor) Run(ctx context.Context) (err error) {
	s.work, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() { err = errors.Join(err, s.unlock()) }()
	defer s.running.Wait()
	defer s.stop()
	if err := s.heart.alone(ctx); err != nil {
		return err
	}
	s.step(s.findProcesses())
	serving, err := s.cfg.Store.Serve(cluster.SupervisorService(s.cfg.ID), s.handle)
	if err != nil {
		return fmt.Errorf("serve supervisor %s: %w", s.cfg.ID, err)
	}
	beating, rest := context.WithCancel(s.work)
	var heart sync.WaitGroup
	heart.Go(func() { s.heart.beat(beating) })
	s.running.Go(func() { s.watchAssignments(s.work) })
	s.running.Go(func() { s.keepBlobs(s.work) })
	s.running.Go(func() { s.keepHouse(s.work) })
	s.running.Go(func() { s.keepHealthy(s.work) })
	s.loop(ctx.Done())
	serving()
	rest()
	heart.Wait()
	saying, cancel := context.WithTimeout(s.work, s.cfg.HeartbeatEvery)
	defer cancel()
	if err := s.heart.farewell(saying); err != nil {
		s.log.Warn("nimbus will find out by itself that this supervisor has ended", "err", err)
	}
	return nil
}

// loop takes events until the supervisor is to close and everything has come to rest.
func (s *Supervisor) loop(closing <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !s.table.Closed() {
		if next, ok := s.table.Next(); ok {
			timer.Reset(max(next-s.moment().Now, 0))
		} else {
			timer.Stop()
		}
		select {
		case <-closing:
			closing = nil
			s.step(slots.Closing{EndProcesses: s.cfg.StopProcesses})
		case <-timer.C:
			s.step(slots.Ticked{})
		case m := <-s.events:
			s.take(m)
		}
	}
}

// post hands an event to the loop. It is lost if the supervisor ends before.
func (s *Supervisor) post(ev slots.Event) { s.send(message{event: ev}) }

func (s *Supervisor) send(m message) {
	select {
	case s.events <- m:
	case <-s.work.Done():
	}
}

// take handles what belongs to an event, then the event.
func (s *Supervisor) take(m message) {
	switch ev := m.event.(type) {
	case slots.Prepared:
		s.prepared(ev.Place)
		s.kits[ev.Place] = m.kit
	case slots.PrepareFailed:
		s.prepared(ev.Place)
	case slots.Started:
		s.log.Info("a process was started", "place", ev.Place.String(), "pid", ev.PID, "incarnation", m.process.incarnation)
		s.watchProcess(m.process)
	case slots.Exited:
		if p := s.processes[ev.Place]; p != nil && p.incarnation == ev.Incarnation {
			delete(s.processes, ev.Place)
		}
		s.log.Info("a process has ended", "place", ev.Place.String(), "how", ev.How)
	case slots.Cleaned:
		delete(s.kits, ev.Place)
	case slots.HealthFound:
		s.unhealthy = ev.Unhealthy
	case slots.KillOrdered:
		m.done <- len(s.processes)
	}
	s.step(m.event)
}

// prepared lets go of the context of a preparation.
func (s *Supervisor) prepared(p slots.Place) {
	if cancel := s.preparing[p]; cancel != nil {
		cancel()
		delete(s.preparing, p)
	}
}

// step lets the table decide, puts what it knows on disk, and does what it says.
func (s *Supervisor) step(ev slots.Event) {
	queue := []slots.Event{ev}
	for len(queue) > 0 {
		actions := s.table.Step(s.moment(), queue[0])
		queue = queue[1:]
		if s.unsaved || s.table.Changes() != s.saved {
			s.save()
		}
		for _, a := range actions {
			if failed := s.do(a); failed != nil {
				queue = append(queue, failed)
			}
		}
	}
	if changes := s.table.Changes(); changes != s.shown || changes == 0 {
		s.shown = changes
		s.show()
		s.followTopologies()
		s.followBlobs()
	}
}

// do begins an action. What takes time goes on by itself.
func (s *Supervisor) do(a slots.Action) (failed slots.Event) {
	switch a := a.(type) {
	case slots.Prepare:
		ctx, cancel := context.WithCancel(s.work)
		s.preparing[a.Place] = cancel
		s.running.Go(func() {
			k, err := s.prepare(ctx, a.Place, a.Assignment)
			if err != nil {
				s.post(slots.PrepareFailed{Place: a.Place, Reason: err.Error()})
				return
			}
			s.send(message{event: slots.Prepared{Place: a.Place}, kit: k})
		})
	case slots.Abandon:
		s.preparing[a.Place]()
	case slots.Start:
		if s.unsaved {
			return slots.StartFailed{Place: a.Place, Reason: "start " + a.Place.String() + ": it cannot be noted on disk"}
		}
		k := s.kits[a.Place]
		s.running.Go(func() {
			p, err := s.start(k, a)
			if err != nil {
				s.post(slots.StartFailed{Place: a.Place, Reason: err.Error()})
				return
			}
			s.send(message{event: slots.Started{Place: a.Place, PID: p.os.Pid, Birth: p.birth}, process: p})
		})
	case slots.Adopt:
		s.log.Info("a process was found running", "place", a.Slot.Place.String(), "pid", a.Slot.PID)
		s.watchProcess(s.processes[a.Slot.Place])
	case slots.Terminate:
		s.signal(a.Place, "terminate", terminate)
	case slots.DumpStacks:
		s.signal(a.Place, "dump the stacks of", dumpStacks)
	case slots.Kill:
		s.signal(a.Place, "kill", kill)
	case slots.Clean:
		s.running.Go(func() {
			s.clean(a.Place)
			select {
			case s.trashed <- struct{}{}:
			default:
			}
			s.post(slots.Cleaned{Place: a.Place})
		})
	case slots.Complain:
		s.log.Warn(a.Text, "place", a.Place.String())
	}
	return nil
}

func (s *Supervisor) signal(p slots.Place, what string, send func(*os.Process) error) {
	process := s.processes[p]
	if process == nil {
		return // its end is on its way
	}
	if err := send(process.os); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.log.Warn("cannot "+what+" a process", "place", p.String(), "err", err)
	}
}

// watchProcess looks at a process's beat until it has ended.
func (s *Supervisor) watchProcess(p *process) {
	s.processes[p.place] = p
	if p.child != nil && !waitsWell {
		go p.await(s.work) // it ends with the process
	} else {
		s.running.Go(func() { p.await(s.work) })
	}
	s.running.Go(func() {
		tick := time.NewTicker(s.cfg.BeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.post(slots.Looked{Place: p.place, Incarnation: p.incarnation, Changed: p.look()})
			case <-p.ended:
				s.post(slots.Exited{Place: p.place, Incarnation: p.incarnation, Code: p.code, How: p.how})
				return
			case <-s.work.Done():
				return
			}
		}
	})
}

// show gives the heartbeat another picture.
func (s *Supervisor) show() {
	p := &picture{unhealthy: s.unhealthy}
	for _, slot := range s.table.Slots() {
		p.processes = append(p.processes, cluster.ProcessStatus{
			ID: slot.ID, Role: slot.Role, Port: slot.Port, Epoch: slot.Epoch, Number: slot.Number,
			PID: slot.PID, Running: slot.Phase.Alive(), Coming: slot.Phase.Coming(),
			Restarts: slot.Restarts, Since: time.Unix(0, slot.Since), Exit: slot.Exit,
		})
		if slot.Port != 0 && !slices.Contains(p.used, slot.Port) {
			p.used = append(p.used, slot.Port)
		}
	}
	slices.Sort(p.used)
	s.heart.show(p)
}

// keepHealthy runs the health checks until ctx ends.
func (s *Supervisor) keepHealthy(ctx context.Context) {
	last := ""
	for {
		h := checkHealth(ctx, s.cfg.HealthDir, s.cfg.HealthTimeout)
		if ctx.Err() != nil {
			return
		}
		if h.Unhealthy != last {
			s.log.Warn("the health of this machine has changed", "unhealthy", h.Unhealthy)
			s.post(slots.HealthFound{Unhealthy: h.Unhealthy})
			last = h.Unhealthy
		}
		if !pause(ctx, s.cfg.HealthEvery, nil) {
			return
		}
	}
}

// keepHouse bounds what is on disk, until ctx ends.
func (s *Supervisor) keepHouse(ctx context.Context) {
	for {
		for _, path := range list(filepath.Join(s.dir, trashDir)) {
			if err := os.RemoveAll(path); err != nil {
				s.log.Warn("cannot empty the trash", "path", path, "err", err)
			}
		}
		s.logs.keep(func(id string) bool {
			_, err := os.Stat(filepath.Join(s.dir, topologiesDir, id))
			return err == nil
		}, time.Now().Add(-s.cfg.LogAge))
		s.cache.trim(s.cache.budget)
		if !pause(ctx, s.cfg.HouseEvery, s.trashed) {
			return
		}
	}
}

// identity returns the name of a supervisor: the one that is wanted, that in the data
// folder, or a new one.
func identity(dir, wanted string) (string, error) {
	path := filepath.Join(dir, "id")
	text, err := os.ReadFile(path)
	kept := strings.TrimSpace(string(text))
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read the supervisor's id: %w", err)
	case err == nil && !isName(kept):
		return "", fmt.Errorf("the supervisor's id in %s is %q, which is no name: put the old one back, or remove the data folder", path, kept)
	case err == nil && (wanted == "" || wanted == kept):
		return kept, nil
	case err == nil:
		return "", fmt.Errorf("data folder %s belongs to supervisor %s, not to %s: use another folder", dir, kept, wanted)
	case wanted == "":
		wanted = newID()
	}
	return wanted, writeSecret(path, wanted+"\n")
}
