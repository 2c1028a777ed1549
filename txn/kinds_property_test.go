package txn_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const kindGroups = 8

// kindKeys are keys of one and two fields, some of which begin others.
var kindKeys = [][]tuple.Value{
	{},
	{tuple.String("a")},
	{tuple.String("a"), tuple.Int(1)},
	{tuple.String("a"), tuple.Int(-1)},
	{tuple.String("a"), tuple.String("x\x00y")},
	{tuple.String("a\x00"), tuple.Int(1)},
	{tuple.String("ab"), tuple.String("")},
	{tuple.Int(7)},
	{tuple.Int(7), tuple.String("a")},
	{tuple.String("")},
}

// expiring is something of the model that may expire.
type expiring[T any] struct {
	val T
	at  int64 // when it expires
}

// timerModel is a timer of the model.
type timerModel struct {
	at   int64
	key  int // in kindKeys
	name string
}

// kindModel is what the states should hold; keys are indexes of kindKeys.
type kindModel struct {
	values map[int]expiring[string]
	sums   map[int]expiring[int64]
	maps   map[int]map[int64]expiring[string]
	lists  map[int][]expiring[string]
	timers map[timerModel]bool
}

func (m kindModel) clone() kindModel {
	c := kindModel{values: maps.Clone(m.values), sums: maps.Clone(m.sums), timers: maps.Clone(m.timers),
		maps: map[int]map[int64]expiring[string]{}, lists: map[int][]expiring[string]{}}
	for k, v := range m.maps {
		c.maps[k] = maps.Clone(v)
	}
	for k, v := range m.lists {
		c.lists[k] = slices.Clone(v)
	}
	return c
}

// kindTask is one task with a state of every kind.
type kindTask struct {
	store    checkpoint.StateStore
	s        *txn.State
	from, to int
	value    *txn.Value[string]
	sum      *txn.Aggregate[int64]
	entries  *txn.Map[int64, string]
	list     *txn.List[string]
	timers   *txn.Timers
	cuts     []*txn.Cut // not yet applied
}

// kindMachine checks the tasks of a component against a model.
type kindMachine struct {
	opener     checkpoint.StateOpener
	generation checkpoint.Generation
	ttl        time.Duration
	now        int64
	tasks      []*kindTask
	files      [][]checkpoint.FileRef
	metas      []txn.StateMeta
	model      kindModel
	batch      checkpoint.BatchID
	applied    checkpoint.BatchID
	cut        map[checkpoint.BatchID]kindModel // as of batches that were cut
	saved      map[checkpoint.BatchID][]checkpoint.FileRef
	fired      int
	restored   int
}

func newKindMachine(opener checkpoint.StateOpener, generation checkpoint.Generation, ttl time.Duration) *kindMachine {
	m := &kindMachine{opener: opener, generation: generation, ttl: ttl, now: 1000,
		saved: map[checkpoint.BatchID][]checkpoint.FileRef{0: nil}}
	m.model = kindModel{}.clone()
	m.model.values, m.model.sums, m.model.timers = map[int]expiring[string]{}, map[int]expiring[int64]{}, map[timerModel]bool{}
	m.cut = map[checkpoint.BatchID]kindModel{0: m.model.clone()}
	return m
}

