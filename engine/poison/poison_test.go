package poison

import (
	"errors"
	"fmt"
	"testing"
)

func TestTupleIsDivertedAfterSoManyFailures(t *testing.T) {
	c := NewCounter()
	most := func(string) int { return 2 }
	bad, other := Key{"count", "split", "default", 1}, Key{"count", "split", "default", 2}
	fail := func(k Key) {
		c.Failed(fmt.Errorf("task 3: %w", &TupleError{Component: "count", Key: k, Err: errors.New("no")}), most)
	}
	fail(bad)
	fail(other)
	before := c.Suspects()
	if len(before.Failed) > 0 || before.Careful("count") {
		t.Fatalf("after one failure each: %+v", before)
	}
	fail(bad)
	now := c.Suspects()
	if f := now.Failed[bad]; len(now.Failed) != 1 || f != (Failure{"no", 2}) || !now.Careful("count") || now.Careful("split") {
		t.Fatalf("after two failures: %+v", now)
	}
	if len(before.Failed) > 0 {
		t.Error("what tasks hold was changed under them")
	}
}

func TestFrameMakesItsComponentCareful(t *testing.T) {
	c := NewCounter()
	most := func(string) int { return 1 }
	c.Failed(errors.New("the channel was lost"), most)
	if s := c.Suspects(); s.Careful("count") {
		t.Fatalf("after a failure that is no tuple's: %+v", s)
	}
	c.Failed(&TupleError{Component: "count", Err: errors.New("no")}, most)
	if s := c.Suspects(); !s.Careful("count") || len(s.Failed) > 0 {
		t.Fatalf("after a failure on a frame: %+v", s)
	}
}

func TestWhatIsLearnedIsToldOnce(t *testing.T) {
	c := NewCounter()
	failed := func(k Key) bool {
		return c.Failed(&TupleError{Component: "count", Key: k, Err: errors.New("no")}, func(string) int { return 2 })
	}
	k := Key{"count", "split", "default", 1}
	for i, want := range []bool{true, false, false, true} {
		if got := failed([]Key{{}, {}, k, k}[i]); got != want {
			t.Errorf("failure %d taught something: %t", i, got)
		}
	}
}
