package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/master"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/task"
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

// WithStorage has open called when the run begins. The default keeps everything in
// memory: a failed task is rolled back, but nothing outlives the process.
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

// Run runs a topology in this process until all input has been processed, until ctx
// ends, or until it fails. When ctx ends it takes a last checkpoint and returns
// without an error. It goes on from the latest checkpoint in the store.
func Run(ctx context.Context, t *Topology, opts ...Option) (res Result, err error) {
	o := &options{name: "topology", open: inMemory, control: NewControl(), logger: slog.New(slog.DiscardHandler), hook: func(string) {}}
	for _, opt := range opts {
		if err := opt(o); err != nil {
			return Result{}, err
		}
	}
	conf := config.Merge(config.Defaults(), t.config, o.config)
	if err := t.checkConfig(conf); err != nil {
		return Result{}, err
	}
	p, err := t.plan(o.name, conf)
	if err != nil {
		return Result{}, err
	}
	storage, err := o.open(context.WithoutCancel(ctx), Opening{Topology: o.name, Config: conf, Logger: o.logger, Hook: o.hook})
	if err != nil {
		return Result{}, err
	}
	if storage.Close != nil {
		defer func() { err = errors.Join(err, storage.Close()) }()
	}
	run := master.Run
	if !conf.Bool("transaction.topology") {
		if err := refuseKept(context.WithoutCancel(ctx), o.name, storage.Store); err != nil {
			return Result{}, err
		}
		run = master.RunLocal
	}
	res, err = run(ctx, masterConfig(t, p, conf, o, storage))
	if err == nil && t.finished != nil {
		t.finished(res)
	}
	return res, err
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

func masterConfig(t *Topology, p *plan.Plan, conf config.Values, o *options, s Storage) master.Config {
	return master.Config{
		Plan: p,
		Env: task.Env{
			Plan:        p,
			Factory:     func(id string) any { return t.factories[id]() },
			Barriers:    conf.Bool("transaction.topology"),
			ExactlyOnce: conf.Bool("transaction.exactly.once.mode"),
			BatchDelay:  conf.Duration("transaction.schedule.batch.delay.ms"),
			FrameMax:    conf.Int("topology.frame.tuples"),
			Frames:      conf.Int("topology.channel.frames"),
			Poison:      conf.Bool("topology.debug.poison.frames"),
			State:       s.State,
			Config:      func(id string) config.Values { return config.Merge(conf, t.own[id]) },
			Hooks:       t.hooks,
			Logger:      o.logger,
			Hook:        o.hook,
			Processing:  task.NewProcessingTime(),
		},
		Store: s.Store,
		Timing: checkpoint.Config{
			Interval:        conf.Duration("transaction.schedule.batch.delay.ms"),
			MaxPending:      conf.Int("transaction.max.pending.batch"),
			SnapshotTimeout: conf.Duration("transaction.batch.snapshot.timeout"),
			AckRepeat:       ackRepeat,
			RestartMin:      restartMin,
			RestartMax:      restartMax,
			MaxRestarts:     conf.Int("topology.restart.max"),
			StoreRetry:      storeRetry,
		},
		Retained:    conf.Int("checkpoint.retained"),
		StopTimeout: conf.Duration("topology.task.stop.timeout.secs"),
		OrphanGrace: conf.Duration("checkpoint.orphan.grace.secs"),
		Engine:      Version,
		Logger:      o.logger,
		Control:     o.control,
		Start:       o.start,
		Progress:    o.progress,
		Inspect:     o.inspect,
	}
}
