// Package app makes a program of a topology: it reads the command line, runs the
// topology on a data folder, shows progress, and ends in order when interrupted.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
)

// Exit codes of a topology program.
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitInterrupt = 130 // interrupted a second time
)

// Main is the main function of a topology program: it runs the topology here, or submits
// it to a cluster, where the same program is its processes. It ends the process: with 0 when
// all input was processed or the run was stopped in order, with 1 when it failed,
// with 2 when the command line is wrong, and with 130 when it was interrupted twice.
func Main(name string, build func(*Flags) (*engine.Topology, error)) {
	os.Exit(Run(name, build, os.Args[1:], os.Stdout, os.Stderr))
}

// Run is Main with the command line and the outputs given. It returns the exit code.
func Run(name string, build func(*Flags) (*engine.Topology, error), args []string, stdout, stderr io.Writer, opts ...engine.Option) int {
	usage := func(err error) int {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", name)
		return exitUsage
	}
	if path := os.Getenv(cluster.EnvProcess); path != "" {
		return runProcess(path, build, stderr)
	}
	if len(args) > 0 && args[0] == "submit" {
		return submit(name, build, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "run" {
		args = args[1:]
	}
	f := &Flags{rest: slices.Clone(args)}
	f.data = *f.String("data", filepath.Join(".isobar", name), "keep checkpoints and state in `DIR`")
	assignments := f.Strings("c", nil, "set configuration, as in -c checkpoint.retained=5 (`KEY=VALUE`, repeatable)")
	file := f.String("config", "", "read configuration from a YAML `FILE`")
	listen := f.String("listen", "", "serve /metrics, /healthz, /debug/pprof and the commands of an operator at `ADDR`; \":9090\" is for this machine only")
	start := startFlags(f)
	verbose := f.Bool("verbose", "log what the engine does")
	help := f.Bool("help", "show this help") // -h is rarely a flag of the topology's own
	topo, err := build(f)
	if *help || slices.Contains(f.rest, "-h") {
		fmt.Fprint(stdout, f.help(name, helpRun))
		return exitOK
	}
	if errs := f.leftOver(); len(errs) > 0 {
		return usage(errors.Join(errs...))
	}
	if err == nil && topo == nil {
		err = errors.New("the build function returned none")
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: build the topology: %v\n", name, err)
		return exitFailed
	}
	conf, err := config.Read(*file, *assignments)
	if err != nil {
		return usage(err)
	}
	from, err := start()
	if err != nil {
		return usage(err)
	}
	addr := ""
	if *listen != "" {
		if addr, err = listenAddress(*listen); err != nil {
			return usage(err)
		}
	}
	show := newScreen(stderr, f.progress)
	log := newLogger(show, *verbose)
	all := append([]engine.Option{
		engine.WithName(name),
		engine.WithConfig(conf),
		engine.WithLogger(log),
		engine.WithProgress(show.progress),
		engine.WithStart(from),
		Local(f.data),
	}, opts...)
	if err := runAt(addr, name, topo, show, log, all); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitFailed
	}
	return exitOK
}

// runAt runs a topology and shows the run at an address, if there is one.
func runAt(addr, name string, topo *engine.Topology, show *screen, log *slog.Logger, opts []engine.Option) error {
	if addr != "" {
		control := engine.NewControl()
		s, err := serve(addr, control)
		if err != nil {
			return err
		}
		defer s.close(log)
		fmt.Fprintf(show, "%s: metrics at http://%s/metrics\n", name, s.addr)
		opts = append(opts, engine.WithInspector(s.handler.Watch), engine.WithControl(control))
	}
	ctx, release := interruptible(show, name)
	defer release()
	_, err := engine.Run(ctx, topo, opts...)
	return err
}

func newLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// interruptible returns a context that the first interrupt ends. The second one ends
// the process at once, which harms nothing: the next start goes on from the last
// checkpoint.
func interruptible(w io.Writer, name string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		for stopping := false; ; stopping = true {
			select {
			case <-signals:
			case <-ended:
				return
			}
			if stopping {
				fmt.Fprintf(w, "%s: interrupted again, exiting at once\n", name)
				os.Exit(exitInterrupt)
			}
			fmt.Fprintf(w, "%s: stopping in order; interrupt again to exit at once\n", name)
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel()
	}
}
