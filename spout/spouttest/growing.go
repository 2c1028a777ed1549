package spouttest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/txn"
)

// Growing is an input that grows while it is read.
type Growing struct {
	// Open returns a new instance over the input.
	Open func() txn.Spout
	// Grow makes the input larger, also by a new partition now and then, and returns
	// how many tuples more there are. No two tuples of the input are equal. It is
	// called with step 0, 1, 2 and so on.
	Grow func(t testing.TB, step int) (tuples int)
}

// RunGrowing checks a spout that waits for more input: it never finishes, finds what
// comes while it is idle and while it reads, and emits each tuple once, wherever it
// is interrupted. open returns an empty input each time. A spout that waits for time
// to pass should have a clock that does so at every call: each idle call is followed
// by the next one at once.
func RunGrowing(t *testing.T, open func(t testing.TB) Growing) {
	for _, c := range growingChecks {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

var growingChecks = []struct {
	name string
	run  func(testing.TB, func(testing.TB) Growing)
}{
	{"Uninterrupted", growUninterrupted},
	{"Interrupted", growInterrupted},
	{"Down", growWhileDown},
}

const (
	growSteps = 6
	crashMost = 40 // calls of NextTuple before a crash
)

// reader reads a growing input as a task does: what it emits counts when its batch is
// finished.
type reader struct {
	*task
	input     Growing
	positions map[txn.PartitionID][]byte
	owned     map[txn.PartitionID]bool
	committed []string
}

func newReader(t testing.TB, g Growing) *reader {
	t.Helper()
	r := &reader{input: g, positions: map[txn.PartitionID][]byte{}}
	r.restart(t)
	return r
}

// restart begins again from what is committed, with a new instance.
func (r *reader) restart(t testing.TB) {
	t.Helper()
	r.task = suite{func(testing.TB) txn.Spout { return r.input.Open() }}.start(t)
	r.owned = map[txn.PartitionID]bool{}
	for _, p := range slices.Sorted(maps.Keys(r.positions)) {
		r.owned[p] = true
		r.seek(p, r.positions[p])
	}
	r.ask()
}

// ask takes over new partitions.
func (r *reader) ask() {
	r.t.Helper()
	for _, p := range r.list() {
		if !r.owned[p] {
			r.owned[p] = true
			r.seek(p, nil)
		}
	}
}

func (r *reader) list() []txn.PartitionID {
	r.t.Helper()
	ids, err := r.spout.Partitions(context.Background())
	if err != nil {
		r.t.Fatalf("partitions: %v", err)
	}
	return ids
}

// call calls NextTuple once and reports whether it emitted.
func (r *reader) call() bool {
	r.t.Helper()
	status, err := r.spout.NextTuple(r.out)
	switch {
	case err != nil:
		r.t.Fatalf("next tuple: %v", err)
	case status == txn.Finished:
		r.t.Fatalf("the spout has finished, although more may come")
	}
	return status == txn.Emitted
}

func (r *reader) commit() {
	r.t.Helper()
	for _, m := range r.finishBatch() {
		if r.positions[m.Partition] = slices.Clone(m.Data); m.Data == nil {
			delete(r.positions, m.Partition)
			delete(r.owned, m.Partition)
		}
	}
	r.committed = append(r.committed, r.got...)
	r.got = nil
}

// drain reads until nothing comes any more, and fails unless so many tuples were
// committed then, all different.
func (r *reader) drain(tuples int) {
	r.t.Helper()
	for idle := 0; idle < idleMax; {
		if r.call() {
			idle = 0
			if n := len(r.committed) + len(r.got); n > tuples {
				r.t.Fatalf("%d tuples came, there are only %d; the last is %s", n, tuples, r.got[len(r.got)-1])
			}
			continue
		}
		if idle++; idle%(idleMax/4) == 0 {
			r.ask()
		}
	}
	r.commit()
	if len(r.committed) != tuples {
		r.t.Fatalf("%d tuples were committed, there are %d", len(r.committed), tuples)
	}
	seen := map[string]bool{}
	for _, s := range r.committed {
		if seen[s] {
			r.t.Fatalf("tuple %s was committed twice", s)
		}
		seen[s] = true
	}
}

func growUninterrupted(t testing.TB, open func(testing.TB) Growing) {
	g := open(t)
	r := newReader(t, g)
	total := 0
	for step := range growSteps {
		total += g.Grow(t, step)
		r.ask()
		r.call() // the next step comes while there is something to read, too
		if step%2 == 0 {
			r.drain(total)
		}
	}
	r.drain(total)
	if total == 0 {
		t.Fatalf("the input has not grown: there is nothing to check")
	}
}

// growInterrupted: the process dies after some calls, before the batch is finished.
func growInterrupted(t testing.TB, open func(testing.TB) Growing) {
	for calls := 0; calls <= crashMost; calls += 1 + calls/4 {
		g := open(t)
		r := newReader(t, g)
		total := 0
		for step := range growSteps {
			total += g.Grow(t, step)
			r.ask()
			for i := range calls {
				r.call()
				if i == calls/2 {
					r.commit()
				}
			}
			r.restart(t)
		}
		r.drain(total)
		r.restart(t)
		r.drain(total)
	}
}

// growWhileDown: the input grows while nobody reads it.
func growWhileDown(t testing.TB, open func(testing.TB) Growing) {
	g := open(t)
	r := newReader(t, g)
	total := 0
	for step := range growSteps {
		r.drain(total)
		total += g.Grow(t, step)
		r.restart(t)
	}
	r.drain(total)
}
