package txn_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// check compares all kinds at one key.
func (m *kindMachine) check(t *rapid.T) {
	k, i := m.key(t)
	v, ok, err := k.value.Get()
	must(t, err)
	if want := m.model.values[i]; ok != (want.at > m.now) || ok && v != want.val {
		t.Fatalf("key %v: value %q, %t, want %v at %d", kindKeys[i], v, ok, want, m.now)
	}
	n, ok, err := k.sum.Get()
	must(t, err)
	if want := m.model.sums[i]; ok != (want.at > m.now) || ok && n != want.val {
		t.Fatalf("key %v: sum %d, %t, want %v at %d", kindKeys[i], n, ok, want, m.now)
	}
	e := entry(t)
	v, ok, err = k.entries.Get(e)
	must(t, err)
	if want := m.model.maps[i][e]; ok != (want.at > m.now) || ok && v != want.val {
		t.Fatalf("key %v: entry %d is %q, %t, want %v at %d", kindKeys[i], e, v, ok, want, m.now)
	}
	m.checkMap(t, k, i)
	m.checkList(t, k, i)
}

func (m *kindMachine) checkMap(t *rapid.T, k *kindTask, i int) {
	var got, want []string
	var err error
	for e, v := range k.entries.All(&err) {
		got = append(got, fmt.Sprint(e, v))
	}
	must(t, err)
	for _, e := range slices.Sorted(maps.Keys(m.model.maps[i])) {
		if x := m.model.maps[i][e]; x.at > m.now {
			want = append(want, fmt.Sprint(e, x.val))
		}
	}
	n, err := k.entries.Len()
	must(t, err)
	if !slices.Equal(got, want) || n != len(want) {
		t.Fatalf("key %v: map %q of %d, want %q", kindKeys[i], got, n, want)
	}
}

func (m *kindMachine) checkList(t *rapid.T, k *kindTask, i int) {
	var got, want []string
	var err error
	for v := range k.list.All(&err) {
		got = append(got, v)
	}
	must(t, err)
	for _, x := range m.model.lists[i] {
		if x.at > m.now {
			want = append(want, x.val)
		}
	}
	n, err := k.list.Len()
	must(t, err)
	if !slices.Equal(got, want) || n != len(want) {
		t.Fatalf("key %v: list %q of %d, want %q", kindKeys[i], got, n, want)
	}
}

// scanPrefix reads the values of all tasks by prefix.
func (m *kindMachine) scanPrefix(t *rapid.T) {
	key := rapid.SampledFrom(kindKeys).Draw(t, "prefix")
	prefix := key[:rapid.IntRange(0, len(key)).Draw(t, "fields")]
	name := func(key []tuple.Value) string { enc, _ := tuple.AppendKey(nil, key...); return string(enc) }
	got, want := map[string]string{}, map[string]string{}
	for _, k := range m.tasks {
		last := ""
		must(t, k.value.ScanPrefix(prefix, func(key []tuple.Value, v string) error {
			hash, _ := tuple.HashKey(key)
			state := string(txn.AppendStateKey(nil, tuple.KeyGroup(hash, kindGroups), 0, []byte(name(key))))
			if state <= last {
				t.Fatalf("key %v comes out of order", key)
			}
			last = state
			got[name(key)] = v
			return nil
		}))
	}
	for i, x := range m.model.values {
		if k := kindKeys[i]; x.at > m.now && len(k) >= len(prefix) && name(k[:len(prefix)]) == name(prefix) {
			want[name(k)] = x.val
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("keys with prefix %v: %q, want %q", prefix, got, want)
	}
}
