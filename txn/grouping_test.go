package txn

import (
	"fmt"
	"testing"

	"github.com/isobar-io/isobar/tuple"
)

// delivered emits n tuples with keys of k kinds and returns, by task, how many of each
// key arrived.
func delivered(t *testing.T, g Grouping, tasks, n, k int) []map[string]int {
	t.Helper()
	s := &tuple.Stream{Component: "c", ID: tuple.DefaultStream, Fields: tuple.Fields{"key", "n"}}
	got := make([]map[string]int, tasks)
	e := Edge{Stream: s, Grouping: g, Groups: 256}
	if g.Keyed() {
		e.Fields = []int{0}
	}
	for i := range tasks {
		got[i] = map[string]int{}
		frame := &tuple.Frame{}
		e.Targets = append(e.Targets, i+1)
		e.Outlets = append(e.Outlets, NewOutlet(frame, 16, func(f *tuple.Frame) (*tuple.Frame, int) {
			for r := range f.Len() {
				got[i][f.Row(r)[0].Str()]++
			}
			f.Reset()
			return f, 16
		}))
	}
	c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
	for i := range n {
		c.Emit2(tuple.String(fmt.Sprint("k", i%k)), tuple.Int(i))
	}
	c.Flush()
	return got
}

func load(m map[string]int) (n int) {
	for _, c := range m {
		n += c
	}
	return n
}

func TestGroupingsSpreadTheirTuples(t *testing.T) {
	for name, c := range map[string]struct {
		g    Grouping
		keys int
		off  float64 // how far a task may be from its share
	}{
		"shuffle":          {Shuffle, 3, 0.001},
		"local or shuffle": {LocalOrShuffle, 3, 0.001},
		"none":             {None, 3, 0.05},
		"fields":           {ByFields, 10_000, 0.15},
		"partial key":      {PartialKey, 10_000, 0.02},
	} {
		const tasks, n = 5, 50_000
		for i, got := range delivered(t, c.g, tasks, n, c.keys) {
			if share := float64(load(got)) * tasks / n; share < 1-c.off || share > 1+c.off {
				t.Errorf("%s: task %d got %.3f of its share", name, i, share)
			}
		}
	}
}

func TestKeysStayWithTheirTasks(t *testing.T) {
	for g, most := range map[Grouping]int{ByFields: 1, PartialKey: 2} {
		first, again := delivered(t, g, 4, 4000, 40), delivered(t, g, 4, 4000, 40)
		tasks := map[string]int{}
		for i := range first {
			for k := range first[i] {
				tasks[k]++
				if again[i][k] == 0 {
					t.Errorf("grouping %d: key %s went to task %d once and not again", g, k, i)
				}
			}
		}
		for k, n := range tasks {
			if n > most {
				t.Errorf("grouping %d: key %s went to %d tasks", g, k, n)
			}
		}
	}
}

func TestPartialKeySpreadsOneHotKeyOverTwoTasks(t *testing.T) {
	busy := 0
	for _, got := range delivered(t, PartialKey, 4, 1000, 1) {
		switch n := load(got); n {
		case 0:
		case 500:
			busy++
		default:
			t.Errorf("a task got %d tuples of one key", n)
		}
	}
	if busy != 2 {
		t.Errorf("%d tasks got the key", busy)
	}
}
