package main

import (
	"context"
	"encoding/binary"
	"testing"
	"time"
)

func TestState(t *testing.T) {
	rows := bench(t, "-workload state -keys 3000 -dist uniform,zipf -duration 20ms -interval 1ns")
	for _, dist := range []string{"uniform", "zipf"} {
		for _, mode := range []string{"map", "pebble", "value", "aggregate", "pause"} {
			checkRow(t, rows, "3000 keys "+dist+" "+mode, "updates_per_s", "ns_per_update", "ratio_to_map", "ratio_to_pebble")
		}
		for _, mode := range []string{"value", "aggregate", "pause"} {
			checkRow(t, rows, "3000 keys "+dist+" "+mode, "barriers", "pause_p50_ms", "pause_p99_ms", "pause_max_ms")
		}
		if rows["3000 keys "+dist+" map"]["barriers"] != nil {
			t.Error("a map knows barriers")
		}
	}
}

// Whatever keeps them, the numbers are those of the updates: one for each key when a
// keeper is filled, and one for each time it was drawn.
func TestKeepersCountEveryUpdate(t *testing.T) {
	const keys = 2500
	for _, name := range []string{"map", "pebble", "value", "aggregate", "pause"} {
		for _, cacheMB := range []int{0, 1} {
			b := &stateBench{o: options{duration: 20 * time.Millisecond, interval: 2 * time.Millisecond, cacheMB: cacheMB}, keys: keys, dist: "zipf"}
			t.Cleanup(func() {
				if err := b.close(); err != nil {
					t.Error(err)
				}
			})
			if err := b.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := b.measure(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			c := b.keepers[name]
			want := map[string]int64{}
			var m keyMaker
			for i := range keys {
				want[m.make(i).text]++
			}
			if len(want) != keys {
				t.Fatalf("%d of %d keys are different", len(want), keys)
			}
			for i := range c.updates {
				want[b.drawn[i%int64(len(b.drawn))].text]++
			}
			checkNumbers(t, name, numbersOf(t, c.keeper), want)
		}
	}
}

func checkNumbers(t *testing.T, name string, got, want map[string]int64) {
	t.Helper()
	wrong := 0
	for key, n := range want {
		if got[key] != n {
			wrong++
		}
	}
	if wrong > 0 || len(got) != len(want) {
		t.Errorf("%s holds %d keys, want %d; %d numbers are wrong", name, len(got), len(want), wrong)
	}
}

// numbersOf returns what a keeper holds: of a state, what is durable.
func numbersOf(t *testing.T, k keeper) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	switch k := k.(type) {
	case *mapKeeper:
		return k.numbers
	case *pebbleKeeper:
		it, err := k.db.NewIterWithContext(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			got[string(it.Key())] = int64(binary.BigEndian.Uint64(it.Value()))
		}
	case *stateKeeper:
		if _, err := k.barrier(); err != nil {
			t.Fatal(err)
		}
		if err := k.settle(); err != nil {
			t.Fatal(err)
		}
		view, err := k.store.View(k.batch)
		if err != nil {
			t.Fatal(err)
		}
		if err := view.Scan("number", func(key, value []byte) error {
			got[string(key[1:])] = int64(binary.BigEndian.Uint64(value[1:]))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestZipfDrawsFewKeysOften(t *testing.T) {
	share := func(dist string) float64 {
		times, most := map[string]int{}, 0
		drawn := drawKeys(1000, dist)
		for _, k := range drawn {
			times[k.text]++
			most = max(most, times[k.text])
		}
		return float64(most) / float64(len(drawn))
	}
	if uniform, zipf := share("uniform"), share("zipf"); uniform > 0.01 || zipf < 0.1 {
		t.Errorf("the most frequent key is %v of uniform draws and %v of Zipf's", uniform, zipf)
	}
}

func TestQuantilesOfPauses(t *testing.T) {
	var pauses []time.Duration
	for i := range 200 {
		pauses = append(pauses, time.Duration(i+1)*time.Millisecond)
	}
	for share, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 0.991: 199, 1: 200} {
		if got := quantileMS(pauses, share); got != want {
			t.Errorf("quantile %v is %v ms, want %v", share, got, want)
		}
	}
}
