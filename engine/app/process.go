package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
	"github.com/isobar-io/isobar/engine/config"
)

// runProcess is what a topology program does that a supervisor has started; path is that
// of the file in which it is told what it is.
func runProcess(path string, build func(*Flags) (*engine.Topology, error), out io.Writer) int {
	p, err := process.Read(path)
	if err != nil {
		fmt.Fprintln(out, err)
		return cluster.ExitUsage
	}
	levels := process.NewLevels(slog.LevelInfo)
	log := slog.New(levels.Handler(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, release := interruptible(out, p.Topology)
	defer release()
	beating, stop := context.WithCancel(context.Background())
	var beat sync.WaitGroup
	beat.Go(func() { process.Beat(beating, p, log) })
	defer func() { stop(); beat.Wait() }()
	code := exitOf(runRole(ctx, p, build, levels, log), log)
	if err := process.NoteExit(p, code); err != nil {
		log.Warn("cannot note how this process ends", "err", err)
	}
	return code
}

// exitOf returns the exit code of a process that ends with an error, or without one.
func exitOf(err error, log *slog.Logger) int {
	switch {
	case err == nil:
		return cluster.ExitDone
	case errors.Is(err, process.ErrInterrupted):
		return cluster.ExitSignal
	case errors.As(err, new(usageError)):
		log.Error("this process cannot be what it is to be", "err", err)
		return cluster.ExitUsage
	case errors.Is(err, process.ErrFenced):
		log.Error("this process ends", "err", err)
		return cluster.ExitFenced
	}
	log.Error("this process ends", "err", err)
	return exitFailed
}

// usageError is an error of what a process was told.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func runRole(ctx context.Context, p cluster.Process, build func(*Flags) (*engine.Topology, error), levels *process.Levels, log *slog.Logger) error {
	f := &Flags{rest: p.Args, data: p.Dir}
	topo, err := build(f)
	if err := errors.Join(append(f.leftOver(), err)...); err != nil {
		return usageError{fmt.Errorf("build the topology: %w", err)}
	}
	conf, err := config.OfJSON("the cluster", p.Config)
	if err != nil {
		return usageError{err}
	}
	links, err := process.LinkConfig(p.Links)
	if err != nil {
		return err
	}
	store, err := natscluster.Open(p.Store, natscluster.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			log.Warn("close the coordination store", "err", err)
		}
	}()
	start := startOf(p)
	start.Kept = p.Role == cluster.RoleMaster && process.Led(ctx, store, p.ID)
	c := process.Config{
		Process: p,
		Build:   topo,
		Options: []engine.Option{
			engine.WithName(p.Topology), engine.WithConfig(conf), engine.WithTasks(p.Tasks),
			engine.WithLogger(log), engine.WithStart(start), Local(p.Dir),
		},
		Store: store, TLS: links, Logger: log, Levels: levels,
	}
	if p.Role == cluster.RoleWorker {
		return process.Worker(ctx, c)
	}
	pages, err := serve(net.JoinHostPort("127.0.0.1", "0"), engine.NewControl())
	if err != nil {
		return err
	}
	defer pages.close(log)
	c.Inspect, c.Metrics = pages.handler.Watch, pages.addr.String()
	return process.Master(ctx, c)
}

// startOf returns what the run of a topology master goes on from. Only the first one of
// an epoch begins where its submission says; a name that is new must have nothing yet.
func startOf(p cluster.Process) engine.Start {
	s := engine.Start{
		From: p.Start.From, Map: p.Start.Map, Drop: p.Start.Drop,
		DropUnpublished: p.Start.DropUnpublished, TakeOver: p.Start.TakeOver,
		Once: cluster.StartName(p.ID, p.Epoch), Unmoved: p.Start.Unmoved,
		Begun: process.Begun(p),
		Later: func(other string) bool { return cluster.StartedLater(other, cluster.StartName(p.ID, p.Epoch)) },
	}
	switch s.From {
	case "":
		s.From = engine.FromNew
	case cluster.FromHead:
		s.From = ""
	}
	return s
}
