package main

import (
	"context"
	"testing"
	"time"
)

func TestChain(t *testing.T) {
	rows := bench(t, "-workload chain -duration 20ms -modes limit,at-most-once,exactly-once@10")
	for _, mode := range []string{"limit", "at-most-once", "exactly-once@10"} {
		checkRow(t, rows, "1/1/1 "+mode, "tuples_per_s", "cpu_ns_per_tuple", "ratio_to_limit", "ratio_to_at_most_once")
	}
}

// untilCounted returns a context that ends when something was counted.
func untilCounted(t *testing.T, counted []paddedCounter) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for sum(counted) == 0 && ctx.Err() == nil {
			<-tick.C
		}
		stop()
	}()
	t.Cleanup(stop)
	return ctx
}

func TestEverythingEmittedArrivesAtTheEndOfTheChain(t *testing.T) {
	for _, m := range []mode{{name: "limit"}, {name: "at-most-once"}, {name: "exactly-once", intervalMS: 10}} {
		t.Run(m.String(), func(t *testing.T) {
			counted := make([]paddedCounter, 1)
			ctx := untilCounted(t, counted)
			var emitted int64
			if m.name == limitMode {
				emitted = limitChain(ctx, counted)
			} else {
				s := &constantSpout{}
				topology, err := chainTopology(s, counted)
				if err != nil {
					t.Fatal(err)
				}
				if err := runTopology(ctx, m, topology); err != nil {
					t.Fatal(err)
				}
				emitted = int64(s.emitted)
			}
			if n := sum(counted); n != emitted || n == 0 {
				t.Errorf("%d tuples were emitted and %d have arrived", emitted, n)
			}
		})
	}
}
