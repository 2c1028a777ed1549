// Package bolttest checks that a bolt which writes to the outside shows each committed
// tuple once, and no other, whatever fails when. The author of a sink runs it from a
// test:
//
//	func TestSink(t *testing.T) {
//		bolttest.Run(t, func(t testing.TB) bolttest.Sink { return bolttest.Sink{New: …} })
//	}
//
// It makes the calls that the engine makes, in every order that the engine may make
// them, and lets the process die between any two of them.
package bolttest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Sink is a bolt with the target that it writes to: a txn.StatefulBolt, or a
// txn.KeyedBolt that is a txn.Publisher.
type Sink struct {
	// New returns a new instance that writes to the target. Instances that were there
	// before are dead, unless Fenced is set.
	New func() txn.Bolt
	// Tuple returns the tuple of an index. A few are asked for.
	Tuple func(i int) *tuple.Tuple
	// Shown returns what the target shows at the moment, in any order.
	Shown func(t testing.TB) []string
	// Want returns what the target must show when just the tuples below n are
	// committed, in any order. At a moment it may show a part of it, or what it had to
	// show at an earlier checkpoint.
	Want func(n int) []string
	// Key are the fields that a txn.KeyedBolt is grouped by, unless it is a txn.Keyer.
	Key []string
	// Fenced says that a stopped process of an older generation may wake up and go on
	// with its calls: they must not show, and may fail.
	Fenced bool
}

// Run checks a sink. open returns one with an empty target of its own each time.
func Run(t *testing.T, open func(t testing.TB) Sink) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

var checks = []struct {
	name string
	run  func(t testing.TB, open func(testing.TB) Sink)
}{
	{"Undisturbed", undisturbed},
	{"Crash", crash},
	{"SecondCrash", secondCrash},
	{"Rollback", rollback},
	{"Repetition", repetition},
	{"Zombie", zombie},
}

// undisturbed: without a failure, everything shows, and nothing before its time.
func undisturbed(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		d := start(t, open(t), s)
		d.play(len(d.script))
		d.finish()
	}
}

// crash: after any call the process dies; a new one finishes the work.
func crash(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		for at := range s.script(1) {
			for _, acked := range []bool{false, true} {
				d := start(t, open(t), s)
				d.play(at)
				d.crash()
				if acked {
					d.acknowledge()
				}
				d.play(len(d.script))
				d.finish()
			}
		}
	}
}

// secondCrash: the new process dies soon after it has begun, too.
func secondCrash(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		for at := range s.script(1) {
			for _, then := range []int{0, 3} {
				d := start(t, open(t), s)
				d.play(at)
				d.crash()
				d.play(min(then, len(d.script)))
				d.crash()
				d.play(len(d.script))
				d.finish()
			}
		}
	}
}

// rollback: after any call the region goes back to its checkpoint; the instance lives
// on. Later it dies, too.
func rollback(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		for at := range s.script(1) {
			for _, then := range []int{-1, 4} {
				d := start(t, open(t), s)
				d.play(at)
				d.rollback()
				if then >= 0 {
					d.play(min(then, len(d.script)))
					d.crash()
				}
				d.play(len(d.script))
				d.finish()
			}
		}
	}
}

// repetition: acknowledgements and restarts may come again and change nothing.
func repetition(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		d := start(t, open(t), s)
		for i, o := range d.script {
			d.play(i + 1)
			if o.kind == ack {
				d.acknowledge()
				d.acknowledge()
			}
		}
		d.finish()
		for range 3 {
			d.crash()
			d.acknowledge()
			d.acknowledge()
			d.finish()
		}
	}
}

// zombie: the process is stopped, is replaced, and wakes up.
func zombie(t testing.TB, open func(testing.TB) Sink) {
	for _, s := range schedules {
		for at := range s.script(1) {
			sink := open(t)
			if !sink.Fenced {
				return
			}
			d := start(t, sink, s)
			d.play(at)
			old := d.stop()
			d.crash()
			for i := range d.script {
				old.stumble()
				d.play(i + 1)
			}
			for old.at < len(old.script) {
				old.stumble()
			}
			d.finish()
		}
	}
}

// A schedule orders the calls about some batches.
type schedule struct {
	name   string
	script func(from txn.BatchID) []op
}

// sizes are how many tuples the batches have, from batch 1.
var sizes = []int{2, 0, 3, 1}

const lastBatch = txn.BatchID(4)

type op struct {
	kind  opKind
	batch txn.BatchID
}

type opKind string

const (
	execute opKind = "Execute"
	ended   opKind = "InputEnded"
	finish  opKind = "FinishBatch"
	commit  opKind = "Commit"
	head    opKind = "the head moved"
	ack     opKind = "AckCommit"
)

func (o op) String() string { return fmt.Sprintf("%s of batch %d", o.kind, o.batch) }

// take is how a batch gets its tuples and ends.
func take(n txn.BatchID) []op {
	ops := slices.Repeat([]op{{execute, n}}, sizes[n-1])
	if n == lastBatch {
		ops = append(ops, op{ended, n})
	}
	return append(ops, op{finish, n})
}

var schedules = []schedule{
	{"one batch after the other", func(from txn.BatchID) (ops []op) {
		for n := from; n <= lastBatch; n++ {
			ops = append(append(ops, take(n)...), op{commit, n}, op{head, n}, op{ack, n})
		}
		return ops
	}},
	{"batches overlap", func(from txn.BatchID) (ops []op) {
		for n := from; n <= lastBatch+3; n++ {
			for _, o := range []op{{ack, n - 3}, {execute, n}, {head, n - 2}, {commit, n - 1}} {
				switch {
				case o.batch < from || o.batch > lastBatch || o.batch > n:
				case o.kind == execute:
					ops = append(ops, take(n)...)
				default:
					ops = append(ops, o)
				}
			}
		}
		return ops
	}},
	{"every other checkpoint is given up", func(from txn.BatchID) (ops []op) {
		for n := from; n <= lastBatch; n++ {
			ops = append(append(ops, take(n)...), op{commit, n})
			if n%2 == 0 || n == lastBatch {
				ops = append(ops, op{head, n}, op{ack, n})
			}
		}
		return ops
	}},
}