func (m *kindMachine) close(t *rapid.T) {
	for _, k := range m.tasks {
		must(t, k.store.Close())
	}
	m.tasks = nil
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// restore goes on from the checkpoint of batch n with another number of tasks.
func (m *kindMachine) restore(t *rapid.T, n checkpoint.BatchID, tasks int) {
	m.close(t)
	m.generation++
	m.batch, m.applied, m.model = n, n, m.cut[n].clone()
	m.files = make([][]checkpoint.FileRef, tasks)
	for i := range tasks {
		k := &kindTask{}
		k.from, k.to = tuple.GroupRange(i, kindGroups, tasks)
		var err error
		k.store, err = m.opener.OpenState(t.Context(), checkpoint.StateConfig{
			Component: "kinds", TaskIndex: i, TaskID: checkpoint.TaskID(i), Generation: m.generation, Restored: n,
			GroupFrom: k.from, GroupTo: k.to, Files: m.saved[n],
			States: func() []txn.StateMeta { return m.metas }, Now: func() int64 { return m.now },
		})
		must(t, err)
		k.s = txn.NewState(txn.StateConfig{Component: "kinds", Groups: kindGroups, From: k.from, To: k.to, Known: m.metas,
			Backend: k.store, CacheBytes: 1, Now: func() int64 { return m.now }})
		var opts []txn.StateOption
		if m.ttl > 0 {
			opts = append(opts, txn.WithTTL(m.ttl))
		}
		k.value = txn.NewValue(k.s, "value", txn.StringCodec(), opts...)
		k.entries = txn.NewMap(k.s, "map", txn.OrderedInt64Codec(), txn.StringCodec(), opts...)
		k.list = txn.NewList(k.s, "list", txn.StringCodec(), opts...)
		k.sum = txn.NewAggregate(k.s, "sum", txn.Sum(), opts...)
		k.timers = k.s.Timers()
		must(t, k.s.Seal())
		m.tasks = append(m.tasks, k)
	}
	m.metas = m.tasks[0].s.Metas()
}

// key draws a key and makes it the current one of its task.
func (m *kindMachine) key(t *rapid.T) (*kindTask, int) {
	i := rapid.IntRange(0, len(kindKeys)-1).Draw(t, "key")
	return m.at(t, i), i
}

func (m *kindMachine) at(t *rapid.T, i int) *kindTask {
	hash, _ := tuple.HashKey(kindKeys[i])
	k := m.tasks[tuple.TaskOfGroup(tuple.KeyGroup(hash, kindGroups), kindGroups, len(m.tasks))]
	must(t, k.s.SetKey(kindKeys[i]...))
	return k
}

func (m *kindMachine) expiry() int64 {
	if m.ttl == 0 {
		return math.MaxInt64
	}
	return m.now + m.ttl.Milliseconds()
}

func text(t *rapid.T) string { return rapid.SampledFrom([]string{"", "x", "yy"}).Draw(t, "text") }

func entry(t *rapid.T) int64 { return rapid.Int64Range(-2, 2).Draw(t, "entry") }

func (m *kindMachine) setValue(t *rapid.T) {
	k, i := m.key(t)
	v := text(t)
	must(t, k.value.Set(v))
	m.model.values[i] = expiring[string]{v, m.expiry()}
}

func (m *kindMachine) deleteValue(t *rapid.T) {
	k, i := m.key(t)
	must(t, k.value.Delete())
	delete(m.model.values, i)
}

func (m *kindMachine) add(t *rapid.T) {
	k, i := m.key(t)
	n := rapid.Int64Range(-9, 9).Draw(t, "n")
	must(t, k.sum.Add(n))
	if old := m.model.sums[i]; old.at > m.now {
		n += old.val
	}
	m.model.sums[i] = expiring[int64]{n, m.expiry()}
}

func (m *kindMachine) put(t *rapid.T) {
	k, i := m.key(t)
	e, v := entry(t), text(t)
	must(t, k.entries.Put(e, v))
	if m.model.maps[i] == nil {
		m.model.maps[i] = map[int64]expiring[string]{}
	}
	m.model.maps[i][e] = expiring[string]{v, m.expiry()}
}

func (m *kindMachine) deleteEntry(t *rapid.T) {
	k, i := m.key(t)
	e := entry(t)
	must(t, k.entries.Delete(e))
	delete(m.model.maps[i], e)
}

func (m *kindMachine) clear(t *rapid.T) {
	k, i := m.key(t)
	if rapid.Bool().Draw(t, "list") {
		must(t, k.list.Clear())
		delete(m.model.lists, i)
		return
	}
	must(t, k.entries.Clear())
	delete(m.model.maps, i)
}

func (m *kindMachine) appendList(t *rapid.T) {
	k, i := m.key(t)
	vals := rapid.SliceOfN(rapid.Custom(text), 0, 3).Draw(t, "elements")
	if rapid.Bool().Draw(t, "replace") {
		must(t, k.list.Set(vals...))
		delete(m.model.lists, i)
	} else {
		must(t, k.list.Append(vals...))
	}
	for _, v := range vals {
		m.model.lists[i] = append(m.model.lists[i], expiring[string]{v, m.expiry()})
	}
}

func (m *kindMachine) setTimer(t *rapid.T) {
	k, i := m.key(t)
	timer := timerModel{m.now + rapid.Int64Range(-5, 50).Draw(t, "in"), i, text(t)}
	if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
		k.timers.Delete(txn.Timer{At: time.UnixMilli(timer.at), Name: timer.name})
		delete(m.model.timers, timer)
		return
	}
	k.timers.SetProcessing(time.UnixMilli(timer.at), timer.name)
	m.model.timers[timer] = true
}

