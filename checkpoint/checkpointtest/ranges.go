package checkpointtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/txn"
)

// checkRange compares a range of one task with the model.
func (c *cluster) checkRange(t tb, task int, from, to []byte) {
	t.Helper()
	var got, want []string
	err := c.tasks[task].Range(from, to, func(key, value []byte) error {
		got = append(got, fmt.Sprintf("%x=%q", key, value))
		return nil
	})
	if err != nil {
		t.Fatalf("range: %v", err)
	}
	groupFrom, groupTo := groupRange(task, len(c.tasks))
	for _, k := range slices.Sorted(maps.Keys(c.model)) {
		if g := int(k[1]); g >= groupFrom && g < groupTo && k >= string(from) && (to == nil || k < string(to)) {
			want = append(want, fmt.Sprintf("%x=%q", k, c.model[k]))
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("range from %x to %x of task %d gives\n%q but should give\n%q", from, to, task, got, want)
	}
}

func ranges(t *testing.T, outer *cluster) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(outer.store, outer.opener)
		c.generation = outer.generation
		defer func() { outer.generation = c.generation; c.close(t) }()
		c.restore(t, 0, rapid.IntRange(1, 3).Draw(t, "tasks"))
		bound := rapid.Custom(func(t *rapid.T) []byte { return drawRecord(t).Key })
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			c.apply(t, rapid.SliceOfNDistinct(rapid.Custom(drawRecord), 0, 12, func(r txn.Record) string { return string(r.Key) }).Draw(t, "changes")...)
			for task := range c.tasks {
				c.checkRange(t, task, nil, nil)
				c.checkRange(t, task, bound.Draw(t, "from"), nil)
				c.checkRange(t, task, bound.Draw(t, "from"), bound.Draw(t, "to"))
			}
		}
	})
	outer.restore(t, 0, 1)
	outer.apply(t, every("a", "1")...)
	stop := errors.New("stop")
	calls := 0
	if err := outer.tasks[0].Range(nil, nil, func(_, _ []byte) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("a range that was stopped: %v after %d calls", err, calls)
	}
}

// rangeDuringApply demands that a range is of one moment, whatever is applied meanwhile.
func rangeDuringApply(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "0")...)
	s := c.tasks[0]
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for last := ""; ; {
			var values []string
			err := s.Range(nil, nil, func(_, value []byte) error { values = append(values, string(value)); return nil })
			if err != nil || len(values) != keyGroups || values[0] < last || len(slices.Compact(slices.Clone(values))) != 1 {
				t.Errorf("a range gives %q after %q, %v", values, last, err)
				return
			}
			last = values[0]
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 9 {
		c.apply(t, every("a", fmt.Sprint(i+1))...)
	}
	close(stop)
	reader.Wait()
}

// expiredLeaveBases has a state expire by halves: a base holds no more than the rest,
// and so does what is restored from it.
func expiredLeaveBases(t *testing.T, c *cluster) {
	const patience = time.Minute
	var clock atomic.Int64
	c.now = clock.Load
	expiring := func(key string, at uint64) []txn.Record {
		var all []txn.Record
		for g := range keyGroups {
			r := record(g, 2, key, "")
			r.Value = append(binary.BigEndian.AppendUint64([]byte{1}, at), key...)
			all = append(all, r)
		}
		return all
	}
	c.restore(t, 0, 1)
	c.apply(t, append(expiring("early", 100), expiring("late", 200)...)...)
	// A value of another kind is not taken for an expired one.
	c.apply(t, every("other kind", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")...)
	clock.Store(100)
	for begun := time.Now(); len(c.files[0]) == 0 || !c.files[0][0].Base; {
		if time.Since(begun) > patience {
			t.Fatalf("no base after %d batches", c.batch)
		}
		c.apply(t, every("filler", fmt.Sprint(c.batch))...)
		c.tasks[0].Release(c.batch - 1)
	}
	maps.DeleteFunc(c.model, func(key, _ string) bool { return strings.HasSuffix(key, "early") })
	c.saved[c.batch] = saved{slices.Clone(c.files), maps.Clone(c.model)}
	c.restore(t, c.batch, 2)
	for task := range c.tasks {
		c.checkRange(t, task, nil, nil)
	}
	n := 0
	for key := range c.model {
		if bytes.HasSuffix([]byte(key), []byte("late")) {
			n++
		}
	}
	if n != keyGroups {
		t.Errorf("%d rows that have not expired are left, want %d", n, keyGroups)
	}
}

// shrunkIsWrittenAnew says of a cut that much has been deleted: a base without it
// follows, however small the chain is.
func shrunkIsWrittenAnew(t *testing.T, c *cluster) {
	const patience = time.Minute
	c.restore(t, 0, 1)
	c.apply(t, append(every("a", strings.Repeat("x", 1000)), every("b", "1")...)...)
	c.batch++
	cut := &txn.Cut{Batch: c.batch, Records: every("a", "-"), Shrunk: true}
	if _, err := c.tasks[0].Apply(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(c.model, func(key, _ string) bool { return strings.HasSuffix(key, "a") })
	old := c.files[0][0]
	for begun := time.Now(); slices.Contains(c.files[0], old); c.tasks[0].Release(c.batch - 1) {
		if time.Since(begun) > patience {
			t.Fatalf("no new base after %d batches; the chain is %+v", c.batch, c.files[0])
		}
		c.apply(t)
	}
	if n := len(c.files[0]); n > 2 {
		t.Errorf("the chain is %+v", c.files[0])
	}
	c.restore(t, c.batch, 2)
}
