package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// drip idles, emits one tuple, and is busy with something else from then on.
type drip struct {
	lines
	began   time.Time
	emitted *time.Time
}

func (d *drip) NextTuple(out *txn.Collector) (txn.Status, error) {
	switch {
	case time.Since(d.began) < 10*time.Second:
		return txn.Idle, nil
	case d.emitted.IsZero():
		*d.emitted = time.Now()
		out.Emit1(tuple.String("drop"))
	}
	time.Sleep(time.Millisecond)
	return txn.Emitted, nil
}

// arrival tells when a tuple came.
type arrival struct{ at chan<- time.Time }

func (a arrival) Execute(*tuple.Tuple, *txn.Collector) error { a.at <- time.Now(); return nil }

// A tuple does not wait in an open frame of a busy task, also when everybody was idle
// before it.
func TestBusyTasksFlushAfterEverybodyWasIdle(t *testing.T) {
	for name, kv := range map[string]map[string]any{
		"exactly once": {"transaction.schedule.batch.delay.ms": 60_000},
		"at most once": {"transaction.topology": false, "transaction.schedule.batch.delay.ms": 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var emitted time.Time
				at := make(chan time.Time, 1)
				tb := engine.NewTopologyBuilder()
				tb.SetSpout("drip", func() txn.Spout { return &drip{lines: *newLines(nil), began: time.Now(), emitted: &emitted} }, 1)
				tb.SetBolt("arrival", func() txn.Bolt { return arrival{at} }, 1).ShuffleGrouping("drip")
				ctx, stop := context.WithCancel(t.Context())
				store := memstore.New()
				ended := start(ctx, build(t, tb), conf(t, kv), engine.WithStore(store, memstore.NewOpener(store)))
				select {
				case came := <-at:
					if late := came.Sub(emitted); late > 20*time.Millisecond {
						t.Errorf("the tuple came after %s", late)
					}
				case <-time.After(20 * time.Second):
					t.Error("the tuple waits")
				}
				stop()
				<-ended
			})
		})
	}
}
