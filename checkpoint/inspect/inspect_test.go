package inspect_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const keyGroups = 8

// keys begin each other in all the ways that there are.
var keys = [][]tuple.Value{
	{}, {tuple.String("")}, {tuple.String("a")}, {tuple.String("ab")}, {tuple.String("a\xff")}, {tuple.String("a\x00b")},
	{tuple.String("a"), tuple.Int(1)}, {tuple.String("a"), tuple.String("x\x00y")}, {tuple.String("ab"), tuple.String("")},
	{tuple.Int(7)}, {tuple.Int(7), tuple.String("a")}, {tuple.Float64(1.5), tuple.Bool(true)}, {tuple.Uint64(1), tuple.Value{}},
	{tuple.Time(time.Unix(5, 6))},
}

// entries is what a state should hold: of each key, an index of keys, the entries as text.
type entries map[int]map[string]string

func (e entries) set(key int, part, value string) {
	if e[key] == nil {
		e[key] = map[string]string{}
	}
	e[key][part] = value
}

// component is the tasks of one with a state of each kind, beside what they should hold.
type component struct {
	store      checkpoint.Store
	opener     *pebblestate.Opener
	generation checkpoint.Generation
	batch      checkpoint.BatchID
	now        int64
	tasks      []*task
	files      [][]checkpoint.FileRef
	metas      []txn.StateMeta
	model      map[string]entries
}

type task struct {
	state    *txn.State
	store    checkpoint.StateStore
	value    *txn.Value[string]
	expiring *txn.Value[float64]
	sum      *txn.Aggregate[int64]
	table    *txn.Map[int64, string]
	list     *txn.List[string]
	timers   *txn.Timers
}

var stateNames = []string{"expiring", "isobar.timers.processing", "list", "map", "sum", "value"}

func newComponent(store checkpoint.Store, dir string) *component {
	c := &component{store: store, opener: pebblestate.New(pebblestate.Options{Dir: dir, Store: store, CacheBytes: 1 << 20}),
		now: 1000, model: map[string]entries{}}
	for _, name := range stateNames {
		c.model[name] = entries{}
	}
	return c
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *component) close(t *rapid.T) {
	for _, k := range c.tasks {
		must(t, k.store.Close())
	}
	c.tasks = nil
}

func (c *component) restore(t *rapid.T, tasks int) {
	c.close(t)
	c.generation++
	all := slices.Concat(c.files...)
	c.files = make([][]checkpoint.FileRef, tasks)
	for i := range tasks {
		from, to := tuple.GroupRange(i, keyGroups, tasks)
		c.files[i] = checkpoint.ClipChain(all, from, to)
		store, err := c.opener.OpenState(t.Context(), checkpoint.StateConfig{
			Component: "kinds", TaskIndex: i, TaskID: checkpoint.TaskID(i), Generation: c.generation, Restored: c.batch,
			GroupFrom: from, GroupTo: to, Files: all, States: func() []txn.StateMeta { return c.metas },
		})
		must(t, err)
		s := txn.NewState(txn.StateConfig{Component: "kinds", Groups: keyGroups, From: from, To: to, Known: c.metas,
			Backend: store, CacheBytes: 1, Now: func() int64 { return c.now }})
		k := &task{state: s, store: store}
		k.value = txn.NewValue(s, "value", txn.StringCodec())
		k.expiring = txn.NewValue(s, "expiring", txn.Float64Codec(), txn.WithTTL(100*time.Millisecond))
		k.sum = txn.NewAggregate(s, "sum", txn.Sum())
		k.table = txn.NewMap(s, "map", txn.OrderedInt64Codec(), txn.JSONCodec[string]("text", 3))
		k.list = txn.NewList(s, "list", txn.StringCodec())
		k.timers = s.Timers()
		must(t, s.Seal())
		c.tasks = append(c.tasks, k)
	}
	c.metas = c.tasks[0].state.Metas()
}

