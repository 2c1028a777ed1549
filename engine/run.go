package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/master"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/tuple/wire"
)

// Version is the version of Isobar; checkpoints record it.
const Version = "0.1.0"

type (
	// Result tells how a run ended.
	Result = master.Result
	// Progress is a look at a running topology.
	Progress = master.Progress
	// Start says what a run goes on from.
	Start = master.Start
	// Inspector looks at a run from outside.
	Inspector = master.Inspector
)

// ErrHung is wrapped by the error of a run whose user code did not return in time.
var ErrHung = master.ErrHung

// ErrStoreUnreachable is wrapped by the error of a run that did not begin because the
// checkpoint store did not answer as it should: another try may do better.
var ErrStoreUnreachable = master.ErrStoreUnreachable

// FromLatest and FromNew are each a Start.From: there must be checkpoints, or there must be
// none.
const (
	FromLatest = master.FromLatest
	FromNew    = master.FromNew
)

// ErrElsewhere is wrapped by the error of a run that was to begin from Start.Unmoved.
var ErrElsewhere = master.ErrElsewhere

// ErrAbandoned is wrapped by the error of a run that was abandoned; see Control.Abandon.
var ErrAbandoned = master.ErrAbandoned

// ErrReplaced is wrapped by the error of a run in whose place another start has come.
var ErrReplaced = master.ErrReplaced

// Option changes how a topology is run.
type Option func(*options) error

type options struct {
	name     string
	config   config.Values
	open     func(context.Context, Opening) (Storage, error)
	logger   *slog.Logger
	progress func(Progress)
	inspect  func(*Inspector)
	hook     func(step string)
	control  *Control
	start    Start
	tasks    map[string]int
	crew     func(*plan.Plan) (worker.Crew, error)
	led      bool // the crew is not this process
}

// WithName names the topology; the default is "topology". Checkpoints belong to it.
func WithName(name string) Option {
	return func(o *options) error { o.name = name; return nil }
}

// WithConfig sets configuration that takes precedence over the topology's own.
func WithConfig(v config.Values) Option {
	return func(o *options) error { o.config = config.Merge(o.config, v); return nil }
}

// WithStart sets what the run goes on from; the default is the latest checkpoint.
func WithStart(s Start) Option {
	return func(o *options) error { o.start = s; return nil }
}

// Storage is where a run keeps its checkpoints and the state of its tasks.
type Storage struct {
	Store checkpoint.Store
	State checkpoint.StateOpener
	// Close is called after the run, if set.
	Close func() error
}

// Opening is what is known of a run when its storage is opened.
type Opening struct {
	Topology string
	Config   config.Values
	Logger   *slog.Logger
	Hook     func(step string)
}

// WithStorage has open called when the run begins, with a context that ends when it has
// returned. The default keeps everything in memory: a failed task is rolled back, but
// nothing outlives the process.
func WithStorage(open func(context.Context, Opening) (Storage, error)) Option {
	return func(o *options) error { o.open = open; return nil }
}

// WithStore keeps checkpoints in s and the state of tasks in what state opens.
func WithStore(s checkpoint.Store, state checkpoint.StateOpener) Option {
	return WithStorage(func(context.Context, Opening) (Storage, error) {
		return Storage{Store: s, State: state}, nil
	})
}

func inMemory(context.Context, Opening) (Storage, error) {
	s := memstore.New()
	return Storage{Store: s, State: memstore.NewOpener(s)}, nil
}

// WithLogger sets where the engine logs; the default is nowhere.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error { o.logger = l; return nil }
}

// WithProgress has fn called about once a second and at the end.
func WithProgress(fn func(Progress)) Option {
	return func(o *options) error { o.progress = fn; return nil }
}

// WithInspector has fn called when the run begins.
func WithInspector(fn func(*Inspector)) Option {
	return func(o *options) error { o.inspect = fn; return nil }
}

