package task

import (
	"errors"
	"math"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// timers does for a keyed bolt what happens by the clock, between frames.
type timers struct {
	*keyed
	set  *txn.Timers   // nil if the bolt sets none
	user txn.TimerBolt // with set
}

// openTimers gives the bolt a clock if it needs one.
func (k *keyed) openTimers() error {
	t := &timers{keyed: k}
	t.user, _ = k.inst.(txn.TimerBolt)
	if k.state.UsesTimers() {
		if t.user == nil {
			return errors.New("it asks for timers in Open, but has no OnTimer: implement txn.TimerBolt")
		}
		t.set = k.state.Timers()
	}
	if t.set != nil || k.state.Expires() {
		k.clock = t
	}
	return nil
}

func (t *timers) onTimer(timer txn.Timer) error { return t.user.OnTimer(timer, t.out) }

// fire fires some of the timers that are due. Nothing changes any more after the last
// batch.
func (t *timers) fire() (fired bool, err error) {
	if t.ended {
		return false, nil
	}
	now := t.env.Processing.UnixMilli()
	if t.set != nil {
		n, err := t.set.FireProcessing(now, t.onTimer)
		if err != nil {
			return false, err
		}
		m, err := t.set.FireEvent(math.MinInt64, t.onTimer)
		if err != nil {
			return false, err
		}
		fired = n+m > 0
	}
	if at, ok := t.state.SweepDue(); fired || ok && at <= now {
		t.inputChanged()
	}
	return fired, nil
}

// fireEvents fires the timers that a watermark has reached.
func (t *timers) fireEvents(watermark int64) error {
	for t.set != nil && !t.ended && !t.gen.over() {
		n, err := t.set.FireEvent(watermark, t.onTimer)
		if n == 0 || err != nil {
			return err
		}
		t.inputChanged()
	}
	return nil
}

// fireRest fires the event timers that are left when all input has ended.
func (t *timers) fireRest() error {
	if t.set == nil {
		return nil
	}
	return t.set.FireRest(t.onTimer)
}

// clockLook is after how long a sleeping task looks at the clock, which may have
// jumped.
const clockLook = time.Second

// wait returns how long to sleep if nothing comes.
func (t *timers) wait() (time.Duration, bool) {
	if t.ended {
		return 0, false
	}
	at, ok := t.state.SweepDue()
	ok = ok && !t.changed
	if t.set != nil {
		next, set, err := t.set.NextProcessing()
		if err != nil { // it will come again when the timer is to be fired
			return 0, true
		}
		if set && (!ok || next < at) {
			at, ok = next, true
		}
	}
	if !ok {
		return 0, false
	}
	if left := at - t.env.Processing.UnixMilli(); left < clockLook.Milliseconds() {
		return time.Duration(max(left, 0)) * time.Millisecond, true
	}
	return clockLook, true
}

// inputChanged says that there is something to commit although no input has come: an
// idle region takes a checkpoint of it.
func (b *bolt) inputChanged() {
	if b.changed || !b.env.Barriers {
		return
	}
	b.changed = true
	b.env.Post(checkpoint.InputChanged{Generation: b.gen.Number, Task: checkpoint.TaskID(b.ID), After: b.closed})
}

// inTime is what the inputs of a bolt have told of event time.
type inTime struct {
	marks []int64 // watermarks by input, in milliseconds since 1970; nil as long as none came
	idle  []bool
}

// heed takes a mark of an input. It returns the smallest watermark of the inputs that
// are not idle, math.MinInt64 if one of them has none, and whether all are idle.
func (w *inTime) heed(inputs, i int, m tuple.Mark) (at int64, idle bool) {
	if w.marks == nil {
		w.marks, w.idle = make([]int64, inputs), make([]bool, inputs)
		for i := range w.marks {
			w.marks[i] = math.MinInt64
		}
	}
	w.idle[i] = m.Kind == tuple.MarkIdle
	if !w.idle[i] {
		w.marks[i] = max(w.marks[i], txn.WatermarkOf(m))
	}
	at, idle = math.MaxInt64, true
	for i, mark := range w.marks {
		if !w.idle[i] {
			at, idle = min(at, mark), false
		}
	}
	return at, idle
}

// eventTime moves the event time of the task and passes it on.
func (b *bolt) eventTime(i int, m tuple.Mark) error {
	at, idle := b.time.heed(len(b.inputs), i, m)
	switch {
	case idle:
		b.out.EmitIdle()
		return nil
	case at == math.MinInt64:
		return nil
	}
	if b.clock != nil {
		if err := b.clock.fireEvents(at); err != nil {
			return err
		}
	}
	b.out.EmitWatermark(time.UnixMilli(at))
	return nil
}
