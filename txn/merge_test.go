package txn

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

func TestMergedValuesAreWhatTheAggregatorMakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom([]Aggregator[int64]{Sum(), Min(), Max()}).Draw(t, "aggregator")
		stored := func(v int64) []byte {
			b, err := a.Codec.Append([]byte{a.Kind}, v)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		x, y := rapid.Int64().Draw(t, "x"), rapid.Int64().Draw(t, "y")
		got, err := MergeValues(stored(x), stored(y))
		if want := stored(a.Combine(x, y)); err != nil || string(got) != string(want) {
			t.Fatalf("%s of %d and %d is %x, %v, want %x", a.Codec.Name, x, y, got, err, want)
		}
	})
}

func TestValuesThatDoNotBelongTogetherAreNotMerged(t *testing.T) {
	sum := []byte{kindSum, 0, 0, 0, 0, 0, 0, 0, 1}
	for _, other := range [][]byte{nil, sum[:8], append(sum[:9:9], 0), {kindMin, 0, 0, 0, 0, 0, 0, 0, 1}, {kindSumFloat, 0, 0, 0, 0, 0, 0, 0, 1}} {
		for _, pair := range [][2][]byte{{sum, other}, {other, sum}, {other, other}} {
			if len(other) == 9 && other[0] != kindSumFloat && string(pair[0]) == string(pair[1]) {
				continue
			}
			if v, err := MergeValues(append([]byte{}, pair[0]...), pair[1]); err == nil {
				t.Errorf("%x and %x became %x", pair[0], pair[1], v)
			}
		}
	}
}

// What is added is not read before somebody asks for it.
func TestAddingReadsNothing(t *testing.T) {
	b := newMapBackend()
	s := newTestState(b)
	n := NewAggregate(s, "n", Sum())
	add := func(batch BatchID) {
		t.Helper()
		for i := range 100 {
			if err := errors.Join(s.SetKey(tuple.String(fmt.Sprint(i))), n.Add(int64(i))); err != nil {
				t.Fatal(err)
			}
		}
		c, err := s.Cut(batch)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(c)
		s.Settle(batch)
	}
	for batch := range BatchID(10) {
		add(batch + 1)
	}
	if b.gets != 0 {
		t.Errorf("the backend was asked %d times", b.gets)
	}
	for i := range 100 {
		if err := s.SetKey(tuple.String(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := n.Get(); v != int64(10*i) || !ok || err != nil {
			t.Errorf("key %d has %d, %t, %v, want %d", i, v, ok, err, 10*i)
		}
	}
}
