package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// state measures how fast the numbers of keys are increased: in a Go map, by reading
// from and writing to a Pebble, and in the state of a keyed bolt, with a barrier now
// and then. The barriers of "pause" come whenever a hundredth of the keys was updated.
// What remains of a barrier's work when a window closes is waited for, but not what
// Pebble does in the background.
type state struct{}

func (state) name() string    { return "state" }
func (state) heeds() []string { return []string{"modes", "keys", "dist", "interval", "cache-mb"} }

var stateColumns = []column{
	{"updates_per_s", "M updates/s", 1e6, 2},
	{"ns_per_update", "ns", 1, 0},
	{"barriers", "barriers", 1, 0},
	{"pause_p50_ms", "pause p50 ms", 1, 3},
	{"pause_p99_ms", "p99 ms", 1, 3},
	{"pause_max_ms", "max ms", 1, 3},
}

func (state) comparisons(o options) ([]comparison, error) {
	keys, keysErr := list(o.keys, parseKeys)
	dists, distsErr := list(o.dist, parseDist)
	modes, modesErr := parseNames(o.modes, "map", "pebble", "value", "aggregate", "pause")
	var all []comparison
	for _, n := range keys {
		for _, dist := range dists {
			b := &stateBench{o: o, keys: n, dist: dist}
			c := comparison{
				label: fmt.Sprintf("%d keys %s", n, dist), columns: stateColumns,
				bases: []string{"map", "pebble"}, open: b.open, close: b.close,
			}
			for _, name := range modes {
				c.variants = append(c.variants, variant{name, func(ctx context.Context) (sample, error) { return b.measure(ctx, name) }})
			}
			all = append(all, c)
		}
	}
	return all, errors.Join(keysErr, distsErr, modesErr)
}

// parseNames reads a list of some names. An empty text stands for all.
func parseNames(text string, all ...string) ([]string, error) {
	if text == "" {
		return all, nil
	}
	return list(text, func(name string) (string, error) {
		if !slices.Contains(all, name) {
			return "", fmt.Errorf("mode %q: the modes are %s", name, strings.Join(all, ","))
		}
		return name, nil
	})
}

// stateBench is a comparison of keepers of the same keys.
type stateBench struct {
	o       options
	keys    int
	dist    string
	drawn   []hashedWord
	keepers map[string]*contender
}

// contender is a keeper that has all keys, and how far it has come.
type contender struct {
	keeper
	next    int // in the drawn keys
	updates int64
}

func (b *stateBench) open(context.Context) error {
	b.drawn = drawKeys(b.keys, b.dist)
	b.keepers = map[string]*contender{}
	return nil
}

func (b *stateBench) close() error {
	var errs []error
	for _, k := range b.keepers {
		errs = append(errs, k.close())
	}
	b.drawn, b.keepers = nil, nil
	return errors.Join(errs...)
}

// cacheBytes is how much of a state is kept in memory.
func (b *stateBench) cacheBytes() int64 {
	switch {
	case b.o.cacheMB > 0:
		return int64(b.o.cacheMB) << 20
	case b.keys <= 1e6:
		return 1 << 30
	}
	return 64 << 20
}

// contender returns the keeper of a name, which is made and filled when it is first
// asked for.
func (b *stateBench) contender(name string) (*contender, error) {
	if c := b.keepers[name]; c != nil {
		return c, nil
	}
	k, err := newKeeper(name, b.cacheBytes())
	if err != nil {
		return nil, err
	}
	c := &contender{keeper: k}
	b.keepers[name] = c
	frame := make([]hashedWord, 0, frameKeys)
	var m keyMaker
	for i := range b.keys {
		if frame = append(frame, m.make(i)); len(frame) < frameKeys && i+1 < b.keys {
			continue
		}
		if err := k.update(frame); err != nil {
			return nil, err
		}
		frame = frame[:0]
		if _, err := k.between(); err != nil {
			return nil, err
		}
		if (i+1)%fillKeys == 0 || i+1 == b.keys {
			if _, err := k.barrier(); err != nil {
				return nil, err
			}
		}
	}
	return c, k.settle()
}

// fillKeys is how many keys there are between two barriers while a keeper is filled:
// a multiple of frameKeys.
const fillKeys = 1 << 20

// measure updates keys for one window.
func (b *stateBench) measure(ctx context.Context, name string) (sample, error) {
	c, err := b.contender(name)
	if err != nil {
		return nil, err
	}
	due := func(since time.Duration, _ int) bool { return since >= b.o.interval }
	if name == "pause" {
		due = func(_ time.Duration, updates int) bool { return updates >= b.keys/100 }
	}
	var pauses []time.Duration
	var pause time.Duration // the longest since the last barrier
	began := time.Now()
	last, updates, total := began, 0, 0
	for now := began; now.Sub(began) < b.o.duration; now = time.Now() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		frame := b.drawn[c.next : c.next+frameKeys]
		c.next = (c.next + frameKeys) % len(b.drawn)
		if err := c.update(frame); err != nil {
			return nil, err
		}
		held, err := c.between()
		if err != nil {
			return nil, err
		}
		pause = max(pause, held)
		total += len(frame)
		if updates += len(frame); !due(time.Since(last), updates) {
			continue
		}
		if held, err = c.barrier(); err != nil {
			return nil, err
		}
		pauses = append(pauses, max(pause, held))
		last, updates, pause = time.Now(), 0, 0
	}
	seconds := time.Since(began).Seconds()
	c.updates += int64(total)
	if err := c.settle(); err != nil {
		return nil, err
	}
	x := sample{float64(total) / seconds, 1e9 * seconds / float64(total)}
	if _, batched := c.keeper.(*stateKeeper); !batched {
		return append(x, math.NaN(), math.NaN(), math.NaN(), math.NaN()), nil
	}
	slices.Sort(pauses)
	return append(x, float64(len(pauses)), quantileMS(pauses, 0.5), quantileMS(pauses, 0.99), quantileMS(pauses, 1)), nil
}

// quantileMS returns the duration that a share of some sorted ones do not exceed, in
// milliseconds; NaN if there are none.
func quantileMS(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return milliseconds(sorted[max(i, 0)])
}
