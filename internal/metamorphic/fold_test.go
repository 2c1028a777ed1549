package metamorphic

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// fold is a keyed state that gathers the records of each key, whatever their order.
type fold interface {
	register(s *txn.State, opts []txn.StateOption)
	add(r rec) error
	value() (int64, error) // of the current key; 0 if it has nothing
	// scan calls each for every key of a view that has something, perhaps in parts.
	scan(view txn.View, each func(key []tuple.Value, text string) error) error
}

// foldKind is a kind of fold and its model.
type foldKind struct {
	name string
	sums bool // sums of parts may be added instead of what they are made of
	ttl  bool // may be kept with a TTL
	make func() fold
	// model returns what a key comes to whose records are rs, and how it is shown:
	// the texts that scan gives, joined; none if the key has nothing.
	model func(rs []rec) (value int64, texts []string)
}

func number(n int64) (int64, []string) { return n, []string{strconv.FormatInt(n, 10)} }

func sumOf(rs []rec) (sum int64) {
	for _, r := range rs {
		sum += r.N
	}
	return sum
}

func plus(old int64, r rec) (int64, bool) { return old + r.N, true }

var foldKinds = []foldKind{
	{"value", true, true, func() fold { return &valueFold{codec: txn.Int64Codec(), step: plus} },
		func(rs []rec) (int64, []string) { return number(sumOf(rs)) }},
	{"heavy", true, true, func() fold { return &valueFold{codec: heavy(), step: plus} },
		func(rs []rec) (int64, []string) { return number(sumOf(rs)) }},
	{"toggle", false, true, func() fold { return &valueFold{codec: heavy(), step: turn} },
		func(rs []rec) (int64, []string) {
			if len(rs)%3 == 0 {
				return 0, nil
			}
			return number(int64(len(rs) % 3))
		}},
	{"sum", true, true, func() fold { return &aggregateFold{of: txn.Sum()} },
		func(rs []rec) (int64, []string) { return number(sumOf(rs)) }},
	{"min", false, true, func() fold { return &aggregateFold{of: txn.Min()} },
		func(rs []rec) (int64, []string) { return number(slices.MinFunc(rs, byN).N) }},
	{"max", false, true, func() fold { return &aggregateFold{of: txn.Max()} },
		func(rs []rec) (int64, []string) { return number(slices.MaxFunc(rs, byN).N) }},
	{"float", true, false, func() fold { return &floatFold{} },
		func(rs []rec) (int64, []string) { return number(sumOf(rs)) }},
	{"union", false, true, func() fold { return &unionFold{} }, func(rs []rec) (int64, []string) {
		set := uint64(0)
		for _, r := range rs {
			set |= 1 << (r.hash() % 64)
		}
		return int64(bits.OnesCount64(set)), []string{fmt.Sprintf("%x", set)}
	}},
	{"map", false, true, func() fold { return &mapFold{} }, modelMap},
	{"list", false, true, func() fold { return &listFold{} }, func(rs []rec) (int64, []string) {
		var texts []string
		for _, r := range rs {
			texts = append(texts, padded(r.N))
		}
		return sumOf(rs), texts
	}},
	{"stack", false, false, func() fold { return &stackFold{} }, func(rs []rec) (int64, []string) {
		n := len(rs) % stackMost
		return int64(n), slices.Repeat([]string{"1"}, n)
	}},
}

// lastFold keeps the newest value of each key: for records that come in order.
var lastFold = foldKind{"last", false, true,
	func() fold {
		return &valueFold{codec: txn.Int64Codec(), step: func(_ int64, r rec) (int64, bool) { return r.N, true }}
	},
	func(rs []rec) (int64, []string) { return number(rs[len(rs)-1].N) }}

func byN(a, b rec) int { return int(a.N - b.N) }

// never is a TTL that does not expire anything.
const never = 100_000 * time.Hour

// heavy is a codec whose values seem to take so much room that tables evict them.
func heavy() txn.Codec[int64] {
	c := txn.Int64Codec()
	c.Name = "heavy"
	c.Size = func(int64) int { return 300_000 }
	return c
}

type valueFold struct {
	codec txn.Codec[int64]
	step  func(old int64, r rec) (val int64, keep bool)
	v     *txn.Value[int64]
}

// turn counts to three and begins anew.
func turn(old int64, _ rec) (int64, bool) { return (old + 1) % 3, old < 2 }

func (f *valueFold) register(s *txn.State, opts []txn.StateOption) {
	f.v = txn.NewValue(s, "fold", f.codec, opts...)
}

func (f *valueFold) add(r rec) error {
	old, _, err := f.v.Get()
	if err != nil {
		return err
	}
	val, keep := f.step(old, r)
	if !keep {
		return f.v.Delete()
	}
	return f.v.Set(val)
}

func (f *valueFold) value() (int64, error) {
	v, _, err := f.v.Get()
	return v, err
}

func (f *valueFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.v.Scan(view, func(key []tuple.Value, v int64) error { return each(key, strconv.FormatInt(v, 10)) })
}

