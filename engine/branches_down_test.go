package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// checkNothingLost fails unless each line of the current branch is published, and none
// more often than it was counted.
func (b *branches) checkNothingLost(op string) {
	counted := b.checkState(op)
	at := b.counted(b.current())
	for _, component := range []string{"phased", "staged"} {
		got := b.ledger.counts(component)
		for line, n := range got {
			if n > counted[line] {
				b.t.Errorf("%s: %s has published %q %d times, and it was counted %d times", op, component, line, n, counted[line])
			}
		}
		for _, line := range b.lines[:at] {
			if got[line] == 0 {
				b.t.Fatalf("%s: %s has lost %q, stays %v", op, component, line, b.stays)
			}
		}
	}
	if len(b.ledger.prepared) > 0 {
		b.t.Errorf("%s: %d transactions are left prepared", op, len(b.ledger.prepared))
	}
}

// outage has lines committed that cannot be published, and then does something.
func (b *branches) outage(o op) {
	b.ledger.set(true, false)
	b.do(op{kind: "run", more: o.more})
	line := func() []string {
		var names []string
		for _, ref := range headOf(b.t, b.store).Regions["count"].Retained {
			names = append(names, ref.String())
		}
		return names
	}
	switch o.kind {
	case "latest":
		b.crash()
		b.start("", o.tasks)
	case "from":
		b.crash()
		b.from(line()[o.n%len(line())], o)
	case "rollback":
		b.rollback(line()[o.n%len(line())], o)
	}
	b.ledger.set(false, false)
	b.settle()
}

// Case: after a rollback to an older checkpoint the sink knew of later transactions of
// the branch that was left, and skipped what came after. What could not be published
// before the rollback is discarded, and made again from the same input.
func TestRollbackWhileTheTargetIsDownLosesNothing(t *testing.T) {
	kinds := []string{"run", "latest", "from", "rollback"}
	ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{
			kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
			n:     rapid.IntRange(0, 2).Draw(t, "n"),
			more:  rapid.IntRange(0, 60).Draw(t, "more"),
			tasks: rapid.IntRange(1, 3).Draw(t, "tasks"),
		}
	}), 1, 8)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		ops := ops.Draw(rt, "ops")
		n++
		if !t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBranches(t)
				b.limit.Store(30)
				b.start("", 2)
				for _, o := range ops {
					if o.kind == "run" {
						b.do(o)
					} else {
						b.outage(o)
					}
					b.checkNothingLost(fmt.Sprintf("%+v", o))
				}
				b.end()
				b.checkNothingLost("end")
			})
		}) {
			rt.Fatalf("operations %+v", ops)
		}
	})
}
