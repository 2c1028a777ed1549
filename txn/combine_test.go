package txn

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// Whatever meets in a frame, each batch comes to the same for each key.
func TestCombinedTuplesComeToTheSame(t *testing.T) {
	combined := 0
	rapid.Check(t, func(t *rapid.T) {
		how := rapid.SampledFrom([]Combine{CombineSum, CombineMin, CombineMax}).Draw(t, "how")
		s := stream(tuple.DefaultStream, "key", "n")
		if rapid.Bool().Draw(t, "two fields") {
			s = stream(tuple.DefaultStream, "key", "n", "more")
		}
		fields := []int{0, 2}[:len(s.Fields)-1]
		other := stream("other", "x")
		to, e := newTarget(s, ByFields, rapid.IntRange(1, 3).Draw(t, "tasks"), 16, rapid.IntRange(1, 9).Draw(t, "limit"), fields...)
		e.Combine = &Combining{Field: 1, How: how}
		plain := Edge{Stream: other, Grouping: All, Groups: 16, Outlets: e.Outlets}
		c := NewCollector([]*tuple.Stream{s, other}, []Edge{e, plain}, e.Outlets)
		want, emitted := map[string]int64{}, 0
		check := func(n int) {
			c.Mark(tuple.Mark{Kind: tuple.MarkBarrier, Batch: BatchID(n)})
			got, rows := map[string]int64{}, 0
			for task := range to.rows {
				for _, row := range to.rows[task] {
					if strings.HasPrefix(row, "other") {
						continue
					}
					var v int64
					key, rest, _ := strings.Cut(strings.TrimPrefix(row, "default["), " ")
					if _, err := fmt.Sscan(rest, &v); err != nil {
						t.Fatal(row, err)
					}
					if _, ok := got[key]; ok {
						v = how.of(tuple.Int64(got[key]), tuple.Int64(v)).Int64()
					}
					got[key] = v
					rows++
				}
				to.rows[task] = nil
			}
			if !maps.Equal(got, want) {
				t.Fatalf("batch %d came to %v, want %v", n, got, want)
			}
			combined += emitted - rows
			emitted = 0
			clear(want)
		}
		t.Repeat(map[string]func(*rapid.T){
			"emit": func(t *rapid.T) {
				key, n := rapid.SampledFrom([]string{"a", "b", "c", "dd", ""}).Draw(t, "key"), rapid.Int64Range(-5, 5).Draw(t, "n")
				vals := []tuple.Value{tuple.String(key), tuple.Int64(n), tuple.Int(len(key))}[:len(s.Fields)]
				if rapid.Bool().Draw(t, "bytes") {
					vals[0] = tuple.Bytes([]byte(key))
				}
				if len(vals) == 2 && rapid.Bool().Draw(t, "emit2") {
					c.Emit2(vals[0], vals[1])
				} else {
					c.Emit(vals...)
				}
				k := fmt.Sprint(vals[0])
				if old, ok := want[k]; ok {
					n = how.of(tuple.Int64(old), tuple.Int64(n)).Int64()
				}
				want[k] = n
				emitted++
			},
			"other": func(*rapid.T) { c.EmitTo("other", tuple.Int(1)) },
			"flush": func(*rapid.T) { c.Flush() },
			"mark":  func(*rapid.T) { check(1) },
		})
		check(2)
	})
	if combined == 0 {
		t.Error("nothing was combined")
	}
}

func TestFewKeysDoNotWaitForAFullFrame(t *testing.T) {
	s := stream(tuple.DefaultStream, "key", "n")
	to, e := newTarget(s, ByFields, 1, 16, 100, 0)
	e.Combine = &Combining{Field: 1, How: CombineSum}
	c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
	for range combinedMax + 2 {
		c.Emit2(tuple.String("a"), tuple.Int(1))
	}
	if want := fmt.Sprintf("default[%q %d]", "a", combinedMax+1); len(to.rows[0]) != 1 || to.rows[0][0] != want {
		t.Errorf("sent were %q, want %s", to.rows[0], want)
	}
}

func TestOnlyIntegersAreCombined(t *testing.T) {
	s := stream(tuple.DefaultStream, "key", "n")
	_, e := newTarget(s, ByFields, 1, 16, 100, 0)
	e.Combine = &Combining{Field: 1, How: CombineSum}
	c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, `field "n"`) || !strings.Contains(r, "1.5") {
			t.Errorf("it said %q", r)
		}
	}()
	c.Emit2(tuple.String("a"), tuple.Float64(1.5))
}