// WithHook has fn called at every named step of the commit protocol, on the
// goroutine that takes it, so that tests can stop or kill there. The steps, each with
// a ".before" and, if it succeeds, an ".after":
//
//	restore    a task is opened from the checkpoint
//	finish     a task finishes a batch and forwards its barrier
//	commit     a task makes a batch durable; within it, for keyed state,
//	sst        the changes are written to a local file,
//	sst.store  the file is put to the store,
//	ingest     and becomes part of the local state
//	base       a new base of the state is written and stored
//	manifest   a manifest is put to the store
//	head       the head is moved
//	ack        a task publishes what is committed; within it
//	publish    a keyed sink does
//	delete     an object that no checkpoint names is deleted
func WithHook(fn func(step string)) Option {
	return func(o *options) error { o.hook = fn; return nil }
}

// WithTasks gives components other numbers of tasks than the topology and its
// configuration do.
func WithTasks(n map[string]int) Option {
	return func(o *options) error { o.tasks = n; return nil }
}

// WithCrew has the tasks run by what open returns, for which storage need hold no state;
// the default is this process. The crew is closed when the run is over.
func WithCrew(open func(*plan.Plan) (worker.Crew, error)) Option {
	return func(o *options) error { o.crew, o.led = open, true; return nil }
}

// run is a topology that is about to be run, laid out under its configuration.
type run struct {
	*options
	topology *Topology
	conf     config.Values
	plan     *plan.Plan
	storage  Storage
}

func prepare(t *Topology, opts []Option) (*run, error) {
	r := &run{topology: t, options: &options{name: "topology", open: inMemory, control: NewControl(), logger: slog.New(slog.DiscardHandler), hook: func(string) {}}}
	for _, opt := range opts {
		if err := opt(r.options); err != nil {
			return nil, err
		}
	}
	r.conf = config.Merge(config.Defaults(), t.config, r.config)
	if err := t.checkConfig(r.conf); err != nil {
		return nil, err
	}
	for id := range r.tasks {
		if t.factories[id] == nil {
			return nil, fmt.Errorf("set the tasks of component %q: the topology has none of that name", id)
		}
	}
	if err := checkName(r.name); err != nil {
		return nil, err
	}
	var err error
	if r.plan, err = t.plan(r.name, r.conf, r.tasks); err != nil {
		return nil, err
	}
	if r.crew == nil {
		r.crew = func(p *plan.Plan) (worker.Crew, error) { return worker.New(p, r.logger), nil }
	}
	return r, nil
}

// nameMax is how long the name of a topology can be: it is the name of a folder.
const nameMax = 128

// checkName refuses names of topologies that their checkpoints could not have.
func checkName(name string) error {
	if checkpoint.ValidName(name) != nil || strings.Contains(name, "/") || len(name) > nameMax {
		return fmt.Errorf("topology name %.200q: a name is made of letters, digits, '.', '-' and '_', not of dots alone, and has at most %d characters", name, nameMax)
	}
	return nil
}

// store opens the storage, which close closes.
func (r *run) store(ctx context.Context) (err error) {
	opening, opened := untilOpened(ctx)
	defer opened()
	r.storage, err = r.open(opening, Opening{Topology: r.name, Config: r.conf, Logger: r.logger, Hook: r.hook})
	if err != nil && opening.Err() != nil {
		err = fmt.Errorf("stopped while the checkpoint store was opened, nothing has run: %w", err)
	}
	if err != nil {
		return master.Unreachable(err)
	}
	return nil
}

func (r *run) close() error {
	if r.storage.Close == nil {
		return nil
	}
	return r.storage.Close()
}

// Run runs a topology in this process until all input has been processed, until ctx
// ends, or until it fails. When ctx ends it takes a last checkpoint and returns
// without an error. It goes on from the latest checkpoint in the store.
func Run(ctx context.Context, t *Topology, opts ...Option) (res Result, err error) {
	r, err := prepare(t, opts)
	if err != nil {
		return Result{}, err
	}
	if err := r.store(ctx); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	lead := master.Run
	if !r.conf.Bool("transaction.topology") {
		if err := refuseKept(context.WithoutCancel(ctx), r.name, r.storage.Store); err != nil {
			return Result{}, err
		}
		lead = master.RunLocal
	}
	crew, err := r.crew(r.plan)
	if err != nil {
		return Result{}, err
	}
	res, err = lead(ctx, r.master(crew))
	crew.Close(errors.Is(err, ErrHung))
	if err == nil && t.finished != nil {
		t.finished(res)
	}
	return res, err
}

