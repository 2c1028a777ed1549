package txn

import (
	"fmt"
	"slices"

	"github.com/isobar-io/isobar/tuple"
)

// Grouping says which tasks of a bolt receive a tuple.
type Grouping uint8

// The groupings. Their numbers are part of the fingerprint of a graph.
const (
	Shuffle        Grouping = iota // the tasks in turn
	ByFields                       // the task that owns the key group of the fields' hash
	All                            // every task
	Global                         // the first task
	PartialKey                     // the one of two tasks, by the fields' hash, that this sender has sent less to
	None                           // any task: at random
	LocalOrShuffle                 // the tasks of this process in turn, or all tasks if there are none
	Direct                         // the task that the emitter names
	Custom                         // what a CustomGrouping chooses
)

// Keyed reports whether a grouping needs fields.
func (g Grouping) Keyed() bool { return g == ByFields || g == PartialKey }

// Combine is how a sender combines tuples of the same key before they are sent; see
// [Combining].
type Combine uint8

// The ways to combine integers.
const (
	CombineSum Combine = iota + 1
	CombineMin
	CombineMax
)

// Combining says that tuples for the same task which differ in one field only may become
// one, whose field is combined of theirs.
type Combining struct {
	Field int // position in the stream; an int64 in every tuple
	How   Combine
}

// GroupingContext is what a CustomGrouping is told of its edge.
type GroupingContext struct {
	Stream  *tuple.Stream
	TaskID  int   // the sending task
	Targets []int // ids of the receiving tasks, in order
}

// CustomGrouping is a grouping of the user's own. Each sending task has an instance.
type CustomGrouping interface {
	// Prepare is called once, before the first Choose.
	Prepare(c GroupingContext)
	// Choose appends to dst the places, in GroupingContext.Targets, of the tasks that
	// receive a tuple; none drops it. It must depend on nothing but what it was given
	// and its own earlier calls. vals are valid during the call.
	Choose(dst []int, vals []tuple.Value) []int
}

// Edge connects one output stream to one subscribed bolt.
type Edge struct {
	Stream   *tuple.Stream
	Grouping Grouping
	Fields   []int // positions of the grouping fields in Stream
	Groups   int   // number of key groups
	Outlets  []*Outlet
	Targets  []int // task ids, as Outlets
	Next     int   // the task that shuffle grouping begins with
	Custom   CustomGrouping
	Combine  *Combining // nil if every tuple is sent; all other fields are grouped by

	route  []*Outlet // by key group
	sent   []uint64  // for PartialKey: tuples to each task
	random uint64
	chosen []int
	row    []tuple.Value
	single bool // it is by one field
	sums   bool // and the other one of two is summed
}

func (e *Edge) prepare() {
	switch e.Grouping {
	case ByFields:
		e.route = make([]*Outlet, e.Groups)
		for g := range e.route {
			e.route[g] = e.Outlets[tuple.TaskOfGroup(g, e.Groups, len(e.Outlets))]
		}
		e.single = len(e.Fields) == 1
		e.sums = e.single && e.Combine != nil && *e.Combine == Combining{1, CombineSum}
	case PartialKey:
		e.sent = make([]uint64, len(e.Outlets))
	case None:
		e.random = uint64(e.Next) + 1
	case Shuffle, All, Global, LocalOrShuffle, Direct, Custom:
	}
}

// choose appends to dst the outlets of a tuple, for the groupings that are not on
// the fast path, and returns the hash to carry.
func (e *Edge) choose(dst []*Outlet, vals []tuple.Value) ([]*Outlet, uint64) {
	switch e.Grouping {
	case ByFields:
		h := e.hash(vals)
		return append(dst, e.route[tuple.KeyGroup(h, e.Groups)]), h
	case Shuffle, LocalOrShuffle:
		return append(dst, e.turn()), 0
	case Global:
		return append(dst, e.Outlets[0]), 0
	case All:
		return append(dst, e.Outlets...), 0
	case PartialKey:
		h := e.hash(vals)
		return append(dst, e.Outlets[e.lighter(h)]), h
	case None:
		// Knuth's MMIX generator; its high bits are good enough to spread tuples.
		e.random = e.random*6364136223846793005 + 1442695040888963407
		return append(dst, e.Outlets[tuple.KeyGroup(e.random, len(e.Outlets))]), 0
	case Custom:
		e.row = append(e.row[:0], vals...) // so that vals can stay on the emitter's stack
		e.chosen = e.Custom.Choose(e.chosen[:0], e.row)
		for _, i := range e.chosen {
			if i < 0 || i >= len(e.Outlets) {
				panic(fmt.Sprintf("custom grouping of stream %q chose task %d of %d", e.Stream.ID, i, len(e.Outlets)))
			}
			dst = append(dst, e.Outlets[i])
		}
		return dst, 0
	case Direct:
	}
	panic(fmt.Sprintf("emit on the direct stream %q: use EmitDirect, which names the task", e.Stream.ID))
}

// lighter returns the one of a key's two tasks that fewer tuples were sent to: the
// power of two choices (Nasir et al., ICDE 2015).
func (e *Edge) lighter(h uint64) int {
	n := len(e.Outlets)
	a := tuple.KeyGroup(h, n)
	b := tuple.KeyGroup(h*0x9e3779b97f4a7c15, n)
	if a == b {
		b = (a + 1) % n
	}
	if e.sent[b] < e.sent[a] {
		a = b
	}
	e.sent[a]++
	return a
}

func (e *Edge) turn() *Outlet {
	o := e.Outlets[e.Next]
	if e.Next++; e.Next == len(e.Outlets) {
		e.Next = 0
	}
	return o
}

func (e *Edge) hash(vals []tuple.Value) uint64 {
	if len(e.Fields) == 1 {
		h, ok := vals[e.Fields[0]].Hash()
		if !ok {
			panic(e.badKey(vals[e.Fields[0]]))
		}
		return h
	}
	var buf [8]tuple.Value
	key := buf[:0]
	for _, f := range e.Fields {
		key = append(key, vals[f])
	}
	h, ok := tuple.HashKey(key)
	if !ok {
		panic(e.badKey(key[slices.IndexFunc(key, isObject)]))
	}
	return h
}

func isObject(v tuple.Value) bool { return v.Kind() == tuple.KindAny }

func (e *Edge) badKey(v tuple.Value) string {
	return fmt.Sprintf("emit on stream %q: value %s is grouped by, but an object cannot be a key", e.Stream.ID, v)
}
