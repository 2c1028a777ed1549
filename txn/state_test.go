package txn

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

func newTestState(b Backend, known ...StateMeta) *State {
	return NewState(StateConfig{Component: "count", Groups: groups, To: groups, Known: known, Backend: b})
}

// wantError fails unless err names all of texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

// wantPanic runs fn and fails unless it panics with a text that names all of texts.
func wantPanic(t *testing.T, fn func(), texts ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if r == nil {
			t.Fatalf("no panic, want one that says %q", texts)
		}
		wantError(t, fmt.Errorf("%v", r), texts...)
	}()
	fn()
}

func TestStringAndBytesOfTheSameTextAreOneKey(t *testing.T) {
	s := newTestState(newMapBackend())
	n := NewAggregate(s, "n", Sum())
	for _, text := range []string{"", "a", "\xff\x00", "a long text that does not fit in a word"} {
		for _, key := range [][]tuple.Value{{tuple.String(text)}, {tuple.Bytes([]byte(text))}} {
			if err := errors.Join(s.SetKey(key...), n.Add(1)); err != nil {
				t.Fatal(err)
			}
		}
		if v, _, err := n.Get(); v != 2 || err != nil {
			t.Errorf("text %q: %d, %v", text, v, err)
		}
	}
	if got := s.Changed().Len(); got != 4 {
		t.Errorf("%d keys", got)
	}
}

