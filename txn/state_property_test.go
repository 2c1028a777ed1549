package txn

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
)

// mapBackend holds what the applied cuts make.
type mapBackend struct {
	rows    map[string][]byte
	applied BatchID
	metas   []StateMeta
	err     error // of Get
	used    bool
	gets    int
}

func newMapBackend() *mapBackend { return &mapBackend{rows: map[string][]byte{}} }

func (b *mapBackend) Get(key []byte) ([]byte, BatchID, error) {
	b.gets++
	return bytes.Clone(b.rows[string(key)]), b.applied, b.err
}

func (b *mapBackend) Empty() bool { return !b.used }

func (b *mapBackend) apply(c *Cut) {
	for _, r := range c.Records {
		b.used = true
		old := b.rows[string(r.Key)]
		switch {
		case r.Delete:
			delete(b.rows, string(r.Key))
		case r.Merge && old != nil:
			v, err := MergeValues(old, r.Value)
			if err != nil {
				panic(err)
			}
			b.rows[string(r.Key)] = v
		default:
			b.rows[string(r.Key)] = bytes.Clone(r.Value)
		}
	}
	b.applied = c.Batch
}

// Scan implements View.
func (b *mapBackend) Scan(state string, fn func(key, value []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(b.rows)) {
		_, id, key, _ := SplitStateKey([]byte(k))
		for _, m := range b.metas {
			if m.Name != state || m.ID != id {
				continue
			}
			if err := fn(key, b.rows[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyed is one key of the model with its text.
type keyed struct {
	vals []tuple.Value
	text string // its encoding
	own  bool
}

const groups, from, to = 16, 3, 14

func keyOf(vals ...tuple.Value) keyed {
	h, _ := tuple.HashKey(vals)
	enc, err := tuple.AppendKey(nil, vals...)
	if err != nil {
		panic(err)
	}
	g := tuple.KeyGroup(h, groups)
	return keyed{vals, string(enc), g >= from && g < to}
}

var keyPool = func() (pool []keyed) {
	for i := range 12 {
		pool = append(pool,
			keyOf(tuple.String(fmt.Sprint("k", i))),
			keyOf(tuple.Bytes([]byte(fmt.Sprint("k", i)))), // the same key as the string
			keyOf(tuple.Int(i-6)),
			keyOf(tuple.String(fmt.Sprint(i%3)), tuple.Int(i)))
	}
	return append(pool, keyOf(), keyOf(tuple.Value{}), keyOf(tuple.String("")), keyOf(tuple.String("a\x00"), tuple.String("b")),
		keyOf(tuple.String("a"), tuple.String("\x00b")), keyOf(tuple.String("\xff\xfe")))
}()

// handles are the states of the component under test; each is asked by its name.
type handles struct {
	text *Value[string]
	raw  *Value[[]byte]
	sum  *Aggregate[int64]
	most *Aggregate[int64]
	json *Value[map[string]int]
}

// machine checks a State against a model.
type machine struct {
	names    []string
	keys     []keyed // that are used; few of them meet again
	backend  *mapBackend
	known    []StateMeta
	s        *State
	h        handles
	batch    BatchID
	pending  []*Cut
	now      map[string]string // state and key to value
	cuts     map[BatchID]map[string]string
	changed  map[string]bool
	key      keyed
	evicted  int
	merged   int
	restarts int
}

func (m *machine) start(t *rapid.T) {
	m.s = NewState(StateConfig{Component: "count", Groups: groups, From: from, To: to, Known: m.known, Backend: m.backend, CacheBytes: 1})
	for _, n := range rapid.Permutation(m.names).Draw(t, "order") {
		switch n {
		case "text":
			m.h.text = NewValue(m.s, n, StringCodec())
		case "raw":
			m.h.raw = NewValue(m.s, n, BytesCodec())
		case "sum":
			m.h.sum = NewAggregate(m.s, n, Sum())
		case "most":
			m.h.most = NewAggregate(m.s, n, Max())
		case "json":
			m.h.json = NewValue(m.s, n, JSONCodec[map[string]int]("counts", 1))
		}
	}
	if err := m.s.Seal(); err != nil {
		t.Fatal(err)
	}
	m.known = m.s.Metas()
	m.backend.metas = m.known
	m.key = keyed{}
}

func (m *machine) name(t *rapid.T) string { return rapid.SampledFrom(m.names).Draw(t, "state") }

// selectKey makes a key current, and checks that foreign ones are refused.
func (m *machine) selectKey(t *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	err := m.s.SetKey(k.vals...)
	if k.own != (err == nil) {
		t.Fatalf("set key %v: own %t, error %v", k.vals, k.own, err)
	}
	if err != nil {
		if !errors.Is(err, ErrForeignKey) || !strings.Contains(err.Error(), `"count"`) ||
			!strings.Contains(err.Error(), "key "+tuple.FormatKey([]byte(k.text))) {
			t.Fatalf("error %q does not name component and key", err)
		}
		t.Skip("foreign key")
	}
	m.key = k
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func (m *machine) read(t *rapid.T, name string) (string, bool) {
	switch name {
	case "text":
		v, ok, err := m.h.text.Get()
		must(t, err)
		return v, ok
	case "raw":
		v, ok, err := m.h.raw.Get()
		must(t, err)
		got := string(v)
		for i := range v {
			v[i] = '!' // ours: must not change the state
		}
		return got, ok
	case "json":
		v, ok, err := m.h.json.Get()
		must(t, err)
		got := fmt.Sprint(v["n"])
		if ok {
			v["n"] = -1
		}
		return got, ok
	}
	a := m.h.sum
	if name == "most" {
		a = m.h.most
	}
	v, ok, err := a.Get()
	must(t, err)
	return fmt.Sprint(v), ok
}

func (m *machine) write(t *rapid.T, name string, n int) string {
	var old int
	_, there := m.now[name+"/"+m.key.text]
	_, _ = fmt.Sscan(m.now[name+"/"+m.key.text], &old)
	switch name {
	case "text":
		must(t, m.h.text.Set(fmt.Sprint(n)))
	case "raw":
		b := []byte(fmt.Sprint(n))
		must(t, m.h.raw.Set(b))
		clear(b)
	case "json":
		v := map[string]int{"n": n}
		must(t, m.h.json.Set(v))
		v["n"]++
	case "sum":
		must(t, m.h.sum.Add(int64(n)))
		n += old
	case "most":
		must(t, m.h.most.Add(int64(n)))
		if there {
			n = max(n, old)
		}
	}
	return fmt.Sprint(n)
}

func (m *machine) remove(t *rapid.T, name string) bool {
	switch name {
	case "text":
		must(t, m.h.text.Delete())
	case "raw":
		must(t, m.h.raw.Delete())
	case "json":
		must(t, m.h.json.Delete())
	default:
		return false
	}
	return true
}

func (m *machine) get(t *rapid.T) {
	m.selectKey(t)
	name := m.name(t)
	for range 2 {
		got, ok := m.read(t, name)
		want, has := m.now[name+"/"+m.key.text]
		if ok != has || ok && got != want {
			t.Fatalf("state %s of key %v: got %q %t, want %q %t", name, m.key.vals, got, ok, want, has)
		}
	}
}

func (m *machine) set(t *rapid.T) {
	m.selectKey(t)
	name := m.name(t)
	m.now[name+"/"+m.key.text] = m.write(t, name, rapid.IntRange(-9, 9).Draw(t, "n"))
	m.changed[m.key.text] = true
}

// addMore adds to an aggregate that is there. The value may not be in memory.
func (m *machine) addMore(t *rapid.T) {
	type entry struct {
		name string
		key  keyed
	}
	var there []entry
	for _, name := range []string{"sum", "most"} {
		for _, k := range m.keys {
			if _, ok := m.now[name+"/"+k.text]; ok {
				there = append(there, entry{name, k})
			}
		}
	}
	if len(there) == 0 {
		t.Skip("there is none")
	}
	e := rapid.SampledFrom(there).Draw(t, "entry")
	must(t, m.s.SetKey(e.key.vals...))
	m.key = e.key
	m.now[e.name+"/"+m.key.text] = m.write(t, e.name, rapid.IntRange(-9, 9).Draw(t, "n"))
	m.changed[m.key.text] = true
}

func (m *machine) del(t *rapid.T) {
	m.selectKey(t)
	name := m.name(t)
	if !m.remove(t, name) {
		t.Skip("an aggregate is not deleted")
	}
	if _, ok := m.now[name+"/"+m.key.text]; ok {
		delete(m.now, name+"/"+m.key.text)
		m.changed[m.key.text] = true
	}
}

// iterate checks Changed, each of whose steps sets the key of the state.
func (m *machine) iterate(t *rapid.T) {
	c := m.s.Changed()
	if c.Len() != len(m.changed) {
		t.Fatalf("%d changed keys, want %d", c.Len(), len(m.changed))
	}
	seen := map[string]bool{}
	for c.Next() {
		enc, err := tuple.AppendKey(nil, c.Key()...)
		must(t, err)
		m.key = keyOf(c.Key()...)
		if seen[string(enc)] || !m.changed[string(enc)] {
			t.Fatalf("key %v is there twice, or was not written", c.Key())
		}
		seen[string(enc)] = true
		for _, name := range m.names {
			got, ok := m.read(t, name)
			if want, has := m.now[name+"/"+string(enc)]; ok != has || ok && got != want {
				t.Fatalf("state %s of changed key %v: got %q %t, want %q %t", name, c.Key(), got, ok, want, has)
			}
		}
	}
}

// mark closes a batch, after the rest of the one before was copied.
func (m *machine) mark(t *rapid.T) {
	for m.s.Copying() {
		m.copySome(t, 100)
	}
	m.batch++
	m.s.Mark(m.batch)
	m.cuts[m.batch] = maps.Clone(m.now)
	clear(m.changed)
}

func (m *machine) copy(t *rapid.T) {
	if !m.s.Copying() {
		t.Skip("nothing to copy")
	}
	m.copySome(t, rapid.IntRange(1, 4).Draw(t, "limit"))
}

func (m *machine) copySome(t *rapid.T, limit int) {
	marked, err := m.s.Copy(limit)
	must(t, err)
	if marked == nil {
		return
	}
	c, seen := marked.Cut(), map[string]bool{}
	for _, r := range c.Records {
		if seen[string(r.Key)] {
			t.Fatalf("key %x is twice in a cut", r.Key)
		}
		seen[string(r.Key)] = true
		if r.Merge {
			m.merged++
		}
	}
	m.pending = append(m.pending, c)
}

func (m *machine) apply(t *rapid.T) {
	if len(m.pending) == 0 {
		t.Skip("nothing to apply")
	}
	m.backend.apply(m.pending[0])
	m.pending = m.pending[1:]
	m.scan(t)
}

// scan reads the backend through the handles: it holds exactly the applied cut.
func (m *machine) scan(t *rapid.T) {
	got := map[string]string{}
	note := func(name string) func([]tuple.Value, string) error {
		return func(key []tuple.Value, v string) error {
			got[name+"/"+keyOf(key...).text] = v
			return nil
		}
	}
	for _, name := range m.names {
		fn := note(name)
		switch name {
		case "text":
			must(t, m.h.text.Scan(m.backend, fn))
		case "raw":
			must(t, m.h.raw.Scan(m.backend, func(k []tuple.Value, v []byte) error { return fn(k, string(v)) }))
		case "json":
			must(t, m.h.json.Scan(m.backend, func(k []tuple.Value, v map[string]int) error { return fn(k, fmt.Sprint(v["n"])) }))
		case "sum":
			must(t, m.h.sum.Scan(m.backend, func(k []tuple.Value, v int64) error { return fn(k, fmt.Sprint(v)) }))
		case "most":
			must(t, m.h.most.Scan(m.backend, func(k []tuple.Value, v int64) error { return fn(k, fmt.Sprint(v)) }))
		}
	}
	if want := m.cuts[m.backend.applied]; !maps.Equal(got, want) {
		t.Fatalf("batch %d holds %q, want %q", m.backend.applied, got, want)
	}
}

func (m *machine) settle(*rapid.T) {
	held := m.s.held
	m.s.Settle(m.backend.applied)
	if m.s.held < held {
		m.evicted++
	}
}

// restart goes on from the backend as after a crash.
func (m *machine) restart(t *rapid.T) {
	m.pending = nil
	m.batch = m.backend.applied
	m.now = maps.Clone(m.cuts[m.batch])
	clear(m.changed)
	m.start(t)
	m.restarts++
}

// check compares the account of the state with what its tables hold.
func (m *machine) check(t *rapid.T) {
	var want int64
	for _, tab := range m.s.tables {
		switch tab := tab.(type) {
		case *table[string]:
			want += held(tab)
		case *table[[]byte]:
			want += held(tab)
		case *table[map[string]int]:
			want += held(tab)
		case *table[int64]:
			want += held(tab)
		}
	}
	if m.s.held != want {
		t.Fatalf("the state accounts for %d bytes and holds %d", m.s.held, want)
	}
}

func held[T any](t *table[T]) (n int64) {
	for i := range t.n {
		if e := t.entry(i); e.flags&flagFree == 0 {
			n += t.cost(e)
		}
	}
	return n
}

func TestStateAgreesWithAModel(t *testing.T) {
	all := []string{"text", "raw", "sum", "most", "json"}
	var evicted, merged, restarted int
	check := func(t *rapid.T) {
		m := &machine{
			names:   rapid.Permutation(all).Draw(t, "states")[:rapid.IntRange(1, len(all)).Draw(t, "count")],
			keys:    keyPool[:rapid.SampledFrom([]int{6, len(keyPool)}).Draw(t, "keys")],
			backend: newMapBackend(),
			now:     map[string]string{},
			cuts:    map[BatchID]map[string]string{0: {}},
			changed: map[string]bool{},
		}
		m.start(t)
		t.Repeat(map[string]func(*rapid.T){
			"get": m.get, "set": m.set, "set again": m.set, "add more": m.addMore, "delete": m.del, "changed": m.iterate,
			"mark": m.mark, "copy": m.copy, "apply": m.apply, "settle": m.settle, "restart": m.restart, "": m.check,
		})
		evicted += m.evicted
		restarted += m.restarts
		merged += m.merged
	}
	rapid.Check(t, check)
	for range 20 { // one run may lack what is rare
		if merged > 0 || testing.Short() {
			break
		}
		rapid.Check(t, check)
	}
	if !testing.Short() && (evicted == 0 || merged == 0 || restarted == 0) {
		t.Errorf("%d evictions, %d merges and %d restarts: the test exercised too little", evicted, merged, restarted)
	}
}
