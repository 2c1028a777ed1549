// Package spouttest checks that a spout keeps the promises that exactly once rests
// on. The author of a spout runs it from a test:
//
//	func TestSpout(t *testing.T) {
//		spouttest.Run(t, func(t testing.TB) txn.Spout { return mine.NewSpout(…) })
//	}
package spouttest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// idleMax is how many times in a row a spout may be idle before its input counts as
// read for now.
const idleMax = 100

// Run checks a spout. open returns a new instance over the same input each time;
// Run calls its Open and Close. The input must not change meanwhile; it should have
// several partitions and, in each, more tuples than one NextTuple emits.
func Run(t *testing.T, open func(t testing.TB) txn.Spout) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(suite{open}, t) })
	}
}

type suite struct{ open func(testing.TB) txn.Spout }

var checks = []struct {
	name string
	run  func(suite, testing.TB)
}{
	{"Partitions", suite.partitions},
	{"Replay", suite.replay},
	{"Positions", suite.positions},
	{"End", suite.end},
	{"Tasks", suite.tasks},
	{"Refusal", suite.refusal},
}

// task is an instance that is being read, as task index of count.
type task struct {
	t     testing.TB
	spout txn.Spout
	out   *txn.Collector
	got   []string // the tuples
	batch txn.BatchID
}

func (s suite) start(t testing.TB) *task {
	t.Helper()
	k := &task{t: t, spout: s.open(t)}
	if o, ok := k.spout.(txn.Opener); ok {
		ctx := txn.NewContext(t.Context(), txn.Context{Topology: "spouttest", Component: "spout", TaskCount: 1, Generation: 1}, func() {})
		if err := o.Open(ctx); err != nil {
			t.Fatalf("open: %v", err)
		}
	}
	if c, ok := k.spout.(txn.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	var d txn.OutputDeclarer
	declarer, ok := k.spout.(txn.Declarer)
	if !ok {
		t.Fatal("the spout declares no output fields")
	}
	declarer.DeclareOutputFields(&d)
	streams, errs := d.Streams()
	if len(errs) > 0 {
		t.Fatalf("output fields: %v", errs)
	}
	k.out = txn.NewTestCollector(streams, func(stream string, vals []tuple.Value) {
		text := stream
		for _, v := range vals {
			if s, ok := v.Text(); ok {
				text += fmt.Sprintf(" %q", s)
			} else {
				text += fmt.Sprintf(" %s:%v", v.Kind(), v.Any())
			}
		}
		k.got = append(k.got, text)
	})
	return k
}

func (k *task) list() []txn.PartitionID {
	k.t.Helper()
	ids, err := k.spout.Partitions(context.Background())
	if err != nil {
		k.t.Fatalf("partitions: %v", err)
	}
	ids = slices.Sorted(slices.Values(ids))
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		k.t.Fatalf("partitions lists one twice: %q", ids)
	}
	return ids
}

func (k *task) seek(p txn.PartitionID, pos []byte) {
	k.t.Helper()
	if err := k.spout.Seek(p, slices.Clone(pos)); err != nil {
		k.t.Fatalf("seek %q to %x: %v", p, pos, err)
	}
}

func (k *task) finishBatch() []txn.Position {
	k.t.Helper()
	k.batch++
	positions, err := k.spout.FinishBatch(k.batch)
	if err != nil {
		k.t.Fatalf("finish batch %d: %v", k.batch, err)
	}
	return positions
}

// next reports whether there may be more.
func (k *task) next() bool {
	k.t.Helper()
	for range idleMax {
		switch status, err := k.spout.NextTuple(k.out); {
		case err != nil:
			k.t.Fatalf("next tuple: %v", err)
		case status == txn.Emitted:
			return true
		case status == txn.Finished:
			return false
		}
	}
	return false
}

// mark is a position and the number of tuples before it.
type mark struct {
	pos    []byte
	tuples int
}

// read reads to the end and returns a mark for each batch in which the partition
// moved, one batch a NextTuple.
func (k *task) read(p txn.PartitionID) []mark {
	k.t.Helper()
	var marks []mark
	for more := true; more; {
		more = k.next()
		for _, m := range k.finishBatch() {
			if m.Partition != p {
				k.t.Fatalf("partition %q moved, only %q is read", m.Partition, p)
			}
			marks = append(marks, mark{slices.Clone(m.Data), len(k.got)})
		}
	}
	return marks
}