// change makes one change of one key, of the tasks and of the model.
func (c *component) change(t *rapid.T) {
	key := rapid.IntRange(0, len(keys)-1).Draw(t, "key")
	hash, _ := tuple.HashKey(keys[key])
	k := c.tasks[tuple.TaskOfGroup(tuple.KeyGroup(hash, keyGroups), keyGroups, len(c.tasks))]
	must(t, k.state.SetKey(keys[key]...))
	n := rapid.Int64Range(-3, 3).Draw(t, "n")
	switch name := rapid.SampledFrom(stateNames).Draw(t, "state"); name {
	case "value":
		if n == 0 {
			must(t, k.value.Delete())
			delete(c.model[name], key)
			return
		}
		must(t, k.value.Set(fmt.Sprint(n)))
		c.model[name].set(key, "", fmt.Sprintf("%q", fmt.Sprint(n)))
	case "expiring":
		must(t, k.expiring.Set(float64(n)/2))
		c.model[name].set(key, "", fmt.Sprintf("%v until %d", float64(n)/2, c.now+100))
	case "sum":
		must(t, k.sum.Add(n))
		was := int64(0)
		if _, err := fmt.Sscan(c.model[name][key][""], &was); err != nil {
			was = 0
		}
		c.model[name].set(key, "", fmt.Sprint(was+n))
	case "map":
		must(t, k.table.Put(n, fmt.Sprint(n)))
		c.model[name].set(key, fmt.Sprint(n), fmt.Sprintf("%q", fmt.Sprint(n)))
	case "list":
		if n == 3 {
			must(t, k.list.Clear())
			delete(c.model[name], key)
			return
		}
		c.model[name].set(key, fmt.Sprint(len(c.model[name][key])), fmt.Sprintf("%q", fmt.Sprint(n)))
		must(t, k.list.Append(fmt.Sprint(n)))
	default:
		at := time.UnixMilli(n)
		part := fmt.Sprintf("%d timer", n)
		if k.timers.Delete(txn.Timer{At: at, Name: "timer"}); n%2 == 0 {
			delete(c.model[name][key], part)
			return
		}
		k.timers.SetProcessing(at, "timer")
		c.model[name].set(key, part, "null")
	}
}

// commit makes a batch of what was changed.
func (c *component) commit(t *rapid.T) {
	c.batch++
	for i, k := range c.tasks {
		cut, err := k.state.Cut(c.batch)
		must(t, err)
		c.files[i], err = k.store.Apply(t.Context(), cut)
		must(t, err)
		k.state.Settle(c.batch)
	}
}

func (c *component) manifest() *checkpoint.Manifest {
	m := &checkpoint.Manifest{
		Topology: "t", RunID: "r", Region: "kinds", Generation: c.generation, Batch: c.batch, UnixMilli: c.now, Engine: "e",
		Table: checkpoint.TableFormat, KeyGroups: keyGroups, Graph: "g",
		Components: map[string]checkpoint.ComponentMeta{"kinds": {Parallelism: len(c.tasks), Keyed: true}},
	}
	for i, files := range c.files {
		m.Tasks = append(m.Tasks, checkpoint.TaskSnapshot{Component: "kinds", Index: i, Files: slices.Clone(files), States: c.metas})
	}
	return m
}

