package txn

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// target is a bolt that a collector emits to: it keeps all tuples and marks of each
// of its tasks.
type target struct {
	rows  [][]string // by task
	hash  [][]uint64
	marks [][]tuple.Mark
	sent  []uint64 // tuples by task since its last mark
}

func (g *target) outlet(i, limit int) *Outlet {
	free := &tuple.Frame{}
	return NewOutlet(&tuple.Frame{}, limit, func(f *tuple.Frame) (*tuple.Frame, int) {
		for r := range f.Len() {
			g.rows[i] = append(g.rows[i], fmt.Sprint(f.Stream.ID, f.Row(r)))
			if f.Keyed() {
				g.hash[i] = append(g.hash[i], f.Hashes()[r])
			}
		}
		g.sent[i] += uint64(f.Len())
		if f.Mark.Kind != tuple.MarkNone {
			g.marks[i] = append(g.marks[i], f.Mark)
			if f.Mark.Count != g.sent[i] {
				panic(fmt.Sprintf("task %d: the mark announces %d tuples, %d were sent", i, f.Mark.Count, g.sent[i]))
			}
			g.sent[i] = 0
		}
		f.Poison()
		f.Reset()
		f, free = free, f
		return f, limit
	})
}

// newTarget returns a bolt and the edge to it.
func newTarget(s *tuple.Stream, g Grouping, tasks, groups, limit int, fields ...int) (*target, Edge) {
	to := &target{rows: make([][]string, tasks), hash: make([][]uint64, tasks), marks: make([][]tuple.Mark, tasks), sent: make([]uint64, tasks)}
	e := Edge{Stream: s, Grouping: g, Fields: fields, Groups: groups}
	for i := range tasks {
		e.Outlets = append(e.Outlets, to.outlet(i, limit))
	}
	return to, e
}

func stream(id string, fields ...string) *tuple.Stream {
	return &tuple.Stream{Component: "from", ID: id, Fields: fields}
}

func TestShuffleIsEvenAndInTurn(t *testing.T) {
	for _, tasks := range []int{1, 3, 4} {
		s := stream(tuple.DefaultStream, "n")
		to, e := newTarget(s, Shuffle, tasks, 16, 5)
		e.Next = 1 % tasks
		c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
		const rounds = 7
		for i := range rounds * tasks {
			c.Emit(tuple.Int(i))
			if i%4 == 0 {
				c.Flush() // must not change whose turn it is
			}
		}
		c.Flush()
		for task, rows := range to.rows {
			var want []string
			for round := range rounds {
				want = append(want, fmt.Sprintf("default[%d]", round*tasks+(task-e.Next+tasks)%tasks))
			}
			if !slices.Equal(rows, want) {
				t.Errorf("task %d of %d got %q, want %q", task, tasks, rows, want)
			}
		}
		if c.Emitted() != uint64(rounds*tasks) {
			t.Errorf("%d emitted", c.Emitted())
		}
	}
}

// anyKeyValue draws values of every kind that can be a key, the awkward ones often.
func anyKeyValue() *rapid.Generator[tuple.Value] {
	return rapid.OneOf(
		rapid.SampledFrom([]tuple.Value{
			{}, tuple.String(""), tuple.Bytes(nil), tuple.Bytes([]byte{}), tuple.Int(-1), tuple.Int64(math.MinInt64), tuple.Uint64(math.MaxUint64),
			tuple.Float64(math.Copysign(0, -1)), tuple.Float64(math.NaN()), tuple.Float64(math.Inf(-1)), tuple.Bool(false), tuple.Bool(true),
			tuple.String("\xff\xfe\x00"), tuple.Bytes([]byte("\xc3\x28")), tuple.Time(time.Unix(0, -1)),
		}),
		rapid.Map(rapid.Int64(), tuple.Int64),
		rapid.Map(rapid.Uint64(), tuple.Uint64),
		rapid.Map(rapid.Float64(), tuple.Float64),
		rapid.Map(rapid.String(), tuple.String),
		rapid.Map(rapid.SliceOf(rapid.Byte()), tuple.Bytes),
	)
}

// twin returns a value that is the same key as v in another form, if there is one.
func twin(v tuple.Value) tuple.Value {
	switch v.Kind() {
	case tuple.KindString:
		return tuple.Bytes([]byte(v.Str()))
	case tuple.KindBytes:
		return tuple.String(v.Str())
	case tuple.KindFloat64:
		if v.Float64() == 0 {
			return tuple.Float64(-v.Float64())
		}
	}
	return v
}

