package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/engine/config"
)

// mode is a guarantee that a topology is run with, or none of the engine at all.
type mode struct {
	name       string
	intervalMS int // between barriers; 0 if there are none
	combine    bool
	workers    int // that the tasks run on; 0 and 1: this process, without links
}

// limitMode is the work written by hand.
const limitMode = "limit"

// allModes are the modes of a workload that has a limit.
const allModes = "limit,at-most-once,at-least-once@1000,exactly-once@1000,exactly-once@100"

// combining is appended to the name of a mode in which senders combine tuples.
const combining = "+combine"

func (m mode) String() string {
	name := m.name
	if m.combine {
		name += combining
	}
	if m.intervalMS > 0 {
		name += "@" + strconv.Itoa(m.intervalMS)
	}
	if m.workers > 1 {
		name += fmt.Sprintf(" on %d workers", m.workers)
	}
	return name
}

// onWorkers adds the modes of the engine once more, on a number of workers.
func onWorkers(modes []mode, workers int) []mode {
	all := modes
	for _, m := range modes {
		if workers > 1 && m.name != limitMode && !m.combine {
			m.workers = workers
			all = append(all, m)
		}
	}
	return all
}

// parseModes reads a list of modes. all is what an empty text stands for.
func parseModes(text, all string) ([]mode, error) {
	if text == "" {
		text = all
	}
	limited, combines := strings.Contains(all, limitMode), strings.Contains(all, combining)
	return list(text, func(text string) (mode, error) {
		name, interval, timed := strings.Cut(text, "@")
		m := mode{}
		m.name, m.combine = strings.CutSuffix(name, combining)
		switch {
		case m.combine && (!combines || m.name == limitMode):
		case m.name == limitMode && !timed && limited, m.name == "at-most-once" && !timed:
			return m, nil
		case m.name == "at-least-once", m.name == "exactly-once":
			var err error
			if m.intervalMS, err = strconv.Atoi(interval); err == nil && m.intervalMS > 0 {
				return m, nil
			}
		}
		return m, fmt.Errorf("mode %q: the modes are such as %s, with any interval", text, all)
	})
}

// byMode returns a variant for each mode.
func byMode(modes []mode, measure func(ctx context.Context, m mode) (sample, error)) []variant {
	var all []variant
	for _, m := range modes {
		all = append(all, variant{m.String(), func(ctx context.Context) (sample, error) { return measure(ctx, m) }})
	}
	return all
}

// config returns the configuration that a topology has in the mode.
func (m mode) config() (config.Values, error) {
	values := map[string]any{
		"transaction.topology":          m.intervalMS > 0,
		"transaction.exactly.once.mode": m.name == "exactly-once",
	}
	if m.intervalMS > 0 {
		values["transaction.schedule.batch.delay.ms"] = m.intervalMS
	}
	return config.Of(values)
}
