package txn

import (
	"fmt"
	"math"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// TimerBolt is implemented by keyed bolts that use [State.Timers].
type TimerBolt interface {
	KeyedBolt

	// OnTimer is called when a timer is due, on the task's goroutine between two
	// calls of Execute. The key for which it was set is the current one; the timer is
	// no longer set. What OnTimer writes and emits belongs to the open batch. After a
	// restart from a checkpoint the timers set in it are there, and those that are due
	// fire at once. An error fails the region.
	OnTimer(t Timer, out *Collector) error
}

// Timer is a moment at which a key wants to be looked at.
type Timer struct {
	At    time.Time // to the millisecond
	Name  string    // tells the timers of a key apart
	Event bool      // by event time, else by processing time
}

// Timers are the timers of a component's keys: a part of its keyed state. Its methods
// are about the current key. A timer is known by its moment, its name and its kind:
// to set it again while it is set changes nothing. To set one is no change of its key
// in the sense of [Changed].
//
// Timers of one kind fire in the order of their moments, each once, never before its
// moment, and after it when the task was busy or down: a clock that jumps fires none
// twice. Moments are rounded up to a millisecond.
//
// Processing time is the machine's clock; within one process it never goes back, and
// goes on while the clock is set back. When a topology ends, timers that are not due
// stay in its last checkpoint.
//
// Event time is what the watermarks of the inputs say; see [Collector.EmitWatermark].
// It begins anew after a restart: of the watermark a checkpoint keeps only what the
// timers that it fired have done. At the end of all input the event timers that are
// still set fire in order; those that OnTimer then sets do not.
type Timers struct {
	s         *State
	queues    [2]*timerQueue
	watermark int64 // in milliseconds since 1970
}

// Names of the states that hold the timers.
const (
	processingTimers = "isobar.timers.processing"
	eventTimers      = "isobar.timers.event"
)

// timerVersion is the first byte of the stored value of a timer.
const timerVersion = 1

// Timers registers the timers of the component, in Open, and returns them.
func (s *State) Timers() *Timers {
	if s.timers == nil {
		s.timers = &Timers{s: s, watermark: math.MinInt64}
		for i, name := range []string{processingTimers, eventTimers} {
			id := s.register(StateMeta{Name: name, Kind: "timer", Codec: "timer", Version: timerVersion}, nil)
			s.timers.queues[i] = newTimerQueue(s, id)
		}
	}
	return s.timers
}

// UsesTimers reports whether Timers was called. The engine asks after Open.
func (s *State) UsesTimers() bool { return s.timers != nil }

func (t *Timers) queue(event bool) *timerQueue {
	if event {
		return t.queues[1]
	}
	return t.queues[0]
}

// SetProcessing sets a timer of the current key by processing time.
func (t *Timers) SetProcessing(at time.Time, name string) {
	q := t.queue(false)
	q.set(q.key(milliseconds(at), name))
}

// SetEvent sets a timer of the current key by event time. One that is not after the
// watermark fires at once.
func (t *Timers) SetEvent(at time.Time, name string) {
	q := t.queue(true)
	q.set(q.key(milliseconds(at), name))
}

// Delete takes back a timer of the current key; one that is not set is no error.
func (t *Timers) Delete(timer Timer) {
	q := t.queue(timer.Event)
	q.remove(q.key(milliseconds(timer.At), timer.Name))
}

// Watermark returns the event time that all inputs have reached; ok is false as long
// as an input has not told.
func (t *Timers) Watermark() (at time.Time, ok bool) {
	return time.UnixMilli(t.watermark), t.watermark != math.MinInt64
}

func milliseconds(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// NextProcessing returns when the next timer by processing time is due, in
// milliseconds since 1970; ok is false if none is set. The engine asks.
func (t *Timers) NextProcessing() (unixMilli int64, ok bool, err error) { return t.queue(false).next() }

// fireMax is how many timers fire before the inputs get their turn.
const fireMax = 256

// FireProcessing calls fire for timers that are due at a moment of processing time, in
// milliseconds since 1970, and returns how many there were; not all of them at once,
// if there are many. During fire the timer's key is the current one. The engine calls
// it.
func (t *Timers) FireProcessing(now int64, fire func(Timer) error) (int, error) {
	return t.fire(t.queue(false), now, fire)
}

// FireEvent moves the watermark, which never goes back, and calls fire as
// FireProcessing does for timers that it has reached.
func (t *Timers) FireEvent(watermark int64, fire func(Timer) error) (int, error) {
	t.watermark = max(t.watermark, watermark)
	return t.fire(t.queue(true), t.watermark, fire)
}

// FireRest calls fire for all event timers that are set now, but for none that fire
// sets. The engine calls it at the end of all input.
func (t *Timers) FireRest(fire func(Timer) error) error {
	q := t.queue(true)
	q.ending = true
	for {
		if n, err := t.fire(q, math.MaxInt64, fire); n == 0 || err != nil {
			return err
		}
	}
}

func (t *Timers) fire(q *timerQueue, now int64, fire func(Timer) error) (n int, err error) {
	for ; n < fireMax; n++ {
		key, ok, err := q.take(now)
		if err != nil || !ok {
			return n, err
		}
		timer, err := t.selectTimer(key)
		if err != nil {
			return n, err
		}
		timer.Event = q == t.queue(true)
		if err := fire(timer); err != nil {
			return n, fmt.Errorf("timer %q at %s of key %s: %w", timer.Name, timer.At.UTC().Format(time.RFC3339Nano), tuple.FormatKey(t.s.appendKey(nil)), err)
		}
	}
	return n, nil
}

// selectTimer makes the key of a timer the current one.
func (t *Timers) selectTimer(stateKey string) (Timer, error) {
	rest := []byte(stateKey[timerKeyPrefix:])
	key, name, err := tuple.SplitDelimited(rest)
	if err != nil {
		return Timer{}, fmt.Errorf("read a timer: %w", err)
	}
	s := t.s
	hash, tag, payload, err := splitKey(key)
	if err != nil {
		return Timer{}, fmt.Errorf("read a timer: %w", err)
	}
	s.current(hash, tag, payload)
	return Timer{At: time.UnixMilli(timerTime(stateKey)), Name: string(name)}, nil
}

func (t *Timers) mark() {
	for _, q := range t.queues {
		q.mark()
	}
}

func (t *Timers) copy(limit int) (copied int) {
	for _, q := range t.queues {
		copied += q.copy(limit - copied)
	}
	return copied
}

func (t *Timers) settle(applied BatchID) {
	for _, q := range t.queues {
		q.settle(applied)
	}
}