func (s suite) partitions(t testing.TB) {
	k := s.start(t)
	first := k.list()
	if len(first) == 0 {
		t.Fatal("the input has no partition: there is nothing to check")
	}
	if again := k.list(); !slices.Equal(first, again) {
		t.Errorf("asked again, partitions are %q, were %q", again, first)
	}
	if other := s.start(t).list(); !slices.Equal(first, other) {
		t.Errorf("another instance lists %q, the first %q", other, first)
	}
}

// replay: from any position, the rest comes as it came before.
func (s suite) replay(t testing.TB) {
	total := 0
	for _, p := range s.start(t).list() {
		k := s.start(t)
		k.seek(p, nil)
		marks := k.read(p)
		total += len(k.got)
		const most = 64 // positions tried
		for i := 0; i < len(marks); i += 1 + len(marks)/most {
			m := marks[i]
			again := s.start(t)
			again.seek(p, m.pos)
			again.read(p)
			if at, same := firstDifference(again.got, k.got[m.tuples:]); !same {
				t.Errorf("partition %q from position %x: tuple %d behind it differs from the first time", p, m.pos, at)
			}
		}
	}
	if total == 0 {
		t.Error("the input has no tuple: there is nothing to check")
	}
}

func firstDifference(a, b []string) (at int, same bool) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i, false
		}
	}
	return min(len(a), len(b)), len(a) == len(b)
}

// positions: only what moved is returned, and each position once; reading in other
// batches ends at the same position.
func (s suite) positions(t testing.TB) {
	for _, p := range s.start(t).list() {
		k := s.start(t)
		k.seek(p, nil)
		marks := k.read(p)
		if more := k.finishBatch(); len(more) > 0 {
			t.Errorf("partition %q: positions come again in an empty batch: %v", p, more)
		}
		if len(marks) == 0 {
			if len(k.got) > 0 {
				t.Errorf("partition %q: %d tuples but no position", p, len(k.got))
			}
			continue
		}
		end := marks[len(marks)-1].pos
		whole := s.start(t)
		whole.seek(p, nil)
		for whole.next() {
			continue
		}
		for _, m := range whole.finishBatch() {
			if m.Partition == p && !slices.Equal(m.Data, end) {
				t.Errorf("partition %q: read in one batch it ends at %x, in many at %x", p, m.Data, end)
			}
		}
		rest := s.start(t)
		rest.seek(p, end)
		if moved := rest.read(p); len(rest.got) > 0 || len(moved) > 0 && !slices.Equal(moved[len(moved)-1].pos, end) {
			t.Errorf("partition %q: at its end there are %d tuples and positions %v", p, len(rest.got), moved)
		}
	}
}

// end: what is finished stays finished, and a task without partitions is finished or
// idle from the beginning.
func (s suite) end(t testing.TB) {
	k := s.start(t)
	for _, p := range k.list() {
		k.seek(p, nil)
	}
	for k.next() {
		continue
	}
	k.finishBatch()
	tuples := len(k.got)
	for range 3 {
		if k.next() || len(k.got) != tuples {
			t.Fatal("NextTuple goes on after the end")
		}
		if moved := k.finishBatch(); len(moved) > 0 {
			t.Fatalf("positions moved after the end: %v", moved)
		}
	}
	none := s.start(t)
	none.list()
	if none.next() || len(none.got) > 0 {
		t.Error("a task without partitions emits")
	}
}

// tasks: the tasks of a component read everything once between them.
func (s suite) tasks(t testing.TB) {
	var want []string
	for _, count := range []int{1, 2, 3} {
		var got []string
		for index := range count {
			k := s.start(t)
			for _, p := range k.list() {
				if txn.PartitionTask(p, count) == index {
					k.seek(p, nil)
				}
			}
			for k.next() {
				continue
			}
			got = append(got, k.got...)
		}
		slices.Sort(got)
		if count == 1 {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("%d tasks read %d tuples, or others than the %d of one task", count, len(got), len(want))
		}
	}
}

// refusal: bytes that are no position are an error.
func (s suite) refusal(t testing.TB) {
	k := s.start(t)
	for _, p := range k.list() {
		for _, bad := range [][]byte{{}, {0xff}, make([]byte, 1000)} {
			if err := k.spout.Seek(p, bad); err == nil {
				t.Errorf("seek %q accepts %d bytes that are no position", p, len(bad))
			}
		}
	}
}