// The sender groups by the carried hash, the state of the receiver by the key that
// it makes of the tuple: both must come to the same task, whichever emit is used.
func TestGroupingIsTheSameWhereverItIsComputed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := rapid.IntRange(1, 8).Draw(t, "tasks")
		groups := rapid.IntRange(tasks, 300).Draw(t, "groups")
		key := rapid.SliceOfN(anyKeyValue(), 1, 3).Draw(t, "key")
		width := len(key) + rapid.IntRange(0, 2).Draw(t, "more")
		place := rapid.Permutation(seq(width)).Draw(t, "fields")[:len(key)]
		vals := make([]tuple.Value, width)
		other := make([]tuple.Value, width)
		names := make([]string, width)
		for i := range width {
			vals[i], other[i], names[i] = tuple.Int(i), tuple.String("not part of the key"), fmt.Sprint("f", i)
		}
		for i, p := range place {
			vals[p], other[p] = key[i], twin(key[i])
		}
		s, named := stream(tuple.DefaultStream, names...), stream("named", names...)
		to, e := newTarget(s, ByFields, tasks, groups, 4, place...)
		n := Edge{Stream: named, Grouping: ByFields, Fields: place, Groups: groups, Outlets: e.Outlets}
		c := NewCollector([]*tuple.Stream{named, s}, []Edge{e, n}, e.Outlets)
		c.Emit(vals...)
		c.Emit(other...)
		c.EmitTo("named", vals...)
		sent := 3
		switch width {
		case 1:
			c.Emit1(vals[0])
			sent++
		case 2:
			c.Emit2(other[0], other[1])
			sent++
		}
		c.Flush()

		h, ok := tuple.HashKey(key)
		if !ok {
			t.Fatalf("key %v has no hash", key)
		}
		group := tuple.KeyGroup(h, groups)
		owner := tuple.TaskOfGroup(group, groups, tasks)
		for task := range tasks {
			want := 0
			if task == owner {
				want = sent
			}
			if len(to.rows[task]) != want {
				t.Fatalf("key %v, owned by task %d: task %d of %d got %q", key, owner, task, tasks, to.rows[task])
			}
		}
		for _, carried := range to.hash[owner] {
			if carried != h {
				t.Fatalf("key %v: carried hash %x, want %x", key, carried, h)
			}
		}
		from, until := tuple.GroupRange(owner, groups, tasks)
		st := NewState(StateConfig{Component: "to", Groups: groups, From: from, To: until, Backend: newMapBackend()})
		sum := NewAggregate(st, "n", Sum())
		for _, select_ := range []func() error{
			func() error { return st.Select(key, h) },
			func() error { return st.SetKey(key...) },
			func() error { return st.SetKey(twins(key)...) },
		} {
			if err := select_(); err != nil {
				t.Fatalf("key %v: %v", key, err)
			}
			if err := sum.Add(1); err != nil {
				t.Fatal(err)
			}
		}
		if v, _, _ := sum.Get(); v != 3 {
			t.Fatalf("key %v is %d keys", key, 4-v)
		}
	})
}

func twins(key []tuple.Value) []tuple.Value {
	out := slices.Clone(key)
	for i := range out {
		out[i] = twin(out[i])
	}
	return out
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func TestEveryKeyGroupHasOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, 600).Draw(t, "groups")
		tasks := rapid.IntRange(1, groups).Draw(t, "tasks")
		next := 0
		for task := range tasks {
			from, to := tuple.GroupRange(task, groups, tasks)
			if from != next || to <= from {
				t.Fatalf("task %d owns [%d,%d), the one before ends at %d", task, from, to, next)
			}
			next = to
			for g := from; g < to; g++ {
				if got := tuple.TaskOfGroup(g, groups, tasks); got != task {
					t.Fatalf("group %d belongs to task %d and is sent to %d", g, task, got)
				}
			}
		}
		if next != groups {
			t.Fatalf("groups %d to %d have no owner", next, groups-1)
		}
	})
}

