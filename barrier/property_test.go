package barrier

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// Whatever the order in which the inputs bring their barriers, a batch completes
// with the last of them, and exactly the inputs that are ahead are blocked.
func TestAlignerAgreesWithNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inputs := rapid.IntRange(1, 5).Draw(t, "inputs")
		next := tuple.BatchID(rapid.IntRange(1, 3).Draw(t, "next"))
		exactly := rapid.Bool().Draw(t, "exactly once")
		a := NewAligner(AlignerConfig{Generation: 2, Inputs: inputs, Next: next, ExactlyOnce: exactly})
		passed := make([]int, inputs) // barriers brought
		blocked := map[int]bool{}
		completed := 0
		for range 60 {
			readable := slices.DeleteFunc(seq(inputs), func(i int) bool { return blocked[i] })
			in := rapid.SampledFrom(readable).Draw(t, "input")
			if rapid.IntRange(0, 99).Draw(t, "fault") == 57 {
				ev := BarrierSeen{Input: in, Generation: 2, Kind: tuple.MarkBarrier, Batch: next + tuple.BatchID(passed[in])}
				spoil(t, &ev)
				out := a.Step(ev)
				if _, ok := out[0].(Reject); !ok || len(out) != 1 {
					t.Fatalf("%+v is wrong, got %#v", ev, out)
				}
				return
			}
			batch := next + tuple.BatchID(passed[in])
			n := rapid.Uint64().Draw(t, "tuples")
			out := a.Step(BarrierSeen{Input: in, Generation: 2, Kind: kindOf(batch), Batch: batch, Announced: n, Received: n})
			passed[in]++
			var done []AlignAction
			if slices.Min(passed) > completed {
				completed++
				done = append(done, Complete{Batch: batch, Kind: kindOf(batch)})
			}
			for i, act := range out {
				switch act := act.(type) {
				case Complete:
					if len(done) != 1 || act != done[0] || i != 0 {
						t.Fatalf("expected %v, got %v as action %d", done, act, i)
					}
					done = nil
				case Block:
					blocked[act.Input] = true
				case Unblock:
					for _, u := range act.Inputs {
						if !blocked[u] {
							t.Fatalf("input %d is unblocked, but not blocked", u)
						}
						delete(blocked, u)
					}
				case Ignore, Reject:
					t.Fatalf("unexpected %#v", act)
				}
			}
			if len(done) > 0 {
				t.Fatalf("expected %v, got %v", done, out)
			}
			for i := range inputs {
				if want := exactly && passed[i] > completed; blocked[i] != want {
					t.Fatalf("input %d: blocked is %v, want %v", i, blocked[i], want)
				}
			}
		}
	})
}

// spoil makes a barrier wrong in one of the ways that a channel can go wrong.
func spoil(t *rapid.T, ev *BarrierSeen) {
	switch rapid.IntRange(0, 3).Draw(t, "spoil") {
	case 0:
		ev.Received++
	case 1:
		ev.Announced++
	case 2:
		ev.Batch++
	case 3:
		ev.Batch--
	}
}

// kindOf makes all inputs agree on the kind of a batch.
func kindOf(n tuple.BatchID) tuple.MarkKind {
	return []tuple.MarkKind{tuple.MarkBarrier, tuple.MarkLastBarrier, tuple.MarkEnd}[n%3]
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// region is a naive model of what a Schedule has to know: the fate of each batch.
type region struct {
	state   []byte // per closed batch: 'p'ending, 'c'ommitted, 'g'iven up
	changed []bool // per batch, the open one included
}

func (r *region) pending() int { return count(r.state, 'p') }

// uncovered reports whether something is in the open batch or in a given-up one
// which no later batch has committed or still may.
func (r *region) uncovered() bool {
	for n := range r.changed {
		covered := n < len(r.state) && slices.ContainsFunc(r.state[n:], func(s byte) bool { return s != 'g' })
		if !covered && (r.changed[n] || n < len(r.state)) {
			return true
		}
	}
	return false
}

func count(s []byte, b byte) (n int) {
	for _, c := range s {
		if c == b {
			n++
		}
	}
	return n
}

// A Schedule injects exactly when the naive model says that a barrier is due, keeps
// to the limit, and lets the spouts go on exactly when they may.
func TestScheduleAgreesWithNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		s := NewSchedule(ScheduleConfig{Interval: time.Second, MaxPending: limit, Next: 1}, 0)
		r := &region{changed: []bool{false}}
		var now, since time.Duration
		var forced, paused, lastOpen bool
		last := tuple.MarkNone
		for range 80 {
			oldest := slices.Index(r.state, 'p')
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2:
				now += time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond
			case 3, 4:
				n := rapid.IntRange(max(0, len(r.state)-1), len(r.state)).Draw(t, "batch")
				r.changed[n] = true
				s.InputChanged(tuple.BatchID(n))
			case 5, 6:
				if oldest >= 0 {
					r.state[oldest] = 'c'
					s.Committed(tuple.BatchID(oldest + 1))
				}
			case 7:
				if oldest >= 0 {
					r.state[oldest] = 'g'
					s.GaveUp(tuple.BatchID(oldest + 1))
					lastOpen = lastOpen && oldest+1 < len(r.state)
				}
			case 8:
				forced = true
				s.Request(tuple.MarkBarrier)
			case 9:
				if last == tuple.MarkNone && rapid.IntRange(0, 5).Draw(t, "last") == 0 {
					last = tuple.MarkEnd
					s.Request(last)
				}
			}
			full := limit > 0 && r.pending() >= limit
			want := Injection{Batch: tuple.BatchID(len(r.state) + 1), Pause: last != 0 || limit > 0 && r.pending()+1 >= limit}
			switch {
			case full, lastOpen:
			case last != tuple.MarkNone:
				want.Kind, lastOpen = last, true
			case forced, r.uncovered() && now >= since+time.Second:
				want.Kind = tuple.MarkBarrier
			}
			wantResume := want.Kind == tuple.MarkNone && paused && !full && last == tuple.MarkNone
			d := s.Decide(now)
			if want.Kind == tuple.MarkNone {
				want = Injection{}
			}
			if d.Inject != want || d.Resume != wantResume {
				t.Fatalf("at %v with %s: got %+v, want %+v and resume %v", now, r.state, d, want, wantResume)
			}
			if d.Resume {
				paused = false
			}
			if want.Kind != tuple.MarkNone {
				r.state, r.changed = append(r.state, 'p'), append(r.changed, false)
				since, forced, paused = now, false, want.Pause
			} else if !full && !lastOpen && r.uncovered() && d.WakeAt != since+time.Second {
				t.Fatalf("at %v: asked to be woken at %v, want %v", now, d.WakeAt, since+time.Second)
			}
		}
	})
}
