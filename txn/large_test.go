package txn_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// large is state of every kind, for whose keys and values there is no limit.
type large struct {
	value *txn.Value[[]byte]
	m     *txn.Map[[]byte, []byte]
	list  *txn.List[[]byte]
	sum   *txn.Aggregate[int64]
	s     *txn.State
	store checkpoint.StateStore
	metas []txn.StateMeta
}

// openLarge opens the state of one of tasks from files.
func openLarge(t *testing.T, o *pebblestate.Opener, g checkpoint.Generation, n checkpoint.BatchID, files []checkpoint.FileRef, task, tasks int) *large {
	t.Helper()
	l := &large{}
	from, to := task*kindGroups/tasks, (task+1)*kindGroups/tasks
	var err error
	l.store, err = o.OpenState(t.Context(), checkpoint.StateConfig{
		Component: "c", TaskID: checkpoint.TaskID(task), Generation: g, Restored: n, Files: files, GroupFrom: from, GroupTo: to,
		States: func() []txn.StateMeta { return l.metas },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
	l.s = txn.NewState(txn.StateConfig{Component: "c", Groups: kindGroups, From: from, To: to, Backend: l.store, CacheBytes: 1 << 20})
	l.value = txn.NewValue(l.s, "value", txn.BytesCodec())
	l.m = txn.NewMap(l.s, "map", txn.BytesCodec(), txn.BytesCodec())
	l.list = txn.NewList(l.s, "list", txn.BytesCodec())
	l.sum = txn.NewAggregate(l.s, "sum", txn.Sum())
	if err := l.s.Seal(); err != nil {
		t.Fatal(err)
	}
	l.metas = l.s.Metas()
	return l
}

// check fails unless the current key holds what was put there.
func (l *large) check(t *testing.T, key, value []byte) {
	t.Helper()
	got, ok, err := l.value.Get()
	if err != nil || !ok || !bytes.Equal(got, value) {
		t.Errorf("the value has %d bytes, want %d: %t, %v", len(got), len(value), ok, err)
	}
	got, ok, err = l.m.Get(key)
	if err != nil || !ok || !bytes.Equal(got, value[:len(value)/4]) {
		t.Errorf("the map holds %d bytes, want %d: %t, %v", len(got), len(value)/4, ok, err)
	}
	items := 0
	for item := range l.list.All(&err) {
		if items++; !bytes.Equal(item, value[:len(value)/8]) {
			t.Errorf("an item of the list has %d bytes, want %d", len(item), len(value)/8)
		}
	}
	if sum, _, sumErr := l.sum.Get(); err != nil || sumErr != nil || items != 2 || sum != 7 {
		t.Errorf("%d items, sum %d, %v, %v", items, sum, err, sumErr)
	}
}

// Case: a value beyond what a frame, a message or a batch could hold broke a connection,
// hung or panicked. Values of 64 MB and keys of 64 KB are state as any other: they are
// cut, stored, restored and dealt to other tasks, without being copied many times over.
func TestLargeValuesAndKeysAreRestoredByOtherTasks(t *testing.T) {
	value := make([]byte, 64<<20)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(value); err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{value[:64<<10], value[1 : 64<<10], value[2 : 64<<10]}
	payload := uint64(len(value)) * 3 / 2 // of the first key; the others are small
	store, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := pebblestate.New(pebblestate.Options{Dir: t.TempDir(), Store: store})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	valueOf := func(i int) []byte { return value[:len(value)>>(10*i)] }
	allocated := func(what string, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		n := float64(after.TotalAlloc-before.TotalAlloc) / float64(payload)
		t.Logf("%s allocates %.1f times the state", what, n)
		if n > 12 { // up to 8.3 were seen: how well pools serve is a matter of luck
			t.Errorf("%s allocates %.1f times the state", what, n)
		}
	}
	l := openLarge(t, o, 1, 0, nil, 0, 1)
	var files []checkpoint.FileRef
	allocated("writing", func() {
		for i, key := range keys {
			v := valueOf(i)
			if err := errors.Join(l.s.SetKey(tuple.Bytes(key)), l.value.Set(v), l.m.Put(key, v[:len(v)/4]),
				l.list.Append(v[:len(v)/8], v[:len(v)/8]), l.sum.Add(7)); err != nil {
				t.Fatal(err)
			}
		}
		cut, err := l.s.Cut(1)
		if err != nil {
			t.Fatal(err)
		}
		if files, err = l.store.Apply(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		l.s.Settle(1)
	})
	for g, tasks := range []int{1, 3} {
		allocated("restoring", func() {
			found := 0
			for task := range tasks {
				l := openLarge(t, o, checkpoint.Generation(g+2), 1, files, task, tasks)
				for i, key := range keys {
					if l.s.SetKey(tuple.Bytes(key)) == nil { // else it is another task's
						found++
						l.check(t, key, valueOf(i))
					}
				}
			}
			if found != len(keys) {
				t.Errorf("%d tasks own %d of %d keys", tasks, found, len(keys))
			}
		})
	}
}