func TestAllGlobalAndSeveralSubscribers(t *testing.T) {
	s, side := stream(tuple.DefaultStream, "a", "b"), stream("side", "a")
	all, toAll := newTarget(s, All, 3, 16, 2)
	global, toGlobal := newTarget(s, Global, 3, 16, 2)
	both, fromSide := newTarget(side, Shuffle, 1, 16, 2)
	fromMain := Edge{Stream: s, Grouping: Shuffle, Outlets: fromSide.Outlets}
	outlets := slices.Concat(toAll.Outlets, toGlobal.Outlets, fromSide.Outlets)
	c := NewCollector([]*tuple.Stream{side, s}, []Edge{toAll, toGlobal, fromSide, fromMain}, outlets)
	for i := range 5 {
		c.Emit2(tuple.Int(i), tuple.Int(-i))
		c.EmitTo("side", tuple.Int(i))
	}
	c.Mark(tuple.Mark{Kind: tuple.MarkBarrier, Batch: 1})
	pairs := []string{"default[0 0]", "default[1 -1]", "default[2 -2]", "default[3 -3]", "default[4 -4]"}
	for task, rows := range all.rows {
		if !slices.Equal(rows, pairs) {
			t.Errorf("all grouping: task %d got %q", task, rows)
		}
	}
	if !slices.Equal(global.rows[0], pairs) || global.rows[1] != nil || global.rows[2] != nil {
		t.Errorf("global grouping: %q", global.rows)
	}
	want := []string{"default[0 0]", "side[0]", "default[1 -1]", "side[1]", "default[2 -2]", "side[2]", "default[3 -3]", "side[3]", "default[4 -4]", "side[4]"}
	if !slices.Equal(both.rows[0], want) {
		t.Errorf("two streams on one channel must stay in order: %q", both.rows[0])
	}
}

func TestOneStreamGroupedInTwoWaysOnOneChannel(t *testing.T) {
	s := stream(tuple.DefaultStream, "k")
	to, byKey := newTarget(s, ByFields, 1, 16, 8, 0)
	c := NewCollector([]*tuple.Stream{s}, []Edge{byKey, {Stream: s, Grouping: Shuffle, Outlets: byKey.Outlets}}, byKey.Outlets)
	for i := range 5 {
		c.Emit1(tuple.Int(i))
	}
	c.Flush()
	if len(to.rows[0]) != 10 || len(to.hash[0]) != 5 {
		t.Errorf("%d tuples, %d with a hash", len(to.rows[0]), len(to.hash[0]))
	}
	for i, h := range to.hash[0] {
		if want, _ := tuple.Int(i).Hash(); h != want {
			t.Errorf("tuple %d carries the hash %x, want %x", i, h, want)
		}
	}
}

func TestMarksAnnounceWhatWasSentOnTheirChannel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, side := stream(tuple.DefaultStream, "k", "n"), stream("side", "k")
		tasks := rapid.IntRange(1, 4).Draw(t, "tasks")
		limit := rapid.IntRange(1, 9).Draw(t, "limit")
		to, e := newTarget(s, ByFields, tasks, 16, limit, 0)
		e2 := Edge{Stream: side, Grouping: Shuffle, Outlets: e.Outlets}
		e3 := Edge{Stream: side, Grouping: All, Outlets: e.Outlets}
		c := NewCollector([]*tuple.Stream{s, side}, []Edge{e, e2, e3}, e.Outlets)
		batches := rapid.IntRange(1, 4).Draw(t, "batches")
		announced, emitted := uint64(0), 0
		for n := range batches {
			for range rapid.IntRange(0, 30).Draw(t, "tuples") {
				switch rapid.IntRange(0, 4).Draw(t, "emit") {
				case 0, 1:
					c.Emit2(tuple.Int(rapid.Int().Draw(t, "k")), tuple.Int(n))
					emitted++
				case 2, 3:
					c.EmitTo("side", tuple.Bytes([]byte("x")))
					emitted += 1 + tasks
				case 4:
					c.Flush()
				}
			}
			c.Mark(tuple.Mark{Kind: tuple.MarkBarrier, Batch: BatchID(n + 1)})
		}
		for task, marks := range to.marks { // outlet has checked each Count
			if len(marks) != batches {
				t.Fatalf("task %d got %d marks of %d", task, len(marks), batches)
			}
			for n, m := range marks {
				if m.Batch != BatchID(n+1) || m.Kind != tuple.MarkBarrier {
					t.Fatalf("task %d: mark %d is %v", task, n, m)
				}
				announced += m.Count
			}
		}
		if announced != uint64(emitted) {
			t.Fatalf("%d tuples announced, %d emitted", announced, emitted)
		}
	})
}

