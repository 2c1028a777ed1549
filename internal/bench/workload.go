package main

import (
	"context"
	"errors"
	"fmt"
)

// workload is one kind of thing to measure.
type workload interface {
	name() string
	// heeds names the flags that mean something to it and not to all workloads.
	heeds() []string
	// comparisons says what is to be measured; its error names all that is wrong with
	// the options.
	comparisons(o options) ([]comparison, error)
}

var workloads = []workload{
	wordCount{"fastwordcount"}, wordCount{"wordcount"}, chain{}, latency{}, state{}, restore{}, checkpoints{}, idle{}, linkLoad{},
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name())
	}
	return names
}

func chooseWorkloads(names string) ([]workload, error) {
	if names == "all" {
		return workloads, nil
	}
	return list(names, func(name string) (workload, error) {
		for _, w := range workloads {
			if w.name() == name {
				return w, nil
			}
		}
		return nil, fmt.Errorf("unknown workload %q: the workloads are %q, or all", name, workloadNames())
	})
}

// comparison measures variants of one thing against each other.
type comparison struct {
	label    string
	columns  []column
	compared int      // the column whose ratios are shown
	bases    []string // the variants to compare with
	variants []variant
	skipped  []skipped
	targets  map[string]string               // what ought to be, by the key of a column or a ratio
	open     func(ctx context.Context) error // called before the first window, if set
	close    func() error                    // called after the last one, or a failed open, if set
}

// skipped is a variant that cannot be measured here.
type skipped struct{ name, why string }

// variant is one of the things that are compared.
type variant struct {
	name string
	// measure runs it for one window.
	measure func(ctx context.Context) (sample, error)
}

// sample is what one window showed, by column; NaN where there is nothing to show.
type sample []float64

// measure lets the variants take turns and returns the samples of each, by round.
func (c *comparison) measure(ctx context.Context, rounds int) (samples [][]sample, err error) {
	if c.close != nil {
		defer func() { err = errors.Join(err, c.close()) }()
	}
	if c.open != nil {
		if err := c.open(ctx); err != nil {
			return nil, err
		}
	}
	samples = make([][]sample, len(c.variants))
	for range rounds {
		for i, v := range c.variants {
			x, err := v.measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", v.name, err)
			}
			samples[i] = append(samples[i], x)
		}
	}
	return samples, nil
}