// Workplace is what a process needs to run tasks that a topology master elsewhere leads.
type Workplace struct {
	Plan        *plan.Plan
	Env         task.Env
	Codecs      *wire.Registry // of what tuples hold between processes
	StopTimeout time.Duration
}

// Work opens the storage for tasks of a topology and has serve run them.
func Work(ctx context.Context, t *Topology, serve func(context.Context, Workplace) error, opts ...Option) (err error) {
	r, err := prepare(t, opts)
	if err != nil {
		return err
	}
	if err := r.store(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return serve(ctx, Workplace{
		Plan:        r.plan,
		Env:         r.env(),
		Codecs:      r.topology.codecs,
		StopTimeout: r.conf.Duration("topology.task.stop.timeout.secs"),
	})
}

// Layout returns the plan of a topology and its total configuration, and all that speaks
// against running it.
func Layout(t *Topology, opts ...Option) (*plan.Plan, config.Values, error) {
	r, err := prepare(t, opts)
	if err != nil {
		return nil, config.Values{}, err
	}
	return r.plan, r.conf, nil
}

// refuseKept keeps an at-most-once run, which would begin from nothing, away from
// the checkpoints of an earlier one.
func refuseKept(ctx context.Context, name string, s checkpoint.Store) error {
	_, _, err := s.ReadHead(ctx)
	if err == nil {
		return fmt.Errorf("topology %q has checkpoints, which a run with transaction.topology: false would ignore: use another data folder for it", name)
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("read the head of topology %q: %w", name, err)
}

// Bounds of the pauses of the topology master.
const (
	ackRepeat  = time.Second
	restartMin = 100 * time.Millisecond
	restartMax = 30 * time.Second
	storeRetry = 500 * time.Millisecond
)

func (r *run) env() task.Env {
	return task.Env{
		Plan:        r.plan,
		Factory:     func(id string) any { return r.topology.factories[id]() },
		Barriers:    r.conf.Bool("transaction.topology"),
		ExactlyOnce: r.conf.Bool("transaction.exactly.once.mode"),
		BatchDelay:  r.conf.Duration("transaction.schedule.batch.delay.ms"),
		FrameMax:    r.conf.Int("topology.frame.tuples"),
		Frames:      r.conf.Int("topology.channel.frames"),
		Poison:      r.conf.Bool("topology.debug.poison.frames"),
		State:       r.storage.State,
		Config:      func(id string) config.Values { return config.Merge(r.conf, r.topology.own[id]) },
		Hooks:       r.topology.hooks,
		Logger:      r.logger,
		Hook:        r.hook,
		Processing:  task.NewProcessingTime(),
	}
}

func (r *run) master(crew worker.Crew) master.Config {
	stop := r.conf.Duration("topology.task.stop.timeout.secs")
	if r.led { // a worker whose tasks hang ends itself after that time; its master must not do so as well
		stop *= 2
	}
	return master.Config{
		Plan:  r.plan,
		Env:   r.env(),
		Crew:  crew,
		Store: r.storage.Store,
		Timing: checkpoint.Config{
			Interval:        r.conf.Duration("transaction.schedule.batch.delay.ms"),
			MaxPending:      r.conf.Int("transaction.max.pending.batch"),
			SnapshotTimeout: r.conf.Duration("transaction.batch.snapshot.timeout"),
			AckRepeat:       ackRepeat,
			RestartMin:      restartMin,
			RestartMax:      restartMax,
			MaxRestarts:     r.conf.Int("topology.restart.max"),
			StoreRetry:      storeRetry,
		},
		Retained:    r.conf.Int("checkpoint.retained"),
		StopTimeout: stop,
		OrphanGrace: r.conf.Duration("checkpoint.orphan.grace.secs"),
		Engine:      Version,
		Logger:      r.logger,
		Control:     r.control,
		Start:       r.start,
		Progress:    r.progress,
		Inspect:     r.inspect,
	}
}