func TestWrongEmitsPanicWithWhatIsDeclared(t *testing.T) {
	s, side := stream(tuple.DefaultStream, "word", "n"), stream("side", "a", "b", "c")
	_, e := newTarget(s, ByFields, 2, 16, 8, 0, 1)
	_, one := newTarget(s, ByFields, 2, 16, 8, 1)
	object := tuple.Any(struct{ X int }{4711})
	c := NewCollector([]*tuple.Stream{side, s}, []Edge{e}, e.Outlets)
	wantPanic(t, func() { c.Emit1(tuple.Int(1)) }, "emit 1 values", `stream "default"`, "2 fields", `["word" "n"]`)
	wantPanic(t, func() { c.Emit() }, "emit 0 values")
	wantPanic(t, func() { c.EmitTo("side", tuple.Int(1)) }, "emit 1 values", `stream "side"`, "3 fields", `["a" "b" "c"]`)
	wantPanic(t, func() { c.EmitTo("sied", tuple.Int(1)) }, `stream "sied"`, "does not declare")
	wantPanic(t, func() { c.Emit2(tuple.String("w"), object) }, `stream "default"`, "4711", "an object cannot be a key")
	wantPanic(t, func() { NewCollector([]*tuple.Stream{s}, []Edge{one}, one.Outlets).Emit2(tuple.String("w"), object) }, "4711")
	single := stream(tuple.DefaultStream, "o")
	_, key := newTarget(single, ByFields, 2, 16, 8, 0)
	wantPanic(t, func() { NewCollector([]*tuple.Stream{single}, []Edge{key}, key.Outlets).Emit1(object) }, "4711")
	none := NewCollector([]*tuple.Stream{side}, nil, nil)
	for _, emit := range []func(){func() { none.Emit1(object) }, func() { none.Emit2(object, object) }, func() { none.Emit(object, object, object) }} {
		wantPanic(t, emit, "default stream", "DeclareOutputFields")
	}
}

func TestTestCollectorShowsEveryTuple(t *testing.T) {
	var got []string
	c := NewTestCollector([]*tuple.Stream{stream("side", "a"), stream(tuple.DefaultStream, "a")}, func(s string, vals []tuple.Value) {
		got = append(got, fmt.Sprint(s, vals))
	})
	c.Emit1(tuple.Int(1))
	c.Emit(tuple.Int(2))
	c.EmitTo("side", tuple.Int(3))
	if want := []string{"default[1]", "default[2]", "side[3]"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestEmitCostsNoAllocation(t *testing.T) {
	frames := func(limit int) *Outlet {
		a, b := &tuple.Frame{}, &tuple.Frame{}
		return NewOutlet(a, limit, func(f *tuple.Frame) (*tuple.Frame, int) {
			f.Reset()
			a, b = b, f
			return a, limit
		})
	}
	word, raw := tuple.String("word"), tuple.Bytes([]byte("some bytes that must be copied"))
	for _, g := range []Grouping{Shuffle, ByFields, All, Global} {
		for width, emit := range map[int]func(*Collector){
			1: func(c *Collector) { c.Emit1(word); c.Emit1(raw); c.Emit(raw) },
			2: func(c *Collector) { c.Emit2(word, raw); c.Emit(raw, word) },
			3: func(c *Collector) { c.Emit(word, raw, raw); c.EmitTo(tuple.DefaultStream, raw, word, raw) },
		} {
			s := stream(tuple.DefaultStream, []string{"a", "b", "c"}[:width]...)
			e := Edge{Stream: s, Grouping: g, Fields: seq(width), Groups: 16}
			for range 4 {
				e.Outlets = append(e.Outlets, frames(64))
			}
			c := NewCollector([]*tuple.Stream{s}, []Edge{e}, e.Outlets)
			for range 2000 { // until every frame is as large as it gets
				emit(c)
			}
			if got := testing.AllocsPerRun(1000, func() { emit(c) }); got != 0 {
				t.Errorf("grouping %d, %d values: %v allocations", g, width, got)
			}
		}
	}
}

func TestDeclarationsAreChecked(t *testing.T) {
	var d OutputDeclarer
	d.Declare("a", "b")
	d.DeclareStream("side", "a", "a", "")
	d.Declare("c")
	streams, errs := d.Streams()
	if len(streams) != 2 || streams[0].ID != tuple.DefaultStream || len(errs) != 3 {
		t.Errorf("%v, %v", streams, errs)
	}
	wantError(t, errs[0], `"side"`, `"a"`)
	wantError(t, errs[2], `"default"`, "twice")
}