// want returns the lines that show should make of the keys that are asked for.
func (c *component) want(name string, asked func(key int) bool) []string {
	var lines []string
	for key, parts := range c.model[name] {
		for part, value := range parts {
			var until int64
			if _, at, ok := strings.Cut(value, " until "); ok {
				if _, err := fmt.Sscan(at, &until); err != nil {
					panic(err)
				}
			}
			if asked(key) && (until == 0 || until > c.now) {
				lines = append(lines, fmt.Sprintf("%d %s = %s", key, part, value))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// show returns an entry as want does. Its key goes through its form in JSON.
func show(t *rapid.T, s *inspect.State, e *inspect.Entry) string {
	elements, err := inspect.JSONKey(e.Key)
	must(t, err)
	text, err := json.Marshal(elements)
	must(t, err)
	vals, err := inspect.ParseKey(string(text))
	must(t, err)
	encoded, err := tuple.AppendKey(nil, vals...)
	must(t, err)
	key := slices.IndexFunc(keys, func(k []tuple.Value) bool {
		b, _ := tuple.AppendKey(nil, k...)
		return string(b) == string(encoded)
	})
	part := map[string]string{"map": fmt.Sprint(s.MapKey(e)), "list": fmt.Sprint(e.Index), "timer": fmt.Sprintf("%d %s", e.At, e.Timer)}[s.Kind()]
	value, err := json.Marshal(s.Value(e))
	must(t, err)
	until := ""
	if e.Expires != 0 {
		until = fmt.Sprint(" until ", e.Expires)
	}
	return fmt.Sprintf("%d %s = %s%s", key, part, value, until)
}

// check compares everything that is read offline with the model.
func (c *component) check(t *rapid.T) {
	cp, err := inspect.New(c.store, c.manifest())
	must(t, err)
	texts := []string{"", "a", "ab", "a\x00", "b"}
	values := [][]tuple.Value{keys[2], keys[3], keys[6], keys[9], keys[11], {tuple.Float64(1.5)}}
	for _, name := range stateNames {
		s, err := cp.State("kinds", name)
		must(t, err)
		var got []string
		collect := func(e *inspect.Entry) error { got = append(got, show(t, s, e)); return nil }
		compare := func(what string, asked func(key int) bool) {
			slices.Sort(got)
			if want := c.want(name, asked); !slices.Equal(got, want) {
				t.Fatalf("%s of state %s gives %q, want %q", what, name, got, want)
			}
			got = nil
		}
		for _, text := range texts {
			p := inspect.Prefix{Text: text}
			must(t, s.Scan(t.Context(), p, collect))
			c.checkCount(t, s, p, got)
			compare(fmt.Sprintf("scan of %q", text), func(key int) bool { return text == "" || beginsWithText(keys[key], text) })
		}
		for _, vals := range values {
			p := inspect.Prefix{Values: vals}
			must(t, s.Scan(t.Context(), p, collect))
			compare(fmt.Sprintf("scan of %v", vals), func(key int) bool {
				return len(keys[key]) >= len(vals) && fmt.Sprint(keys[key][:len(vals)]) == fmt.Sprint(vals)
			})
		}
		for key, vals := range keys {
			must(t, s.Get(t.Context(), vals, collect))
			compare(fmt.Sprintf("get of %v", vals), func(k int) bool { return k == key })
		}
	}
}

func (c *component) checkCount(t *rapid.T, s *inspect.State, p inspect.Prefix, lines []string) {
	n, err := s.Count(t.Context(), p)
	must(t, err)
	distinct := map[string]bool{}
	for _, l := range lines {
		key, _, _ := strings.Cut(l, " ")
		distinct[key] = true
	}
	if s.Kind() == "timer" {
		clear(distinct)
	}
	if want := (inspect.Counts{Keys: int64(len(distinct)), Entries: int64(len(lines))}); n != want {
		t.Fatalf("state %s counts %+v with %+v, want %+v", s.Meta.Name, n, p, want)
	}
}

func beginsWithText(key []tuple.Value, text string) bool {
	if len(key) == 0 {
		return false
	}
	first, ok := key[0].Text()
	return ok && strings.HasPrefix(first, text)
}

// run makes a component at random and hands it to check after each batch.
func run(t *testing.T, check func(t *rapid.T, c *component)) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		c := newComponent(memstore.New(), dir)
		defer func() { c.close(t); must(t, c.opener.Close()) }()
		c.restore(t, rapid.IntRange(1, 3).Draw(t, "tasks"))
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			for range rapid.IntRange(0, 20).Draw(t, "changes") {
				c.change(t)
			}
			c.commit(t)
			c.now += rapid.Int64Range(0, 60).Draw(t, "pause")
			check(t, c)
			if rapid.IntRange(0, 2).Draw(t, "restart") == 0 {
				c.restore(t, rapid.IntRange(1, 4).Draw(t, "tasks"))
			}
		}
	})
}

func TestStateIsReadOfflineAsItWasWritten(t *testing.T) {
	run(t, func(t *rapid.T, c *component) { c.check(t) })
}

func TestDiffTellsWhatHasChanged(t *testing.T) {
	var before *inspect.Checkpoint
	var of *component
	held := map[string][]string{}
	run(t, func(t *rapid.T, c *component) {
		now, err := inspect.New(c.store, c.manifest())
		must(t, err)
		want := map[string]bool{}
		if of != c {
			of, before, held = c, now, map[string][]string{}
			for _, name := range stateNames {
				held[name] = c.want(name, func(int) bool { return true })
			}
		}
		for _, name := range stateNames {
			lines := c.want(name, func(int) bool { return true })
			for _, l := range held[name] {
				if !slices.Contains(lines, l) {
					want[name+" - "+l] = true
				}
			}
			for _, l := range lines {
				if !slices.Contains(held[name], l) {
					want[name+" + "+l] = true
				}
			}
			held[name] = lines
		}
		got := map[string]bool{}
		must(t, inspect.Diff(t.Context(), before, now, func(ch inspect.Change) error {
			if ch.Before != nil {
				got[ch.Of.Meta.Name+" - "+show(t, ch.Of, ch.Before)] = true
			}
			if ch.After != nil {
				got[ch.Of.Meta.Name+" + "+show(t, ch.Of, ch.After)] = true
			}
			return nil
		}))
		if !maps.Equal(got, want) {
			t.Fatalf("the difference is %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		before = now
	})
}