// fire fires what is due: everything, once, in order.
func (m *kindMachine) fire(t *rapid.T) {
	got := map[timerModel]bool{}
	for _, k := range m.tasks {
		last := int64(math.MinInt64)
		for {
			n, err := k.timers.FireProcessing(m.now, func(timer txn.Timer) error {
				at := timer.At.UnixMilli()
				if at < last || at > m.now {
					t.Fatalf("timer at %d fired after %d, at %d", at, last, m.now)
				}
				last = at
				// The key is the current one: its value tells which one it is.
				must(t, k.value.Set("fired"))
				f := timerModel{at: at, key: -1, name: timer.Name}
				for i, vals := range kindKeys {
					if want := (timerModel{at, i, timer.Name}); m.model.timers[want] && !got[want] && m.mine(k, vals) {
						must(t, k.s.SetKey(vals...))
						if v, _, err := k.value.Get(); err == nil && v == "fired" {
							f = want
							must(t, k.value.Set("known"))
						}
					}
				}
				if f.key < 0 {
					t.Fatalf("timer %q at %d fired, which is not set", f.name, at)
				}
				m.model.values[f.key] = expiring[string]{"known", m.expiry()}
				got[f] = true
				m.fired++
				return nil
			})
			must(t, err)
			if n == 0 {
				break
			}
		}
		if next, ok, err := k.timers.NextProcessing(); err != nil || ok && next <= m.now {
			t.Fatalf("after all have fired the next is at %d, %v", next, err)
		}
	}
	for timer := range m.model.timers {
		if (timer.at <= m.now) != got[timer] {
			t.Fatalf("at %d timer %v fired: %t", m.now, timer, got[timer])
		}
	}
	maps.DeleteFunc(m.model.timers, func(timer timerModel, _ bool) bool { return got[timer] })
}

func (m *kindMachine) mine(k *kindTask, vals []tuple.Value) bool {
	hash, _ := tuple.HashKey(vals)
	g := tuple.KeyGroup(hash, kindGroups)
	return g >= k.from && g < k.to
}

func (m *kindMachine) advance(t *rapid.T) { m.now += rapid.Int64Range(1, 60).Draw(t, "ms") }

func (m *kindMachine) finish(t *rapid.T) {
	m.batch++
	for _, k := range m.tasks {
		c, err := k.s.Cut(m.batch)
		must(t, err)
		seen := map[string]bool{}
		for _, r := range c.Records {
			if seen[string(r.Key)] {
				t.Fatalf("key %x is twice in a cut", r.Key)
			}
			seen[string(r.Key)] = true
		}
		k.cuts = append(k.cuts, c)
		k.s.Settle(m.applied)
	}
	m.cut[m.batch] = m.model.clone()
}

