package main

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/txn"
)

func TestLatency(t *testing.T) {
	rows := bench(t, "-workload latency -duration 30ms -shapes 1/1/1 -loads 20 -modes at-most-once,exactly-once@10")
	for _, mode := range []string{"at-most-once", "exactly-once@10"} {
		name := "1/1/1 at 20 % " + mode
		checkRow(t, rows, name, "p50_ms", "p99_ms", "p99.9_ms", "max_ms", "tuples_per_s", "of_offered", "ratio_to_at_most_once")
		row := rows[name]
		if p50, p99, most := row["p50_ms"].(float64), row["p99_ms"].(float64), row["max_ms"].(float64); p50 > p99 || p99 > most {
			t.Errorf("%s: %v", name, row)
		}
	}
}

func TestHistogramIsExactToAThirtySecond(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	last := -1
	for range 100000 {
		d := time.Duration(random.Uint64N(1 << (1 + random.UintN(39))))
		end := bucketEnd(bucketOf(d))
		if end < d || end-d > d/bucketsPerOctave {
			t.Fatalf("%d ns are in the bucket up to %d", d, end)
		}
	}
	for d := time.Duration(-1); d < 1e5; d++ {
		if i := bucketOf(d); i < last || i > last+1 {
			t.Fatalf("%d ns are in bucket %d after %d", d, i, last)
		} else if last = i; d > 0 && i > 0 && bucketEnd(i-1) >= d {
			t.Fatalf("%d ns are in bucket %d, but that before ends at %d", d, i, bucketEnd(i-1))
		}
	}
	if i := bucketOf(1 << 62); i != buckets-1 {
		t.Errorf("what is longer than all buckets is in %d", i)
	}
}

func TestQuantiles(t *testing.T) {
	h := newHistogram()
	h.observe(50, 1)
	before := spreadOf([]*histogram{h})
	for d := range time.Duration(60) {
		h.observe(d+1, 10)
	}
	s := spreadOf([]*histogram{h, h}).since(before).since(before)
	for share, want := range map[float64]time.Duration{0: 1, 0.01: 1, 0.5: 30, 0.51: 31, 0.99: 60, 1: 60} {
		if got := s.quantile(share); got != want {
			t.Errorf("quantile %v = %d, want %d", share, got, want)
		}
	}
	if n := s.count(); n != 1200 {
		t.Errorf("%d are counted, want 1200", n)
	}
	if got := make(spread, buckets).quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %d", got)
	}
}

// A spout that is held up emits afterwards what was due in the meantime, with the
// moments at which it was due: else nobody would see the delay.
func TestLinesAreStampedWithWhenTheyWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAges(shape{2, 1, 1}, nil)
		s := &timedSpout{ages: a, lines: []string{"a", "b", "c"}, rate: 2000}
		time.Sleep(time.Second)
		if err := s.Open(&txn.Context{TaskIndex: 1, TaskCount: 2}); err != nil {
			t.Fatal(err)
		}
		if rows, status := collect(t, s, 1); len(rows) > 0 || status != txn.Idle {
			t.Errorf("%d lines at the beginning, status %d", len(rows), status)
		}
		for _, at := range []int{5, 100} { // milliseconds: 1 line in each
			time.Sleep(time.Second + time.Duration(at)*time.Millisecond - a.now())
			from := int(s.emitted)
			rows, status := collect(t, s, 3)
			if len(rows) != at-from || status != txn.Idle {
				t.Fatalf("%d lines in %d ms after %d, status %d", len(rows), at, from, status)
			}
			for i, row := range rows {
				due := time.Second + time.Duration(from+i+1)*time.Millisecond
				if got := time.Duration(row[1].Int64()); got != due || row[0].Str() != s.lines[(from+i)%3] {
					t.Errorf("line %d is %q, due at %v, want %v", from+i, row[0].Str(), got, due)
				}
			}
		}
		late := spreadOf(a.late[1:])
		if n, most := late.count(), late.quantile(1); n != 100 || most < 94*time.Millisecond || most > 97*time.Millisecond {
			t.Errorf("%d lines, of which one was %v late; want 100 and 94ms", n, most)
		}
	})
}

func TestEveryWordHasAnAge(t *testing.T) {
	lines, err := textOf("wordcount")
	if err != nil {
		t.Fatal(err)
	}
	count := &timedCount{shape: shape{1, 2, 2}, lines: lines}
	a := newAges(count.shape, make([]paddedCounter, 2))
	began := time.Now()
	if err := count.run(untilCounted(t, a.words), mode{name: "exactly-once", intervalMS: 10}, 100000, a); err != nil {
		t.Fatal(err)
	}
	old, late := spreadOf(a.old), spreadOf(a.late)
	words := 0
	for i := range late.count() {
		line := lines[i%uint64(len(lines))]
		for from, to := nextWord(line, 0); from < to; from, to = nextWord(line, to) {
			words++
		}
	}
	if n := sum(a.words); int(n) != words || int(old.count()) != words || words == 0 {
		t.Errorf("%d words were emitted, %d were counted and %d have an age", words, n, old.count())
	}
	if youngest, oldest := old.quantile(0), old.quantile(1); youngest <= 0 || oldest > 2*time.Since(began) || oldest < late.quantile(1)/2 {
		t.Errorf("words are %v to %v old, in a run of %v whose lines were up to %v late", youngest, oldest, time.Since(began), late.quantile(1))
	}
}
