package txn

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/isobar-io/isobar/tuple"
)

// clocked is a State over a mapBackend, with a clock, for tests.
type clocked struct {
	*State
	b   *mapBackend
	now int64
	t   *testing.T
}

func newClocked(t *testing.T, b *mapBackend, known ...StateMeta) *clocked {
	c := &clocked{b: b, now: 1000, t: t}
	c.State = NewState(StateConfig{Component: "count", Groups: groups, To: groups, Known: known, Backend: b, CacheBytes: 1,
		Now: func() int64 { return c.now }})
	return c
}

func (c *clocked) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// finish cuts a batch and applies it, and returns its records.
func (c *clocked) finish() []Record {
	c.t.Helper()
	cut, err := c.Cut(c.b.applied + 1)
	c.ok(err)
	c.b.apply(cut)
	c.Settle(cut.Batch)
	return cut.Records
}

func TestOneEntryIsWrittenHoweverLargeTheMapIs(t *testing.T) {
	c := newClocked(t, newMapBackend())
	m := NewMap(c.State, "m", StringCodec(), Int64Codec())
	c.ok(c.SetKey(tuple.String("k")))
	for i := range 5000 {
		c.ok(m.Put(fmt.Sprintf("%05d", i), int64(i)))
	}
	if n := len(c.finish()); n != 5000 {
		t.Fatalf("%d records", n)
	}
	c.b.err = errors.New("a put reads nothing")
	c.ok(m.Put("00007", 70))
	c.b.err = nil
	if n := len(c.finish()); n != 1 {
		t.Errorf("%d records for one entry", n)
	}
	c.ok(m.Delete("not there"))
	if n := len(c.finish()); n != 0 {
		t.Errorf("%d records for an entry that is not there", n)
	}
}

func TestMapMayChangeWhileItIsIteratedOver(t *testing.T) {
	c := newClocked(t, newMapBackend())
	m := NewMap(c.State, "m", OrderedInt64Codec(), Int64Codec())
	other := NewValue(c.State, "other", Int64Codec())
	c.ok(c.SetKey(tuple.String("k")))
	const n = 3000
	for i := range int64(n) {
		c.ok(m.Put(i-n/2, i))
		if i == n/2 {
			c.finish() // half is in the backend alone
		}
	}
	var err error
	next, sum := int64(-n/2), 0
	for k, v := range m.All(&err) {
		if k != next || v != k+n/2 {
			t.Fatalf("entry %d is %d, expected entry %d", k, v, next)
		}
		sum++
		next = k + 1
		if k%3 == 0 {
			c.ok(m.Delete(k + 1))
			next++
		}
		c.ok(m.Put(k, 0))
		c.ok(c.SetKey(tuple.String("other")))
		c.ok(other.Set(k))
		c.ok(c.SetKey(tuple.String("k")))
	}
	c.ok(err)
	if left, err := m.Len(); err != nil || left != sum {
		t.Errorf("%d entries are left of %d that came, %v", left, sum, err)
	}
	for range m.All(&err) {
		break
	}
	c.ok(err)
	c.ok(m.Clear())
	if left, err := m.Len(); err != nil || left != 0 {
		t.Errorf("%d entries are left, %v", left, err)
	}
	c.finish()
	for k := range c.b.rows {
		if _, id, _, _ := SplitStateKey([]byte(k)); id == 1 {
			t.Fatalf("row %x is left", k)
		}
	}
}

func TestErrorsOfMapsAndLists(t *testing.T) {
	c := newClocked(t, newMapBackend())
	m := NewMap(c.State, "m", OrderedInt64Codec(), Int64Codec())
	l := NewList(c.State, "l", JSONCodec[float64]("ratio", 1))
	c.ok(c.SetKey(tuple.String("k")))
	wantError(t, l.Append(math.NaN()), `state "l"`, "key k")
	c.ok(errors.Join(m.Put(1, 1), l.Append(1, 2)))
	c.finish()
	c.Settle(c.b.applied)
	c.b.err = errors.New("disk on fire")
	var err error
	for range m.All(&err) {
		t.Error("an entry came from a backend that fails")
	}
	wantError(t, err, "disk on fire")
	for _, err := range []error{m.Delete(1), m.Clear(), l.Append(3), l.Clear(), l.Set(3)} {
		wantError(t, err, "disk on fire")
	}
	_, err = l.Len()
	wantError(t, err, "disk on fire")
	c.b.err = nil
	for k := range c.b.rows {
		c.b.rows[k] = []byte{1, 2}
	}
	_, _, err = m.Get(1)
	wantError(t, err, `state "m"`, "codec int64")
	for range m.All(&err) {
		t.Error("a damaged entry came")
	}
	wantError(t, err, `state "m"`, "codec int64")
	wantError(t, l.Append(1), `state "l"`, "key k")
}

