package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// These cases are about topologies of several regions, one of which holds up another.

// twoRegions is a topology of the regions "a-count" and "b-count", each a counter and a
// sink whose commits may fail. It has lines of which a limit says how many there are.
func twoRegions(t *testing.T, lines []string, limits map[string]*atomic.Int64, boards map[string]*board, ill *atomic.Bool) *engine.Topology {
	t.Helper()
	tb := engine.NewTopologyBuilder()
	for name, limit := range limits {
		tb.SetSpout(name+"-lines", limited(limit, 1000, lines), 1)
		tb.SetBolt(name+"-count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping(name+"-lines", "line")
		tb.SetBolt(name+"-sink", func() txn.Bolt { return &latest{b: boards[name]} }, 1).GlobalGrouping(name + "-count")
	}
	tb.SetBolt("b-stage", func() txn.Bolt {
		return &sink{o: newOutside(), log: &calls{}, commit: func(context.Context, txn.BatchID) error {
			if ill.Load() {
				time.Sleep(time.Second) // the state is stored meanwhile
				return txn.Fatal(errors.New("rolled back"))
			}
			return nil
		}}
	}, 1).GlobalGrouping("b-count")
	return build(t, tb)
}

// Case: what aborted checkpoints had stored was left behind as long as something else went
// on undisturbed. Here that is another region, which has never been restarted.
func TestRolledBackRegionLeavesNothingBehindWhileAnotherGoesOn(t *testing.T) {
	const restarts, grace = 30, time.Minute
	lines := numbered("n", 20_000)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		limits := map[string]*atomic.Int64{"a": {}, "b": {}}
		goOn := func(until func(second int) bool) { // both have a line a second
			for i := 0; !until(i); i++ {
				for _, l := range limits {
					l.Add(1)
				}
				time.Sleep(time.Second)
			}
		}
		var ill atomic.Bool
		var look atomic.Pointer[engine.Inspector]
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		run := start(ctx, twoRegions(t, lines, limits, map[string]*board{"a": {}, "b": {}}, &ill),
			engine.WithStore(store, memstore.NewOpener(store)), engine.WithInspector(look.Store),
			conf(t, map[string]any{"topology.restart.max": 0, "transaction.schedule.batch.delay.ms": 1000,
				"checkpoint.orphan.grace.secs": int(grace / time.Second)}))
		goOn(func(second int) bool { return second == 10 })
		ill.Store(true)
		goOn(func(int) bool { return look.Load().Regions()[1].Restarts >= restarts })
		ill.Store(false)
		goOn(func(second int) bool { return second == int(4*grace/time.Second) })
		synctest.Wait()
		all, needed := objects(t, store)
		if most := 20; len(all) > len(needed)+most {
			t.Errorf("after %d rollbacks there are %d objects, of which %d are needed", restarts, len(all), len(needed))
		}
		if n := look.Load().Regions()[0].Restarts; n != 0 {
			t.Errorf("the other region was restarted %d times", n)
		}
		stop()
		if e := <-run; e.err != nil {
			t.Fatal(e.err)
		}
	})
}

// Case: an input that had ended blocked every checkpoint that was asked for. Here all inputs
// of a region have, so that it has no tasks any more.
func TestSavepointIsTakenThoughARegionHasFinished(t *testing.T) {
	lines := numbered("n", 200)
	synctest.Test(t, func(t *testing.T) {
		store, control := memstore.New(), engine.NewControl()
		boards := map[string]*board{"a": {}, "b": {}}
		limits := map[string]*atomic.Int64{"a": {}, "b": {}}
		run := func(s engine.Start) (stop func() ended) {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			e := start(ctx, twoRegions(t, lines, limits, boards, &atomic.Bool{}), engine.WithStore(store, memstore.NewOpener(store)),
				engine.WithControl(control), engine.WithStart(s), conf(t, map[string]any{"transaction.schedule.batch.delay.ms": 60_000, "checkpoint.retained": 1}))
			time.Sleep(time.Minute)
			return func() ended { cancel(); return <-e }
		}
		var refs []checkpoint.Ref
		save := func(name string) {
			var err error
			if refs, err = control.Savepoint(t.Context(), name); err != nil || len(refs) != 2 {
				t.Fatalf("savepoint %s: %v, %v", name, refs, err)
			}
		}
		limits["a"].Store(50)
		limits["b"].Store(50)
		stop := run(engine.Start{})
		save("early")
		limits["a"].Store(-1) // it ends
		limits["b"].Store(100)
		time.Sleep(time.Minute)
		save("late")
		limits["b"].Store(150)
		for _, name := range []string{"early", "late"} {
			if _, err := control.Savepoint(t.Context(), name); err == nil {
				t.Errorf("the name %s was given twice", name)
			}
		}
		if e := stop(); e.err != nil {
			t.Fatal(e.err)
		}
		var pinned []string
		for _, p := range headOf(t, store).Pins {
			pinned = append(pinned, p.Region+" "+p.Name)
		}
		if slices.Sort(pinned); !slices.Equal(pinned, []string{"a-count early", "a-count late", "b-count early", "b-count late"}) {
			t.Errorf("pinned are %q", pinned)
		}
		control = engine.NewControl()
		limits["b"].Store(-1)
		boards["a"], boards["b"] = &board{}, &board{}
		if e := run(engine.Start{From: refs[0].String() + "," + refs[1].String()})(); e.err != nil {
			t.Fatal(e.err)
		}
		for name, b := range boards {
			if !maps.Equal(b.get(), once(lines)) {
				t.Errorf("region %s has counted %d lines", name, len(b.get()))
			}
		}
	})
}
