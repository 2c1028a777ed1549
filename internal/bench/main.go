// Bench measures the engine against the same work written by hand, and its modes
// against each other:
//
//	go run ./internal/bench -workload fastwordcount -duration 3s -rounds 5
//
//	fastwordcount, wordcount  words through a split, to counters by key
//	chain                     tuples through a bolt that passes them on
//	latency                   how old words are when they arrive, at fixed rates
//	state                     updates of keyed state, and what a barrier holds up
//	restore                   from the start of a run to its first new output
//	checkpoint                what it costs to keep a large state in a folder, or on S3
//	idle                      what a topology costs that has nothing to do
//	link                      what the connection between two workers costs
//
// The variants of a comparison take turns within one process, a window each round,
// because machines are noisy: what counts are the ratios, of which each is the median
// over the rounds of the ratio within a round.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// options are what the flags say.
type options struct {
	duration time.Duration
	warmUp   time.Duration
	rounds   int
	json     bool
	profile  string

	// Only some workloads heed these. Left empty, they have defaults of their own.
	modes, shapes, loads, keys, dist, stateMB string

	interval                     time.Duration
	cacheMB, changes, entryBytes int
	workers                      int
}

// plan is what is to be measured of one workload.
type plan struct {
	workload    string
	comparisons []comparison
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, plans, err := parse(args)
	if err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return fmt.Errorf("create the profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, p := range plans {
		if !o.json {
			fmt.Fprintf(out, "%s, median of %d × %v, GOMAXPROCS %d, %s %s/%s\n", p.workload, o.rounds, o.duration,
				runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		}
		for _, c := range p.comparisons {
			samples, err := c.measure(ctx, o.rounds)
			if err == nil {
				err = c.report(out, p.workload, samples, o.json)
			}
			if err != nil {
				return fmt.Errorf("workload %s, %s: %w", p.workload, c.label, err)
			}
		}
	}
	return nil
}

func parse(args []string) (options, []plan, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var o options
	names := flags.String("workload", "fastwordcount", "what to measure, comma-separated: "+strings.Join(workloadNames(), ", ")+", or all")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "length of a window")
	flags.DurationVar(&o.warmUp, "warmup", 300*time.Millisecond, "how long a run goes on before its window opens")
	flags.IntVar(&o.rounds, "rounds", 5, "windows for each variant")
	flags.BoolVar(&o.json, "json", false, "write JSON lines instead of tables")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	flags.StringVar(&o.modes, "modes", "", "variants to compare, comma-separated; @ is the barrier interval in ms; empty: all that the workload has")
	flags.StringVar(&o.shapes, "shapes", "", "spout/split/count tasks, comma-separated; empty: 1/1/1,1/2/2, for latency 1/2/2")
	flags.StringVar(&o.loads, "loads", "25,50,80", "rates in percent of the highest, comma-separated")
	flags.StringVar(&o.keys, "keys", "1000000,10000000", "numbers of keys, comma-separated")
	flags.StringVar(&o.dist, "dist", "uniform,zipf", "how keys are drawn, comma-separated: uniform, or zipf with exponent 1.1")
	flags.DurationVar(&o.interval, "interval", time.Second, "between two barriers of a state")
	flags.IntVar(&o.cacheMB, "cache-mb", 0, "MB of a state that are kept in memory; 0: all of up to a million keys, 64 of more")
	flags.StringVar(&o.stateMB, "state-mb", "", "MB of state that there is, comma-separated; empty: 1024, for checkpoint 100,1024")
	flags.IntVar(&o.workers, "workers", 1, "run the tasks on so many workers as well, which exchange tuples over TCP")
	flags.IntVar(&o.changes, "changes", 50000, "keys that are changed each second")
	flags.IntVar(&o.entryBytes, "entry-bytes", 100, "bytes of a key and its value")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if o.duration <= 0 || o.rounds <= 0 || o.interval <= 0 || o.changes <= 0 {
		errs = append(errs, errors.New("-duration, -rounds, -interval and -changes must be more than 0"))
	}
	if o.warmUp < 0 || o.cacheMB < 0 {
		errs = append(errs, errors.New("-warmup and -cache-mb must not be less than 0"))
	}
	chosen, err := chooseWorkloads(*names)
	if err != nil {
		return o, nil, errors.Join(append(errs, err)...)
	}
	errs = append(errs, unheeded(flags, chosen))
	var plans []plan
	for _, w := range chosen {
		comparisons, err := w.comparisons(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("workload %s: %w", w.name(), err))
		}
		plans = append(plans, plan{w.name(), comparisons})
	}
	return o, plans, errors.Join(errs...)
}

// unheeded returns an error that names the flags that were set and mean nothing to
// the chosen workloads.
func unheeded(flags *flag.FlagSet, chosen []workload) error {
	special := map[string]bool{} // flags that some do not heed, and whether one of these does
	for _, w := range workloads {
		for _, f := range w.heeds() {
			special[f] = special[f] || slices.Contains(chosen, w)
		}
	}
	var errs []error
	flags.Visit(func(f *flag.Flag) {
		if heeded, ok := special[f.Name]; ok && !heeded {
			errs = append(errs, fmt.Errorf("-%s means nothing to the chosen workload", f.Name))
		}
	})
	return errors.Join(errs...)
}

// list takes a comma-separated list apart.
func list[T any](text string, each func(string) (T, error)) ([]T, error) {
	var all []T
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		v, err := each(part)
		all, errs = append(all, v), append(errs, err)
	}
	return all, errors.Join(errs...)
}