type aggregateFold struct {
	of txn.Aggregator[int64]
	a  *txn.Aggregate[int64]
}

func (f *aggregateFold) register(s *txn.State, opts []txn.StateOption) {
	f.a = txn.NewAggregate(s, "fold", f.of, opts...)
}

func (f *aggregateFold) add(r rec) error { return f.a.Add(r.N) }

func (f *aggregateFold) value() (int64, error) {
	v, _, err := f.a.Get()
	return v, err
}

func (f *aggregateFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.a.Scan(view, func(key []tuple.Value, v int64) error { return each(key, strconv.FormatInt(v, 10)) })
}

type floatFold struct{ a *txn.Aggregate[float64] }

func (f *floatFold) register(s *txn.State, opts []txn.StateOption) {
	f.a = txn.NewAggregate(s, "fold", txn.SumFloat(), opts...)
}

func (f *floatFold) add(r rec) error { return f.a.Add(float64(r.N)) }

func (f *floatFold) value() (int64, error) {
	v, _, err := f.a.Get()
	return int64(v), err
}

func (f *floatFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.a.Scan(view, func(key []tuple.Value, v float64) error { return each(key, strconv.FormatInt(int64(v), 10)) })
}

// unionFold is an aggregate of our own: sets as eight bytes.
type unionFold struct{ a *txn.Aggregate[[]byte] }

func (f *unionFold) register(s *txn.State, opts []txn.StateOption) {
	f.a = txn.NewAggregate(s, "fold", txn.NewAggregator(txn.BytesCodec(), func(a, b []byte) []byte {
		both := slices.Clone(a)
		for i := range both {
			both[i] |= b[i]
		}
		return both
	}), opts...)
}

func (f *unionFold) add(r rec) error {
	bit, set := r.hash()%64, make([]byte, 8)
	set[bit/8] = 1 << (bit % 8)
	return f.a.Add(set)
}

func (f *unionFold) value() (n int64, err error) {
	set, _, err := f.a.Get()
	for _, b := range set {
		n += int64(bits.OnesCount8(b))
	}
	return n, err
}

func (f *unionFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.a.Scan(view, func(key []tuple.Value, set []byte) error {
		all := uint64(0)
		for i, b := range set {
			all |= uint64(b) << (8 * i)
		}
		return each(key, fmt.Sprintf("%x", all))
	})
}

// mapFold counts the texts of each key to three, where they are forgotten.
type mapFold struct{ m *txn.Map[string, int64] }

func (f *mapFold) register(s *txn.State, opts []txn.StateOption) {
	f.m = txn.NewMap(s, "fold", txn.StringCodec(), txn.Int64Codec(), opts...)
}

func (f *mapFold) add(r rec) error {
	n, _, err := f.m.Get(r.S)
	if err != nil {
		return err
	}
	if n, keep := turn(n, r); keep {
		return f.m.Put(r.S, n)
	}
	return f.m.Delete(r.S)
}

func (f *mapFold) value() (int64, error) {
	n, err := f.m.Len()
	return int64(n), err
}

func (f *mapFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.m.Scan(view, func(key []tuple.Value, s string, n int64) error { return each(key, fmt.Sprintf("%q %d", s, n)) })
}

func modelMap(rs []rec) (int64, []string) {
	counts := map[string]int{}
	for _, r := range rs {
		if counts[r.S] = (counts[r.S] + 1) % 3; counts[r.S] == 0 {
			delete(counts, r.S)
		}
	}
	var texts []string
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%q %d", s, counts[s]))
	}
	return int64(len(counts)), texts
}

// listFold keeps all numbers, with a padding that makes tables evict them.
type listFold struct{ l *txn.List[string] }

func (f *listFold) register(s *txn.State, opts []txn.StateOption) {
	f.l = txn.NewList(s, "fold", txn.StringCodec(), opts...)
}

func padded(n int64) string { return strconv.FormatInt(n, 10) + strings.Repeat(" ", int(n%50)*10) }

func (f *listFold) add(r rec) error { return f.l.Append(padded(r.N)) }

func (f *listFold) value() (sum int64, err error) {
	for text := range f.l.All(&err) {
		n, bad := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if bad != nil {
			return 0, bad
		}
		sum += n
	}
	return sum, err
}

func (f *listFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.l.Scan(view, each)
}

// stackMost is the length at which a stackFold forgets everything.
const stackMost = 7

type stackFold struct{ l *txn.List[int64] }

func (f *stackFold) register(s *txn.State, opts []txn.StateOption) {
	f.l = txn.NewList(s, "fold", txn.Int64Codec(), opts...)
}

func (f *stackFold) add(r rec) error {
	n, err := f.l.Len()
	if err != nil {
		return err
	}
	if n == stackMost-1 {
		return f.l.Clear()
	}
	return f.l.Append(r.N)
}

func (f *stackFold) value() (int64, error) {
	n, err := f.l.Len()
	return int64(n), err
}

func (f *stackFold) scan(view txn.View, each func([]tuple.Value, string) error) error {
	return f.l.Scan(view, func(key []tuple.Value, _ int64) error { return each(key, "1") })
}
