// Package poison finds the tuples on which user code always fails. It is pure: told
// of failures, whatever generation they come from, it says which tuples are not to be
// executed any more.
package poison

import (
	"errors"
	"maps"
)

// Key identifies a tuple on which user code fails, whatever generation it comes in:
// what read it, where it came from, and the hash of its values.
type Key struct {
	Component    string
	Source       string
	SourceStream string
	Hash         uint64
}

// TupleError is a failure of user code on one tuple, or on one of a whole frame.
type TupleError struct {
	Component string
	Key       Key // the tuple; zero if it was one of a frame
	Err       error
}

func (e *TupleError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *TupleError) Unwrap() error { return e.Err }

// Suspects is what the topology master knows about tuples that user code fails on. It
// is not changed while tasks use it.
type Suspects struct {
	// OneByOne are the components that failed on a whole frame: they get their tuples
	// one at a time, to find the one.
	OneByOne map[string]bool
	// Failed are the tuples that go to the failed stream.
	Failed map[Key]Failure
}

// Failure says why a tuple goes to the failed stream.
type Failure struct {
	Reason   string
	Attempts int
}

// Careful reports whether a component must look at its tuples one by one.
func (s *Suspects) Careful(component string) bool {
	if s.OneByOne[component] {
		return true
	}
	for k := range s.Failed {
		if k.Component == component {
			return true
		}
	}
	return false
}

// Counter counts, across rollbacks, the failures of user code on single tuples, and
// says which tuples go to the failed stream from now on. It is not safe for
// concurrent use.
type Counter struct {
	attempts map[Key]int
	now      *Suspects // never changed, only replaced: tasks read it
}

// NewCounter returns a Counter that has seen no failure.
func NewCounter() *Counter {
	return &Counter{attempts: map[Key]int{}, now: &Suspects{}}
}

// Suspects returns what is known so far; never nil, and never changed later.
func (c *Counter) Suspects() *Suspects { return c.now }

// Failed takes in why a task failed, which counts if it is a [TupleError]; most is
// after how many failures of a component on a tuple it is diverted. It reports whether
// Suspects has changed, so that the failure will not happen in the same way again.
func (c *Counter) Failed(err error, most func(component string) int) (learned bool) {
	var e *TupleError
	if !errors.As(err, &e) || e.Key == (Key{}) && c.now.OneByOne[e.Component] {
		return false
	}
	next := &Suspects{OneByOne: maps.Clone(c.now.OneByOne), Failed: maps.Clone(c.now.Failed)}
	if e.Key == (Key{}) {
		if next.OneByOne == nil {
			next.OneByOne = map[string]bool{}
		}
		next.OneByOne[e.Component] = true
		c.now = next
		return true
	}
	c.attempts[e.Key]++
	if n := c.attempts[e.Key]; n >= most(e.Component) {
		if next.Failed == nil {
			next.Failed = map[Key]Failure{}
		}
		next.Failed[e.Key] = Failure{Reason: e.Err.Error(), Attempts: n}
		c.now = next
		return true
	}
	return false
}