func TestAppendWritesNoMoreThanIsNew(t *testing.T) {
	c := newClocked(t, newMapBackend())
	l := NewList(c.State, "l", StringCodec())
	for i := range 3 {
		c.ok(c.SetKey(tuple.Int(i)))
		for j := range 500 {
			c.ok(l.Append(fmt.Sprint(i, "/", j)))
		}
	}
	c.finish()
	c.Settle(c.b.applied)
	c.ok(c.SetKey(tuple.Int(1)))
	c.ok(l.Append("more"))
	if n := len(c.finish()); n != 2 { // the element and the length
		t.Errorf("%d records", n)
	}
	var err error
	i := 0
	for v := range l.All(&err) {
		if want := fmt.Sprint("1/", i); i < 500 && v != want || i == 500 && v != "more" {
			t.Errorf("element %d is %q", i, v)
		}
		i++
	}
	if n, err2 := l.Len(); i != 501 || n != 501 || err != nil || err2 != nil {
		t.Errorf("%d and %d elements, %v, %v", i, n, err, err2)
	}
}

func TestRegistrationOfKindsIsChecked(t *testing.T) {
	ttl := WithTTL(time.Hour)
	known := []StateMeta{
		{ID: 1, Name: "v", Kind: "value", Codec: "int64", Version: 1},
		{ID: 2, Name: "m", Kind: "map", Codec: "[string.1]int64", Version: 1},
		{ID: 3, Name: "a", Kind: "aggregate+ttl", Codec: "sum", Version: 1},
	}
	for name, test := range map[string]struct {
		register func(*State)
		want     []string
	}{
		"a TTL later":        {func(s *State) { NewValue(s, "v", Int64Codec(), ttl) }, []string{`"v"`, "value+ttl of int64", "value of int64"}},
		"a TTL no more":      {func(s *State) { NewAggregate(s, "a", Sum()) }, []string{`"a"`, "aggregate of sum", "aggregate+ttl of sum"}},
		"another map key":    {func(s *State) { NewMap(s, "m", Int64Codec(), Int64Codec()) }, []string{`"m"`, "[int64.1]int64", "[string.1]int64"}},
		"another kind":       {func(s *State) { NewList(s, "v", Int64Codec()) }, []string{`"v"`, "list of int64", "value of int64"}},
		"too short":          {func(s *State) { NewList(s, "l", Int64Codec(), WithTTL(time.Microsecond)) }, []string{`"l"`, "1µs"}},
		"a name of our own":  {func(s *State) { NewValue(s, "isobar.timers.event", Int64Codec()) }, []string{`"isobar.timers.event"`}},
		"a newer aggregate":  {func(s *State) { a := Sum(); a.Codec.Version = 2; NewAggregate(s, "a", a, ttl) }, []string{`"a"`, "another name"}},
		"a value has no end": {func(s *State) { NewValue(s, "x", Int64Codec(), WithTTL(0)) }, []string{`"x"`, "0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocked(t, newMapBackend(), known...)
			test.register(c.State)
			wantError(t, c.Seal(), test.want...)
		})
	}
	s := newTestState(newMapBackend())
	NewValue(s, "v", Int64Codec(), ttl)
	wantError(t, s.Seal(), `"v"`, "clock")
	c := newClocked(t, newMapBackend(), known...)
	NewValue(c.State, "v", Int64Codec())
	NewMap(c.State, "m", StringCodec(), Int64Codec())
	NewAggregate(c.State, "a", Sum(), WithTTL(time.Minute)) // another while is no other kind
	c.Timers()
	c.ok(c.Seal())
	if m := c.Metas(); len(m) != 5 || m[3].Kind != "timer" || m[4].ID != 5 {
		t.Errorf("described as %v", m)
	}
}

// A write refreshes the TTL, a read does not; an aggregate that expired begins anew.
func TestTTLCountsFromTheLastWrite(t *testing.T) {
	c := newClocked(t, newMapBackend())
	v := NewValue(c.State, "v", StringCodec(), WithTTL(time.Second))
	a := NewAggregate(c.State, "a", Sum(), WithTTL(time.Second))
	c.ok(c.SetKey(tuple.String("k")))
	c.ok(errors.Join(v.Set("x"), a.Add(1)))
	check := func(when string, there bool, sum int64) {
		t.Helper()
		got, ok, err := v.Get()
		n, counted, err2 := a.Get()
		if err := errors.Join(err, err2); err != nil || ok != there || there && got != "x" || counted != (sum != 0) || n != sum {
			t.Errorf("%s: %q %t, %d %t, %v", when, got, ok, n, counted, err)
		}
	}
	c.now += 999
	check("just before", true, 1)
	c.ok(errors.Join(v.Set("x"), a.Add(1)))
	c.now += 999
	check("refreshed", true, 2)
	c.now++
	check("expired", false, 0)
	c.ok(a.Add(5))
	check("begun anew", false, 5)
	c.finish()
	c.now += 1000
	check("expired in the backend", false, 0)
}

