package checkpointtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/txn"
)

// The first bytes of values that can be merged. The state of each is testStates[aggregates+it].
const (
	sum   = 1
	least = 2
	most  = 3

	aggregates = 2
)

// number is the stored value of an aggregate.
func number(kind byte, n int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(n))
}

// merged makes a change of one key of an aggregate that is to be merged.
func merged(group int, kind byte, key string, n int64) txn.Record {
	r := record(group, aggregates+int(kind), key, string(number(kind, n)))
	r.Merge = true
	return r
}

// everyMerged merges n into the sum of the same key in every group.
func everyMerged(key string, n int64) []txn.Record {
	var all []txn.Record
	for g := range keyGroups {
		all = append(all, merged(g, sum, key, n))
	}
	return all
}

// everySum changes the sum of the same key in every group to value, as every does.
func everySum(key, value string) []txn.Record {
	var all []txn.Record
	for g := range keyGroups {
		all = append(all, record(g, aggregates+sum, key, value))
	}
	return all
}

// change makes a change to the model.
func (c *cluster) change(r txn.Record) {
	before, there := c.model[string(r.Key)]
	switch {
	case r.Delete:
		delete(c.model, string(r.Key))
	case r.Merge && there:
		a, b := int64(binary.BigEndian.Uint64([]byte(before[1:]))), int64(binary.BigEndian.Uint64(r.Value[1:]))
		n := map[byte]int64{sum: a + b, least: min(a, b), most: max(a, b)}[before[0]]
		c.model[string(r.Key)] = string(number(before[0], n))
	default:
		c.model[string(r.Key)] = string(r.Value)
	}
}

// drawRecord draws a change: of a value, or of an aggregate.
func drawRecord(t *rapid.T) txn.Record {
	group := rapid.IntRange(0, keyGroups-1).Draw(t, "group")
	key := rapid.SampledFrom([]string{"", "a", "b", "\x00", "\xff\xff"}).Draw(t, "key")
	kind := byte(rapid.IntRange(0, most).Draw(t, "kind"))
	if kind == 0 {
		return record(group, rapid.IntRange(0, 1).Draw(t, "state"), key,
			rapid.SampledFrom([]string{"-", "", "1", "two", strings.Repeat("x", 300)}).Draw(t, "value"))
	}
	n := rapid.SampledFrom([]int64{0, 1, 2, -5, math.MaxInt64, math.MinInt64}).Draw(t, "number")
	switch rapid.IntRange(0, 4).Draw(t, "change") {
	case 0:
		return record(group, aggregates+int(kind), key, "-")
	case 1:
		return record(group, aggregates+int(kind), key, string(number(kind, n)))
	default:
		return merged(group, kind, key, n)
	}
}

// checkSum demands the sum of a key in every group.
func (c *cluster) checkSum(t tb, key string, want int64) {
	t.Helper()
	for _, r := range everyMerged(key, 0) {
		c.checkGet(t, string(r.Key), string(number(sum, want)), true)
	}
}

func mergesOntoNothing(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	c.apply(t, everyMerged("fresh", 3)...)
	c.checkSum(t, "fresh", 3)
	c.apply(t, append(everyMerged("fresh", 4), everySum("set", string(number(sum, 100)))...)...)
	c.apply(t, append(everySum("fresh", "-"), everyMerged("set", 1)...)...)
	c.apply(t, everyMerged("fresh", 5)...)
	c.apply(t, everyMerged("fresh", 6)...)
	for n := range c.batch + 1 {
		c.checkView(t, n)
	}
	for tasks := range 3 {
		c.restore(t, c.batch, tasks+1)
		c.checkSum(t, "fresh", 11)
		c.checkSum(t, "set", 101)
	}
}

// mergesOnceByRescale goes from 2 to 3 to 1 tasks with merges and deletions in the
// chain: each file is listed by several tasks and counts once for each group.
func mergesOnceByRescale(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	c.apply(t, append(everyMerged("a", 1), everyMerged("b", 1)...)...)
	want := int64(1)
	for round, tasks := range []int{3, 1, 2, 8, 3, 1} {
		c.restore(t, c.batch, tasks)
		c.checkSum(t, "a", want)
		c.apply(t, append(everyMerged("a", 10), everySum("b", "-")...)...)
		c.apply(t, append(everyMerged("a", 100), everyMerged("b", int64(round))...)...)
		want += 110
		c.checkSum(t, "a", want)
		c.checkSum(t, "b", int64(round))
		c.checkView(t, c.batch)
		c.checkView(t, c.batch-1)
		c.checkView(t, c.batch-2)
	}
	c.restore(t, c.batch, 2)
	c.checkSum(t, "a", want)
}