func TestKeyMayBeOverwrittenOnceItsCallIsOver(t *testing.T) {
	s := newTestState(newMapBackend())
	v := NewValue(s, "v", Int64Codec())
	frame := []byte("ab")
	for i, text := range []string{"ab", "cd"} {
		copy(frame, text)
		if err := errors.Join(s.SetKey(tuple.Bytes(frame)), v.Set(int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	clear(frame)
	for i, text := range []string{"ab", "cd"} {
		if err := s.SetKey(tuple.String(text)); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := v.Get(); got != int64(i) || !ok || err != nil {
			t.Errorf("key %q: %d %t %v", text, got, ok, err)
		}
	}
}

func TestValuesAreCopied(t *testing.T) {
	s := newTestState(newMapBackend())
	raw := NewValue(s, "raw", BytesCodec())
	obj := NewValue(s, "obj", JSONCodec[[]string]("words", 1))
	all := NewAggregate(s, "all", NewAggregator(BytesCodec(), func(a, b []byte) []byte { return bytes.Join([][]byte{a, b}, nil) }))
	b, words := []byte("abc"), []string{"x"}
	if err := errors.Join(s.SetKey(tuple.Int(1)), raw.Set(b), obj.Set(words), all.Add(b)); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		r, _, err1 := raw.Get()
		o, _, err2 := obj.Get()
		a, _, err3 := all.Get()
		if err := errors.Join(err1, err2, err3); err != nil || string(r) != "abc" || o[0] != "x" || string(a) != "abc" {
			t.Errorf("after %s: %q %q %q, %v", when, r, o, a, err)
		}
		clear(r)
		clear(o)
		clear(a)
	}
	clear(b)
	words[0] = "changed"
	check("the caller changed what it had set")
	check("the caller changed what it had got")
	cut, err := s.Cut(1)
	if err != nil {
		t.Fatal(err)
	}
	was := fmt.Sprint(cut.Records)
	if err := errors.Join(raw.Set([]byte("xyz")), obj.Set(nil), all.Add([]byte("z"))); err != nil {
		t.Fatal(err)
	}
	if now := fmt.Sprint(cut.Records); now != was {
		t.Errorf("a later write changed the cut %s to %s", was, now)
	}
}

func TestCodecVersions(t *testing.T) {
	type person struct{ First, Last string }
	b := newMapBackend()
	write := func(s *State, v *Value[person], p person) {
		t.Helper()
		if err := errors.Join(s.Seal(), s.SetKey(tuple.Int(1)), v.Set(p)); err != nil {
			t.Fatal(err)
		}
		c, err := s.Cut(b.applied + 1)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(c)
	}
	s := newTestState(b)
	write(s, NewValue(s, "who", JSONCodec[person]("person", 1)), person{First: "Ada Byron"})
	one := s.Metas()

	migrating := JSONCodec[person]("person", 2)
	migrating.Decode = func(raw []byte, version uint8) (person, error) {
		p, err := JSONCodec[person]("person", 2).Decode(raw, version)
		if version == 1 {
			p.First, p.Last, _ = strings.Cut(p.First, " ")
		}
		return p, err
	}
	s = newTestState(b, one...)
	v := NewValue(s, "who", migrating)
	if err := errors.Join(s.Seal(), s.SetKey(tuple.Int(1))); err != nil {
		t.Fatal(err)
	}
	p, ok, err := v.Get()
	if !ok || err != nil || p != (person{"Ada", "Byron"}) {
		t.Fatalf("migrated to %v, %t, %v", p, ok, err)
	}
	write(s, v, p)
	if two := s.Metas(); two[0].Version != 2 || two[0].ID != one[0].ID {
		t.Errorf("described as %v", two)
	}

	s = newTestState(b, s.Metas()...)
	NewValue(s, "who", JSONCodec[person]("person", 1))
	wantError(t, s.Seal(), `component "count"`, `state "who"`, "version 2", "version 1", "json:person")

	// The same in the values alone, should the description be lost.
	s = newTestState(b)
	v = NewValue(s, "who", JSONCodec[person]("person", 1))
	if err := s.SetKey(tuple.Int(1)); err != nil {
		t.Fatal(err)
	}
	_, _, err = v.Get()
	wantError(t, err, `state "who"`, "key 1", "version 2")
}

func TestRegistrationIsChecked(t *testing.T) {
	known := []StateMeta{
		{ID: 4, Name: "a", Kind: "value", Codec: "int64", Version: 1},
		{ID: 2, Name: "n", Kind: "aggregate", Codec: "json:set", Version: 1},
	}
	join := func(a, _ []string) []string { return a }
	for name, c := range map[string]struct {
		known    []StateMeta
		register func(*State)
		want     []string
	}{
		"twice":                     {nil, func(s *State) { NewValue(s, "x", Int64Codec()); NewAggregate(s, "x", Sum()) }, []string{`state "x" is registered twice`}},
		"twice after a restart":     {known, func(s *State) { NewValue(s, "a", Int64Codec()); NewValue(s, "a", Int64Codec()) }, []string{`state "a" is registered twice`}},
		"another codec":             {known, func(s *State) { NewValue(s, "a", StringCodec()) }, []string{`"a"`, "value of string", "value of int64"}},
		"another kind":              {known, func(s *State) { NewAggregate(s, "a", Aggregator[int64]{Kind: 9, Codec: Int64Codec()}) }, []string{`"a"`, "aggregate of int64", "value of int64"}},
		"a newer aggregate":         {known, func(s *State) { NewAggregate(s, "n", NewAggregator(JSONCodec[[]string]("set", 2), join)) }, []string{`"n"`, "version 1", "version 2", "another name"}},
		"an older aggregate":        {[]StateMeta{{ID: 1, Name: "n", Kind: "aggregate", Codec: "json:set", Version: 3}}, func(s *State) { NewAggregate(s, "n", NewAggregator(JSONCodec[[]string]("set", 2), join)) }, []string{`"n"`, "version 3", "version 2"}},
		"all mistakes in one error": {known, func(s *State) { NewValue(s, "a", StringCodec()); NewValue(s, "n", StringCodec()) }, []string{`"a"`, `"n"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(newMapBackend(), c.known...)
			c.register(s)
			wantError(t, s.Seal(), append(c.want, `component "count"`)...)
		})
	}
	s := newTestState(newMapBackend(), known...)
	NewValue(s, "new", StringCodec())
	NewValue(s, "a", Int64Codec())
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	if m := s.Metas(); len(m) != 3 || m[2].ID != 5 || m[0] != known[0] || m[1] != known[1] {
		t.Errorf("a new state must get a number of its own, and one that is not registered must stay: %v", m)
	}
	wantPanic(t, func() { NewValue(s, "late", StringCodec()) },
		`component "count"`, `registers state "late" after Open`, "register all states in Open")
}

// An entry made for a read that failed would say that the key has no value.
func TestFailedReadIsNoAnswer(t *testing.T) {
	b := newMapBackend()
	s := newTestState(b)
	n := NewAggregate(s, "n", Sum())
	if err := errors.Join(s.SetKey(tuple.String("k")), n.Add(7)); err != nil {
		t.Fatal(err)
	}
	c, err := s.Cut(1)
	if err != nil {
		t.Fatal(err)
	}
	b.apply(c)
	s.Settle(1)
	b.err = errors.New("disk on fire")
	for range 2 {
		_, _, err := n.Get()
		wantError(t, err, `state "n"`, "key k", "disk on fire")
	}
	if l := s.Changed().Len(); l != 0 {
		t.Errorf("%d keys changed", l)
	}
	b.err = nil
	if v, ok, err := n.Get(); v != 7 || !ok || err != nil {
		t.Errorf("got %d %t %v after the backend is back, want 7", v, ok, err)
	}
	for k := range b.rows {
		b.rows[k] = []byte{1, 2, 3}
	}
	s.Settle(1)
	_, _, err = n.Get()
	wantError(t, err, `state "n"`, "key k", "codec sum")
	for k := range b.rows {
		b.rows[k] = []byte{2, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	_, _, err = n.Get()
	wantError(t, err, `state "n"`, "aggregate kind 2, not 1")
	for k := range b.rows {
		b.rows[k] = []byte{}
	}
	_, _, err = n.Get()
	wantError(t, err, `state "n"`, "empty")
}

func TestObjectsCannotBeKeysNorUnencodableValuesBeCut(t *testing.T) {
	s := newTestState(newMapBackend())
	v := NewValue(s, "ratio", JSONCodec[float64]("ratio", 1))
	err := s.SetKey(tuple.String("a"), tuple.Any(struct{}{}))
	wantError(t, err, `component "count"`)
	if !errors.Is(err, tuple.ErrKeyKind) {
		t.Errorf("error %v", err)
	}
	if err := errors.Join(s.SetKey(tuple.String("k")), v.Set(math.NaN())); err != nil {
		t.Fatal(err)
	}
	_, err = s.Cut(3)
	wantError(t, err, `component "count"`, "batch 3", `state "ratio"`, "key k", "json:ratio")
}

func TestLiveViewShowsWhatIsThere(t *testing.T) {
	s := newTestState(newMapBackend())
	a, b := NewValue(s, "a", StringCodec()), NewValue(s, "b", Int64Codec())
	for i := range 20 {
		if err := errors.Join(s.SetKey(tuple.Int(i-10)), a.Set("x"), b.Set(int64(i))); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := b.Delete(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var last []byte
	sum, n := int64(0), 0
	if err := b.Scan(s.Live(), func(key []tuple.Value, v int64) error {
		h, _ := tuple.HashKey(key)
		enc, err := tuple.AppendKey(nil, key...)
		k := AppendStateKey(nil, tuple.KeyGroup(h, groups), 0, enc)
		if bytes.Compare(last, k) >= 0 {
			t.Errorf("key %v is out of order", key)
		}
		last, sum, n = k, sum+v, n+1
		return err
	}); err != nil || n != 10 || sum != 100 {
		t.Errorf("%d keys of sum %d, %v", n, sum, err)
	}
	stop := errors.New("stop")
	if err := a.Scan(s.Live(), func([]tuple.Value, string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	wantError(t, s.Live().Scan("c", nil), `"c"`, `"count"`)
}

func TestBuiltInAggregatesAndCodecs(t *testing.T) {
	s := newTestState(newMapBackend())
	ints := map[string]*Aggregate[int64]{"sum": NewAggregate(s, "sum", Sum()), "min": NewAggregate(s, "min", Min()), "max": NewAggregate(s, "max", Max())}
	f := NewAggregate(s, "float", SumFloat())
	if err := s.SetKey(); err != nil { // the key of no fields
		t.Fatal(err)
	}
	for _, n := range []int64{-3, 5, math.MaxInt64} {
		for _, a := range ints {
			if err := a.Add(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Add(0.5); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int64{"sum": math.MinInt64 + 1, "min": -3, "max": math.MaxInt64} {
		if got, _, err := ints[name].Get(); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
	if got, _, err := f.Get(); got != 1.5 || err != nil {
		t.Errorf("float: %v, %v", got, err)
	}
	if _, err := Int64Codec().Decode([]byte("short"), 1); err == nil {
		t.Error("5 bytes decode as an integer")
	}
	if _, err := Float64Codec().Decode(make([]byte, 9), 1); err == nil {
		t.Error("9 bytes decode as a float")
	}
}

func TestKnownKeyCostsNoAllocation(t *testing.T) {
	s := newTestState(newMapBackend())
	n := NewAggregate(s, "n", Sum())
	keys := [][]tuple.Value{{tuple.String("word")}, {tuple.Bytes([]byte("bytes"))}, {tuple.Int(-4)}, {tuple.String("a"), tuple.Int(2)}}
	count := func() {
		for _, k := range keys {
			if err := errors.Join(s.SetKey(k...), n.Add(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	count()
	if got := testing.AllocsPerRun(100, count); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestKeysOfOneHashStayApart(t *testing.T) {
	b := newMapBackend()
	s := newTestState(b)
	n := NewAggregate(s, "n", Sum())
	// Keys whose encodings differ only in the tag, and texts of one length.
	keys := []tuple.Value{tuple.Int64(7), tuple.Uint64(7 | 1<<63), tuple.Time(time.Unix(0, 7)), tuple.String("a"), tuple.String("b")}
	for round := range 3 {
		for i, k := range keys {
			if err := errors.Join(s.Select([]tuple.Value{k}, 4711), n.Add(int64(i+1))); err != nil {
				t.Fatal(err)
			}
			if got, _, err := n.Get(); got != int64((i+1)*(round+1)) || err != nil {
				t.Errorf("key %s: %d, %v", k, got, err)
			}
		}
		c, err := s.Cut(BatchID(round + 1))
		if err != nil || len(c.Records) != len(keys) {
			t.Fatalf("%d records, %v", len(c.Records), err)
		}
		b.apply(c)
		s.Settle(c.Batch)
	}
}