func (m *kindMachine) apply(t *rapid.T) {
	if m.applied == m.batch {
		t.Skip("nothing to apply")
	}
	m.applied++
	for i, k := range m.tasks {
		files, err := k.store.Apply(t.Context(), k.cuts[0])
		must(t, err)
		m.files[i], k.cuts = files, k.cuts[1:]
	}
	m.saved[m.applied] = slices.Concat(m.files...)
	m.checkView(t)
}

// checkView reads the batch just applied as a sink does.
func (m *kindMachine) checkView(t *rapid.T) {
	name := func(key []tuple.Value) string { return fmt.Sprint(key) }
	var got, want []string
	for _, k := range m.tasks {
		view, err := k.store.View(m.applied)
		must(t, err)
		must(t, k.entries.Scan(view, func(key []tuple.Value, e int64, v string) error {
			got = append(got, fmt.Sprint(name(key), e, v))
			return nil
		}))
		must(t, k.list.Scan(view, func(key []tuple.Value, v string) error { got = append(got, name(key)+" "+v); return nil }))
		must(t, k.value.Scan(view, func(key []tuple.Value, v string) error { got = append(got, name(key)+"="+v); return nil }))
	}
	was := m.cut[m.applied]
	for i, key := range kindKeys {
		for e, x := range was.maps[i] {
			if x.at > m.now {
				want = append(want, fmt.Sprint(name(key), e, x.val))
			}
		}
		for _, x := range was.lists[i] {
			if x.at > m.now {
				want = append(want, name(key)+" "+x.val)
			}
		}
		if x := was.values[i]; x.at > m.now {
			want = append(want, name(key)+"="+x.val)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("batch %d holds\n%s\nwant\n%s", m.applied, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// crash goes back to a checkpoint.
func (m *kindMachine) crash(t *rapid.T) {
	n := rapid.SampledFrom(slices.Sorted(maps.Keys(m.saved))).Draw(t, "restored")
	maps.DeleteFunc(m.saved, func(b checkpoint.BatchID, _ []checkpoint.FileRef) bool { return b > n })
	m.restore(t, n, rapid.IntRange(1, 3).Draw(t, "tasks"))
	m.restored++
}

func testKinds(t *testing.T, open func(t *testing.T, store checkpoint.Store) checkpoint.StateOpener) {
	opener := open(t, memstore.New())
	var generation checkpoint.Generation
	fired, restored := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := newKindMachine(opener, generation, time.Duration(rapid.SampledFrom([]int{0, 40}).Draw(t, "ttl"))*time.Millisecond)
		defer func() {
			m.close(t)
			generation, fired, restored = m.generation, fired+m.fired, restored+m.restored
		}()
		m.restore(t, 0, rapid.IntRange(1, 3).Draw(t, "tasks"))
		t.Repeat(map[string]func(*rapid.T){
			"set": m.setValue, "delete": m.deleteValue, "add": m.add, "put": m.put, "put again": m.put, "delete entry": m.deleteEntry,
			"clear": m.clear, "list": m.appendList, "list again": m.appendList, "timer": m.setTimer, "timer again": m.setTimer, "fire": m.fire,
			"check": m.check, "check again": m.check, "prefix": m.scanPrefix, "advance": m.advance,
			"finish": m.finish, "apply": m.apply, "crash": m.crash,
		})
	})
	if !testing.Short() && (fired == 0 || restored == 0) { // a short run draws too little to be sure
		t.Errorf("%d timers fired and %d restores: the test exercised too little", fired, restored)
	}
}

func TestKindsAgreeWithAModelInMemory(t *testing.T) {
	testKinds(t, func(_ *testing.T, store checkpoint.Store) checkpoint.StateOpener { return memstore.NewOpener(store) })
}

func TestKindsAgreeWithAModelInPebble(t *testing.T) {
	testKinds(t, openPebble)
}

func openPebble(t *testing.T, store checkpoint.Store) checkpoint.StateOpener {
	o := pebblestate.New(pebblestate.Options{Dir: t.TempDir(), Store: store})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}