// mergesOnceByRetries interrupts an Apply at each step, by a cancelled context and by a
// panic, and applies the cut again: it counts once.
func mergesOnceByRetries(t *testing.T, c *cluster) {
	steps := []string{"sst.before", "sst.after", "ingest.before", "ingest.after"}
	interrupt := func(string) {}
	c.hook = func(step string) { interrupt(step) }
	c.restore(t, 0, 1)
	want := int64(0)
	for i, what := range slices.Concat(steps, steps) {
		ctx, cancel := context.WithCancel(t.Context())
		interrupt = func(step string) {
			if step != what {
				return
			}
			if cancel(); i >= len(steps) {
				panic(step)
			}
		}
		cut := &txn.Cut{Batch: c.batch + 1, Records: everyMerged("a", 1)}
		for range 2 {
			func() {
				defer func() { _ = recover() }()
				// Whether this one succeeds does not matter.
				_, _ = c.tasks[0].Apply(ctx, cut)
			}()
		}
		interrupt = func(string) {}
		c.apply(t, cut.Records...)
		want++
		c.checkSum(t, "a", want)
		c.checkView(t, c.batch)
	}
	for tasks := range 3 {
		c.restore(t, c.batch, tasks+1)
		c.checkSum(t, "a", want)
	}
}

// mergesInBases merges until the chains begin with a new base, twice.
func mergesInBases(t *testing.T, c *cluster) {
	const patience = time.Minute
	c.restore(t, 0, 2)
	want := int64(0)
	for range 2 {
		old := slices.Concat(c.files...)
		rebased := func(files []checkpoint.FileRef) bool {
			return len(files) > 0 && files[0].Base && !slices.Contains(old, files[0])
		}
		for begun := time.Now(); !rebased(c.files[0]) || !rebased(c.files[1]); {
			if time.Since(begun) > patience {
				t.Fatalf("no new base after %d batches; the chains are %+v", c.batch, c.files)
			}
			want++
			c.apply(t, append(everyMerged("a", 1), everyMerged(fmt.Sprint("b", c.batch%3), int64(c.batch))...)...)
			for i := range c.tasks {
				c.tasks[i].Release(c.batch - 1)
			}
		}
		c.views = map[checkpoint.BatchID]map[string]string{c.batch: maps.Clone(c.model)}
		c.checkView(t, c.batch)
		for _, tasks := range []int{3, 1, 2} {
			c.restore(t, c.batch, tasks)
			c.checkSum(t, "a", want)
		}
	}
}

// getIsExact reads while cuts are applied that each add 1: the sum must be that of the
// batch that Get says it is of, no older than what had been applied.
func getIsExact(t *testing.T, c *cluster) {
	const batches = 30
	c.restore(t, 0, 1)
	c.apply(t, everyMerged("a", 1)...)
	s, key := c.tasks[0], everyMerged("a", 0)[3].Key
	var mu sync.Mutex
	applied := c.batch
	newest := func() checkpoint.BatchID {
		mu.Lock()
		defer mu.Unlock()
		return applied
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for last := checkpoint.BatchID(0); last < batches; {
			least := newest()
			value, asOf, err := s.Get(key)
			if err != nil || asOf < max(least, last) || string(value) != string(number(sum, int64(asOf))) {
				t.Errorf("get gives %x as of %d, %v; batch %d had been applied", value, asOf, err, least)
				return
			}
			last = asOf
		}
	})
	for c.batch < batches {
		c.apply(t, everyMerged("a", 1)...)
		mu.Lock()
		applied = c.batch
		mu.Unlock()
		s.Release(c.batch)
	}
	reader.Wait()
}

// badMerges demands that what cannot be merged is refused, and that a merge onto
// something else is an error, at the latest when the key is read.
func badMerges(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	for _, value := range [][]byte{nil, {sum}, number(sum, 1)[:8], append(number(sum, 1), 0), number(0, 1), number(4, 1)} {
		bad := merged(1, sum, "a", 1)
		bad.Value = value
		if _, err := c.tasks[0].Apply(t.Context(), &txn.Cut{Batch: 1, Records: []txn.Record{bad}}); !txn.IsFatal(err) {
			t.Errorf("%x is to be merged: %v", value, err)
		}
	}
	both := merged(1, sum, "a", 1)
	both.Delete = true
	if _, err := c.tasks[0].Apply(t.Context(), &txn.Cut{Batch: 1, Records: []txn.Record{both}}); !txn.IsFatal(err) {
		t.Errorf("a deletion that is to be merged: %v", err)
	}
	for i, value := range []string{"", "no aggregate", string(number(most, 1))} {
		c.restore(t, 0, 1)
		at := record(1, aggregates+sum, "a", value)
		c.apply(t, at, record(2, aggregates+sum, "other", string(number(sum, 1))))
		s, cut := c.tasks[0], &txn.Cut{Batch: 2, Records: []txn.Record{merged(1, sum, "a", int64(i))}}
		if _, err := s.Apply(t.Context(), cut); err != nil {
			continue
		}
		if got, _, err := s.Get(at.Key); err == nil {
			t.Errorf("%q with a number merged is %q", value, got)
		}
		if err := s.Range(nil, nil, func(_, _ []byte) error { return nil }); err == nil {
			t.Errorf("%q with a number merged is in a range", value)
		}
		v, err := s.View(2)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Scan("sum", func(_, _ []byte) error { return nil }); err == nil {
			t.Errorf("%q with a number merged is in a view", value)
		}
	}
}
