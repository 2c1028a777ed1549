// Bench measures the word count topology against the same work written by hand, in
// every mode of the engine:
//
//	go run ./internal/bench -workload fastwordcount -duration 3s -rounds 5
//
// A tuple is a word that arrived at its counter. The modes take turns within one
// process, a window each round, because machines are noisy: what counts are the
// ratios, of which each is the median over the rounds of the ratio within a round.
package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	"text/tabwriter"
	"time"
)

type options struct {
	workload workload
	shapes   []shape
	modes    []mode
	duration time.Duration
	rounds   int
	json     bool
	profile  string
}

// shape is how many tasks each component has.
type shape struct{ spouts, splits, counts int }

func (s shape) String() string { return fmt.Sprintf("%d/%d/%d", s.spouts, s.splits, s.counts) }

// row is what is reported about one mode.
type row struct {
	Workload    string  `json:"workload"`
	Shape       string  `json:"shape"`
	Mode        string  `json:"mode"`
	IntervalMS  int     `json:"interval_ms"`
	PerSecond   float64 `json:"tuples_per_s"`
	Nanoseconds float64 `json:"ns_per_tuple"`
	Bytes       float64 `json:"bytes_per_tuple"`
	// 0 if the mode to compare with was not measured.
	ToLimit      float64 `json:"ratio_to_limit"`
	ToAtMostOnce float64 `json:"ratio_to_at_most_once"`
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
	o, err := parse(args)
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
	if !o.json {
		fmt.Fprintf(out, "%s, median of %d × %v, GOMAXPROCS %d, %s %s/%s\n", o.workload.name, o.rounds, o.duration,
			runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	}
	for _, s := range o.shapes {
		samples := make([][]sample, len(o.modes))
		for range o.rounds {
			for i, m := range o.modes {
				x, err := measure(ctx, m, o.workload, s, o.duration)
				if err != nil {
					return fmt.Errorf("measure %s at %s: %w", m, s, err)
				}
				samples[i] = append(samples[i], x)
			}
		}
		if err := report(out, o, s, samples); err != nil {
			return err
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	name := flags.String("workload", "fastwordcount", "fastwordcount (five sentences) or wordcount (a book)")
	shapes := flags.String("shapes", "1/1/1,1/2/2", "spout/split/count tasks, comma-separated")
	modes := flags.String("modes", allModes, "what to measure, comma-separated; @ is the barrier interval in ms")
	var o options
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "length of a window")
	flags.IntVar(&o.rounds, "rounds", 5, "windows for each mode")
	flags.BoolVar(&o.json, "json", false, "write JSON lines instead of a table")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if o.duration <= 0 || o.rounds <= 0 {
		errs = append(errs, errors.New("-duration and -rounds must be more than 0"))
	}
	var err error
	o.workload, err = newWorkload(*name)
	errs = append(errs, err)
	for text := range strings.SplitSeq(*shapes, ",") {
		s, err := parseShape(text)
		o.shapes, errs = append(o.shapes, s), append(errs, err)
	}
	for text := range strings.SplitSeq(*modes, ",") {
		m, err := parseMode(text)
		o.modes, errs = append(o.modes, m), append(errs, err)
	}
	return o, errors.Join(errs...)
}

func parseShape(text string) (shape, error) {
	var s shape
	n, err := fmt.Sscanf(text, "%d/%d/%d", &s.spouts, &s.splits, &s.counts)
	if n != 3 || err != nil || s.String() != text || min(s.spouts, s.splits, s.counts) < 1 {
		return s, fmt.Errorf("shape %q: it is three counts of tasks such as 1/2/2", text)
	}
	return s, nil
}

func report(out io.Writer, o options, s shape, samples [][]sample) error {
	limit, atMostOnce := find(o.modes, samples, "limit"), find(o.modes, samples, "at-most-once")
	rows := make([]row, len(o.modes))
	for i, m := range o.modes {
		perSecond := median(samples[i], func(_ int, x sample) float64 { return x.perSecond })
		rows[i] = row{
			Workload: o.workload.name, Shape: s.String(), Mode: m.name, IntervalMS: m.intervalMS,
			PerSecond:    perSecond,
			Nanoseconds:  1e9 / perSecond,
			Bytes:        median(samples[i], func(_ int, x sample) float64 { return x.bytes }),
			ToLimit:      ratio(samples[i], limit),
			ToAtMostOnce: ratio(samples[i], atMostOnce),
		}
	}
	if o.json {
		e := json.NewEncoder(out)
		for _, r := range rows {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tM words/s\tns/word\tB/word\tto limit\tto at-most-once\t\n", s)
	for i, r := range rows {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.3f\t%s\t%s\t\n", o.modes[i], r.PerSecond/1e6, r.Nanoseconds, r.Bytes,
			orDash(r.ToLimit), orDash(r.ToAtMostOnce))
	}
	return w.Flush()
}

// find returns the samples of the mode of a name, nil if it was not measured.
func find(modes []mode, samples [][]sample, name string) []sample {
	i := slices.IndexFunc(modes, func(m mode) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return samples[i]
}

// ratio returns the median of the ratios within each round, 0 if there is no base.
func ratio(samples, base []sample) float64 {
	if base == nil {
		return 0
	}
	return median(samples, func(round int, x sample) float64 { return x.perSecond / base[round].perSecond })
}

func median(samples []sample, of func(round int, x sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, x := range samples {
		values[i] = of(i, x)
	}
	slices.SortFunc(values, cmp.Compare)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

func orDash(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}
