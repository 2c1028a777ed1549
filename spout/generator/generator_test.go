package generator

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/spout/spouttest"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func index(i uint64, out *txn.Collector) { out.Emit1(tuple.Uint64(i)) }

func TestConformance(t *testing.T) {
	for _, o := range []Options{
		{Tuples: 1000},
		{Tuples: 1001, Partitions: 7},
		{Tuples: 2, Partitions: 3},
		{Tuples: 500, Partitions: 2, Emit: func(i uint64, out *txn.Collector) {
			for range i % 3 {
				index(i, out)
			}
		}},
	} {
		if o.Emit == nil {
			o.Emit = index
		}
		o.Fields = tuple.Fields{"n"}
		spouttest.Run(t, func(testing.TB) txn.Spout { return New(o) })
	}
}

// collect makes calls until the spout does not emit any more.
func collect(t *testing.T, s *Spout, got *[]uint64) txn.Status {
	t.Helper()
	out := txn.NewTestCollector([]*tuple.Stream{{ID: tuple.DefaultStream, Fields: s.opts.Fields}}, func(_ string, vals []tuple.Value) {
		*got = append(*got, vals[0].Uint64())
	})
	for {
		status, err := s.NextTuple(out)
		if err != nil {
			t.Fatal(err)
		}
		if status != txn.Emitted {
			return status
		}
	}
}

func open(t *testing.T, o Options) *Spout {
	t.Helper()
	o.Fields, o.Emit = tuple.Fields{"n"}, index
	s := New(o)
	if err := s.Open(nil); err != nil {
		t.Fatal(err)
	}
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ids {
		if err := s.Seek(p, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestEachIndexComesOnce(t *testing.T) {
	for tuples := range uint64(20) {
		for parts := 1; parts < 6; parts++ {
			var got []uint64
			if status := collect(t, open(t, Options{Tuples: tuples, Partitions: parts}), &got); status != txn.Finished {
				t.Fatalf("status %d at the end", status)
			}
			slices.Sort(got)
			for i, n := range got {
				if uint64(i) != n {
					t.Fatalf("%d tuples in %d partitions: got %v", tuples, parts, got)
				}
			}
			if uint64(len(got)) != tuples {
				t.Fatalf("%d tuples in %d partitions: got %d", tuples, parts, len(got))
			}
		}
	}
}

func TestRateIsKept(t *testing.T) {
	s := open(t, Options{Tuples: 1000, Partitions: 4, Rate: 100})
	clock := time.Unix(100, 0)
	s.now = func() time.Time { return clock }
	var got []uint64
	for _, step := range []struct {
		after time.Duration
		want  int
	}{
		{0, 4}, // each part may begin at once
		{39 * time.Millisecond, 4},
		{time.Millisecond, 8},
		{time.Second - 40*time.Millisecond, 104},
		{5 * time.Second, 604},
		{-time.Second, 604},
		{time.Hour, 1000},
	} {
		clock = clock.Add(step.after)
		status := collect(t, s, &got)
		if len(got) != step.want || (status == txn.Finished) != (step.want == 1000) {
			t.Errorf("%d tuples and status %d after a further %s, want %d", len(got), status, step.after, step.want)
		}
	}
}

func TestRestartDoesNotMakeUpForLostTime(t *testing.T) {
	s := open(t, Options{Tuples: Endless, Rate: 10})
	clock := time.Unix(100, 0)
	s.now = func() time.Time { return clock }
	pos := []byte{0, 0, 0, 0, 0, 0, 1, 0}
	if err := s.Seek("0/1", pos); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	collect(t, s, &got)
	clock = clock.Add(time.Second)
	if status := collect(t, s, &got); len(got) != 11 || got[0] != 256 || got[10] != 266 || status != txn.Idle {
		t.Errorf("got %v", got)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for _, o := range []Options{{}, {Partitions: -1}, {Rate: -1}, {Rate: math.NaN()}, {Rate: math.Inf(1)}} {
		err := New(o).Open(nil)
		if !txn.IsFatal(err) || !strings.Contains(err.Error(), "no fields") || !strings.Contains(err.Error(), "Emit") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
	for _, o := range []Options{{Partitions: -1}, {Rate: -1}, {Rate: math.NaN()}, {Rate: math.Inf(1)}} {
		o.Fields, o.Emit = tuple.Fields{"n"}, index
		if err := New(o).Open(nil); !txn.IsFatal(err) {
			t.Errorf("%+v is accepted", o)
		}
	}
	s := open(t, Options{Tuples: 10, Partitions: 2})
	for p, pos := range map[txn.PartitionID][]byte{
		"1/3": nil, "2/2": nil, "x": nil, "-1/2": nil,
		"0/2": {0, 0, 0, 0, 0, 0, 0, 6},
	} {
		if err := s.Seek(p, pos); !txn.IsFatal(err) {
			t.Errorf("seek %q to %x: error %v", p, pos, err)
		}
	}
}

func TestGeneratingDoesNotAllocate(t *testing.T) {
	s := open(t, Options{Tuples: Endless, Partitions: 3})
	out := txn.NewCollector([]*tuple.Stream{{ID: tuple.DefaultStream, Fields: tuple.Fields{"n"}}}, nil, nil)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.NextTuple(out) }); n != 0 {
		t.Errorf("%v allocations a call of NextTuple", n)
	}
}

func BenchmarkGenerate(b *testing.B) {
	s := New(Options{Fields: tuple.Fields{"n"}, Tuples: Endless, Emit: index})
	ids, _ := s.Partitions(context.Background())
	if err := s.Seek(ids[0], nil); err != nil {
		b.Fatal(err)
	}
	out := txn.NewCollector([]*tuple.Stream{{ID: tuple.DefaultStream, Fields: tuple.Fields{"n"}}}, nil, nil)
	for b.Loop() {
		if _, err := s.NextTuple(out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*indexesPerCall/b.Elapsed().Seconds(), "tuples/s")
}
