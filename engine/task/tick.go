package task

import (
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// tickStream is the stream of tick tuples.
var tickStream = &tuple.Stream{Component: "__system", ID: "__tick", Fields: tuple.Fields{"rate_secs"}}

// ticker gives a bolt a tick tuple every so often.
type ticker struct {
	*bolt
	tuple  *tuple.Tuple
	state  *txn.State // of a keyed bolt
	every  time.Duration
	nextAt time.Duration
}

func (b *bolt) openTicks(state *txn.State) {
	every := b.conf.Duration("topology.tick.tuple.freq.secs")
	if every <= 0 {
		return
	}
	secs := b.conf.Int("topology.tick.tuple.freq.secs")
	b.ticks = &ticker{
		bolt:   b,
		tuple:  tuple.New(tickStream, tuple.Int(secs)),
		state:  state,
		every:  every,
		nextAt: b.env.Now() + every,
	}
}

// fire executes the tick tuple if it is due. After a pause there is one tick, not one
// for each that was missed.
func (t *ticker) fire() (fired bool, err error) {
	now := t.env.Now()
	if now < t.nextAt || t.ended {
		return false, nil
	}
	t.nextAt = now + t.every
	if t.state != nil {
		t.state.ClearKey()
	}
	t.current = t.tuple
	emitted := t.out.Emitted()
	if err := t.user.Execute(t.tuple, t.out); err != nil {
		return true, err
	}
	t.current = nil
	if t.stateful != nil || t.out.Emitted() != emitted || t.state != nil && t.state.Changed().Len() > 0 {
		t.inputChanged()
	}
	return true, nil
}