// A value that was written again while the sweep found it expired stays.
func TestSweepKeepsWhatIsNewerInMemory(t *testing.T) {
	c := newClocked(t, newMapBackend())
	v := NewValue(c.State, "v", Int64Codec(), WithTTL(time.Second))
	m := NewMap(c.State, "m", Int64Codec(), Int64Codec(), WithTTL(time.Second))
	for i := range 10 {
		c.ok(errors.Join(c.SetKey(tuple.Int(i)), v.Set(int64(i)), m.Put(1, 1), m.Put(2, 2)))
	}
	c.finish()
	c.now += 1000
	for i := range 5 {
		c.ok(errors.Join(c.SetKey(tuple.Int(i)), v.Set(-1), m.Put(1, 3)))
	}
	pending, err := c.Cut(2) // not yet applied
	c.ok(err)
	c.Settle(1)
	c.ok(errors.Join(c.SetKey(tuple.Int(9)), v.Set(9)))
	later, err := c.Cut(3)
	c.ok(err)
	c.b.apply(pending)
	c.b.apply(later)
	c.Settle(3)
	if len(c.b.rows) != 11 {
		t.Errorf("%d rows are left, want 6 values and 5 entries", len(c.b.rows))
	}
	for i := range 10 {
		c.ok(c.SetKey(tuple.Int(i)))
		if _, ok, err := v.Get(); err != nil || ok != (i < 5 || i == 9) {
			t.Errorf("key %d: %t, %v", i, ok, err)
		}
		if n, err := m.Len(); err != nil || (n == 1) != (i < 5) {
			t.Errorf("key %d has %d entries, %v", i, n, err)
		}
	}
}

// Without checkpoints nothing is kept of what was deleted.
func TestVolatileStateForgetsWhatIsDeleted(t *testing.T) {
	s := NewState(StateConfig{Component: "c", Groups: groups, To: groups, Backend: newMapBackend(), Volatile: true})
	m := NewMap(s, "m", Int64Codec(), Int64Codec())
	timers := s.Timers()
	for i := range 100 {
		if err := errors.Join(s.SetKey(tuple.Int(i)), m.Put(1, 1), m.Put(2, 2), m.Delete(1)); err != nil {
			t.Fatal(err)
		}
		timers.SetProcessing(time.UnixMilli(int64(i)), "")
		if i%2 == 0 {
			if err := m.Clear(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := timers.FireProcessing(49, func(Timer) error { return nil }); n != 50 || err != nil {
		t.Fatalf("%d timers fired, %v", n, err)
	}
	if _, err := s.Cut(1); err != nil {
		t.Fatal(err)
	}
	s.Settle(0)
	q := timers.queue(false)
	if rows, keys := m.rows.s.held, len(m.rows.buckets); keys != 50 || rows != 50*(bucketBytes+rowBytes)+heldTexts(m.rows) || len(q.pending) != 0 || len(q.live) != 50 {
		t.Errorf("%d maps of %d bytes, %d timers and %d changes of them are in memory", keys, rows, len(q.live), len(q.pending))
	}
}

func heldTexts(r *rows) (n int64) {
	for b := range maps.Values(r.buckets) {
		n += int64(len(b.prefix) + len(b.payload))
		for _, w := range b.rows {
			n += int64(len(w.sub) + len(w.raw))
		}
	}
	return n
}

// Batches are finished only when the sweep says that it has something to do.
func TestSweepComesBackForWhatExpiresLaterAndRestsBetween(t *testing.T) {
	c := newClocked(t, newMapBackend())
	v := NewValue(c.State, "v", Int64Codec(), WithTTL(16*time.Second))
	if _, due := c.SweepDue(); due {
		t.Error("a sweep is due before anything was stored")
	}
	for i := range 100 {
		c.ok(errors.Join(c.SetKey(tuple.Int(i)), v.Set(1)))
		if c.now += 100; i%10 == 9 {
			c.finish()
		}
	}
	last := c.now + 16_000
	rounds := 0
	for {
		at, ok := c.SweepDue()
		if !ok || len(c.b.rows) == 0 {
			break
		}
		if at > c.now {
			if at < c.now+1000 {
				t.Errorf("the sweep rests for %d ms only", at-c.now)
			}
			c.now = at
		}
		c.finish()
		rounds++
	}
	if len(c.b.rows) != 0 || c.now > last+2000 || rounds > 20 {
		t.Errorf("%d rows are left %d ms after the last has expired, after %d rounds", len(c.b.rows), c.now-last, rounds)
	}
}

// The number of elements expires with the last of them: on a machine whose clock is
// behind, what was cut off does not come back.
func TestExpiredListThatBeganAnewStaysShortWhenTheClockIsBehind(t *testing.T) {
	c := newClocked(t, newMapBackend())
	l := NewList(c.State, "l", Int64Codec(), WithTTL(time.Second))
	c.ok(errors.Join(c.SetKey(tuple.String("k")), l.Append(1, 2, 3)))
	c.now += 1000
	c.ok(l.Append(4))
	c.now -= 500
	var got []int64
	var err error
	for v := range l.All(&err) {
		got = append(got, v)
	}
	if n, err2 := l.Len(); !slices.Equal(got, []int64{4}) || n != 1 || err != nil || err2 != nil {
		t.Errorf("the list is %v of %d, %v, %v", got, n, err, err2)
	}
}
