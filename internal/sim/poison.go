package sim

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/isobar-io/isobar/engine/poison"
)

// defect says how often a component's code fails on a tuple.
type defect struct {
	always bool
	left   int // how many more times, if not always
}

// failedStream is what the stream of diverted tuples is called.
const failedStream = "__failed"

// poisonKey identifies a tuple that comes over an edge, for the one who fails on it.
func (e *edge) poisonKey(it item) poison.Key {
	k := poison.Key{Component: e.to.name, Source: e.from.name, Hash: uint64(uint32(it.key))<<32 | uint64(uint32(it.n))}
	if e.failed {
		k.SourceStream = failedStream
	}
	return k
}

// diverted is what the failed stream carries in place of a tuple.
func diverted(it item) item { return item{it.key, -it.n} }

// drawFailedStreams gives a few components code that fails, and a sink that reads
// their failed streams.
func (s *shape) drawFailedStreams(rng *rand.Rand, r *region, sinks []*component) {
	if rng.IntN(3) > 0 {
		return
	}
	var able []*component
	for _, c := range r.components {
		switch c.kind {
		case relay, tally, buffer, counter, twoPhase, staged:
			able = append(able, c)
		case source, digest, latest, ordered: // they have no tuples, or such as differ from run to run
		}
	}
	var own *component
	for range 1 + rng.IntN(2) {
		c := able[rng.IntN(len(able))]
		if c.poison != nil {
			continue
		}
		c.poison = map[poison.Key]*defect{}
		c.frames = (c.kind == relay || c.kind == counter) && rng.IntN(2) == 0
		to := sinks[rng.IntN(len(sinks))]
		if c.kind.sink() || rng.IntN(2) == 0 {
			if own == nil {
				own = s.add(rng, r, drawSink(rng))
			}
			to = own
		}
		s.connect(c, to).failed = true
	}
}

// drawPoison draws, for each component whose code fails, on which tuples of those that
// did not come before, and how often: less than attempts, or always.
func (s *shape) drawPoison(rng *rand.Rand, attempts int, before map[poison.Key]bool) {
	for _, c := range s.components {
		if c.poison == nil {
			continue
		}
		var fresh []poison.Key
		c.arrivals(func(k poison.Key) {
			if !before[k] {
				fresh = append(fresh, k)
			}
		})
		for range min(len(fresh), 1+rng.IntN(3)) {
			k := fresh[rng.IntN(len(fresh))]
			switch {
			case c.poison[k] != nil:
			case rng.IntN(2) == 0:
				c.poison[k] = &defect{always: true}
			case attempts > 1:
				c.poison[k] = &defect{left: 1 + rng.IntN(attempts-1)}
			}
		}
	}
}

// arrivals calls visit for every tuple that comes to the component when all input
// that is there has been read.
func (c *component) arrivals(visit func(poison.Key)) {
	x := c.region.expect(func(p *partition) int { return p.open })
	for _, e := range c.inputs {
		for _, it := range x.sent(e) {
			visit(e.poisonKey(it))
		}
	}
}

// append adds input behind what there was, for the next session. Where tuples are
// never counted twice, code may fail on some of the new ones.
func (s *shape) append(rng *rand.Rand, attempts int) {
	before := map[poison.Key]bool{}
	for _, c := range s.components {
		if c.poison != nil {
			c.arrivals(func(k poison.Key) { before[k] = true })
		}
	}
	for _, c := range s.components {
		for _, p := range c.partitions {
			for range rng.IntN(5) {
				p.grow(rng)
			}
			p.open = len(p.items)
		}
	}
	if s.exactlyOnce {
		s.drawPoison(rng, attempts, before)
	}
}

// errUser is what user code returns when it fails.
var errUser = errors.New("cannot process this")

// execute lets user code process tuples that came over an edge, one by one if the
// topology master says so or the component knows nothing else.
func (t *task) execute(e *edge, items []item) error {
	for _, it := range items {
		if !t.careful && len(t.comp.poison) == 0 {
			t.logic.execute(it)
			continue
		}
		key := e.poisonKey(it)
		if _, failed := t.suspects.Failed[key]; failed && t.careful {
			t.w.check.diverts(t.comp, key)
			t.emitTo(true, diverted(it))
			continue
		}
		if d := t.comp.poison[key]; d != nil && d.fails() {
			t.w.check.failsOn(key, t.told[key])
			if t.comp.frames && !t.careful {
				t.w.count("frame failed")
				key = poison.Key{}
			}
			return &poison.TupleError{Component: t.comp.name, Key: key, Err: errUser}
		}
		t.logic.execute(it)
	}
	return nil
}

func (d *defect) fails() bool {
	if d.always {
		return true
	}
	d.left--
	return d.left >= 0
}

// interrupt is what happens to user code that has a tuple when its generation ends:
// it returns the error of its context. That is nobody's fault and is not reported.
func (t *task) interrupt() {
	if t.state != running || !t.working {
		return
	}
	i := t.readable()
	if i < 0 || len(t.inputs[i].queue[0].items) == 0 {
		return
	}
	t.w.count("interrupted")
	if !t.w.is(Interruptions) {
		key := t.inputs[i].edge.poisonKey(t.inputs[i].queue[0].items[0])
		t.sayFailed(&poison.TupleError{Component: t.comp.name, Key: key, Err: context.Canceled})
	}
}
