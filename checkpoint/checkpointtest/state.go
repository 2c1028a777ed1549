package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/txn"
)

// RunState runs the suite of checkpoint.StateOpener. open returns an opener that
// keeps its objects in store; it sees to its own clean-up.
func RunState(t *testing.T, open func(t *testing.T, store checkpoint.Store) checkpoint.StateOpener) {
	for name, test := range map[string]func(t *testing.T, c *cluster){
		"AgreesWithModel":      agreesWithModel,
		"DeletedStaysDeleted":  deletedStaysDeleted,
		"EmptyState":           emptyState,
		"EmptyCut":             emptyCut,
		"Views":                views,
		"GetDuringApply":       getDuringApply,
		"Range":                ranges,
		"RangeDuringApply":     rangeDuringApply,
		"ExpiredLeaveBases":    expiredLeaveBases,
		"ShrunkIsWrittenAnew":  shrunkIsWrittenAnew,
		"BadCuts":              badCuts,
		"RetryAfterFailedPut":  retryAfterFailedPut,
		"Damage":               damage,
		"Bases":                bases,
		"OldGenerationLivesOn": oldGenerationLivesOn,
		"Steps":                steps,
		"MergesOntoNothing":    mergesOntoNothing,
		"MergesOnceByRescale":  mergesOnceByRescale,
		"MergesOnceByRetries":  mergesOnceByRetries,
		"MergesInBases":        mergesInBases,
		"GetIsExact":           getIsExact,
		"BadMerges":            badMerges,
	} {
		t.Run(name, func(t *testing.T) {
			store := &faultyStore{Store: memstore.New()}
			c := newCluster(store, open(t, store))
			t.Cleanup(func() { c.close(t) })
			test(t, c)
		})
	}
}

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// faultyStore fails the puts that its functions want failed, before or after they
// have taken place.
type faultyStore struct {
	checkpoint.Store
	before, after func(name string) error
}

func (f *faultyStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if f.before != nil {
		if err := f.before(name); err != nil {
			return err
		}
	}
	if err := f.Store.Put(ctx, name, body, size, crc); err != nil {
		return err
	}
	if f.after != nil {
		return f.after(name)
	}
	return nil
}

const keyGroups = 8

var testStates = []txn.StateMeta{
	{ID: 1, Name: "low", Kind: "value", Codec: "bytes"},
	{ID: 700, Name: "high", Kind: "value", Codec: "bytes"},
	{ID: 800, Name: "expiring", Kind: "value+ttl", Codec: "bytes"},
	{ID: 900 + sum, Name: "sum", Kind: "aggregate", Codec: "sum"},
	{ID: 900 + least, Name: "min", Kind: "aggregate", Codec: "min"},
	{ID: 900 + most, Name: "max", Kind: "aggregate", Codec: "max"},
}

// cluster is the tasks of one keyed component beside a model of their state: a map
// from state key to value.
type cluster struct {
	store      *faultyStore
	opener     checkpoint.StateOpener
	hook       func(step string)
	now        func() int64
	generation checkpoint.Generation
	batch      checkpoint.BatchID
	tasks      []checkpoint.StateStore
	files      [][]checkpoint.FileRef // of each task, as of batch
	model      map[string]string
	views      map[checkpoint.BatchID]map[string]string // the models of batches not released
	saved      map[checkpoint.BatchID]saved
}

// saved is a checkpoint.
type saved struct {
	files [][]checkpoint.FileRef
	model map[string]string
}

func newCluster(store *faultyStore, opener checkpoint.StateOpener) *cluster {
	return &cluster{store: store, opener: opener, saved: map[checkpoint.BatchID]saved{0: {}}}
}

func (c *cluster) close(t tb) {
	for _, s := range c.tasks {
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	c.tasks = nil
}

func groupRange(task, tasks int) (from, to int) {
	return task * keyGroups / tasks, (task + 1) * keyGroups / tasks
}

func (c *cluster) config(n checkpoint.BatchID, task, tasks int) checkpoint.StateConfig {
	from, to := groupRange(task, tasks)
	return checkpoint.StateConfig{
		Component: "count", TaskIndex: task, TaskID: checkpoint.TaskID(10 + task), Generation: c.generation,
		Restored: n, GroupFrom: from, GroupTo: to, Files: slices.Concat(c.saved[n].files...),
		States: func() []txn.StateMeta { return testStates }, Hook: c.hook, Now: c.now,
	}
}

// restore goes back to the checkpoint of batch n with this many tasks.
func (c *cluster) restore(t tb, n checkpoint.BatchID, tasks int) {
	t.Helper()
	c.close(t)
	c.generation++
	c.batch, c.model = n, maps.Clone(c.saved[n].model)
	if c.model == nil {
		c.model = map[string]string{}
	}
	c.files = make([][]checkpoint.FileRef, tasks)
	for i := range tasks {
		s, err := c.opener.OpenState(context.Background(), c.config(n, i, tasks))
		if err != nil {
			t.Fatalf("restore batch %d, task %d of %d: %v", n, i, tasks, err)
		}
		c.tasks = append(c.tasks, s)
	}
	c.views = map[checkpoint.BatchID]map[string]string{n: maps.Clone(c.model)}
	c.checkView(t, n)
}

// record makes a change of one key; value "-" deletes it.
func record(group, state int, key, value string) txn.Record {
	r := txn.Record{Key: txn.AppendStateKey(nil, group, testStates[state].ID, []byte(key)), Delete: value == "-"}
	if !r.Delete {
		r.Value = []byte(value)
	}
	return r
}

// cuts divides the changes of one batch among the tasks.
func (c *cluster) cuts(n checkpoint.BatchID, records []txn.Record) []*txn.Cut {
	cuts := make([]*txn.Cut, len(c.tasks))
	for i := range cuts {
		cuts[i] = &txn.Cut{Batch: n}
	}
	for _, r := range records {
		for i := range cuts {
			if from, to := groupRange(i, len(cuts)); int(r.Key[1]) >= from && int(r.Key[1]) < to {
				cuts[i].Records = append(cuts[i].Records, r)
			}
		}
	}
	return cuts
}

// apply makes the next batch of these changes, and a checkpoint of it.
func (c *cluster) apply(t tb, records ...txn.Record) {
	t.Helper()
	c.batch++
	for _, r := range records {
		c.change(r)
	}
	for i, cut := range c.cuts(c.batch, records) {
		files, err := c.tasks[i].Apply(context.Background(), cut)
		if err != nil {
			t.Fatalf("apply batch %d to task %d: %v", c.batch, i, err)
		}
		c.files[i] = files
	}
	c.views[c.batch] = maps.Clone(c.model)
	c.saved[c.batch] = saved{slices.Clone(c.files), maps.Clone(c.model)}
	c.checkManifest(t)
}

// checkManifest demands that the files can be named by a manifest.
func (c *cluster) checkManifest(t tb) {
	t.Helper()
	m := &checkpoint.Manifest{
		Topology: "t", RunID: "r", Region: "r", Generation: c.generation, Batch: c.batch, Engine: "e", Table: "t",
		KeyGroups: keyGroups, Graph: "g", Components: map[string]checkpoint.ComponentMeta{"count": {Parallelism: len(c.tasks)}},
	}
	for i, files := range c.files {
		m.Tasks = append(m.Tasks, checkpoint.TaskSnapshot{Component: "count", Index: i, Files: files, States: testStates})
	}
	if _, err := checkpoint.EncodeManifest(m); err != nil {
		t.Fatalf("%v", err)
	}
}

// checkView compares the views of batch n, and what Get says if n is the newest,
// with the model.
func (c *cluster) checkView(t tb, n checkpoint.BatchID) {
	t.Helper()
	got, want := "", ""
	for _, meta := range testStates {
		for i, s := range c.tasks {
			v, err := s.View(n)
			if err != nil {
				t.Fatalf("view of batch %d: %v", n, err)
			}
			err = v.Scan(meta.Name, func(key, value []byte) error {
				got += fmt.Sprintf("%s/%d %q=%q\n", meta.Name, i, key, value)
				return nil
			})
			if err != nil {
				t.Fatalf("scan of batch %d: %v", n, err)
			}
			from, to := groupRange(i, len(c.tasks))
			for _, k := range slices.Sorted(maps.Keys(c.views[n])) {
				group, state, key, _ := txn.SplitStateKey([]byte(k))
				if state == meta.ID && group >= from && group < to {
					want += fmt.Sprintf("%s/%d %q=%q\n", meta.Name, i, key, c.views[n][k])
				}
			}
		}
	}
	if got != want {
		t.Fatalf("batch %d of %d tasks in generation %d holds\n%sbut should hold\n%s", n, len(c.tasks), c.generation, got, want)
	}
	if n != c.batch {
		return
	}
	for k, want := range c.model {
		c.checkGet(t, k, want, true)
	}
}

func (c *cluster) checkGet(t tb, key, want string, there bool) {
	t.Helper()
	for i, s := range c.tasks {
		if from, to := groupRange(i, len(c.tasks)); int(key[1]) < from || int(key[1]) >= to {
			continue
		}
		if there && s.Empty() {
			t.Fatalf("task %d says that it is empty", i)
		}
		got, asOf, err := s.Get([]byte(key))
		if err != nil || (got != nil) != there || string(got) != want || asOf != c.batch {
			t.Fatalf("get %x gives %q as of %d, %v; want %q, %v as of %d", key, got, asOf, err, want, there, c.batch)
		}
	}
}

// agreesWithModel draws changes, views, releases and restores at any parallelism.
func agreesWithModel(t *testing.T, outer *cluster) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(outer.store, outer.opener)
		c.generation = outer.generation
		defer func() { outer.generation = c.generation; c.close(t) }()
		c.restore(t, 0, rapid.IntRange(1, 3).Draw(t, "tasks"))
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			default:
				changes := rapid.SliceOfNDistinct(rapid.Custom(drawRecord), 0, 12, func(r txn.Record) string { return string(r.Key) }).Draw(t, "changes")
				c.apply(t, changes...)
			case 3:
				c.checkView(t, rapid.SampledFrom(slices.Sorted(maps.Keys(c.views))).Draw(t, "viewed"))
			case 4:
				n := rapid.SampledFrom(slices.Sorted(maps.Keys(c.views))).Draw(t, "released")
				for _, s := range c.tasks {
					s.Release(n)
				}
				maps.DeleteFunc(c.views, func(b checkpoint.BatchID, _ map[string]string) bool { return b < n })
			case 5:
				// What was checkpointed after the batch gone back to is void.
				n := rapid.SampledFrom(slices.Sorted(maps.Keys(c.saved))).Draw(t, "restored")
				maps.DeleteFunc(c.saved, func(b checkpoint.BatchID, _ saved) bool { return b > n })
				c.restore(t, n, rapid.IntRange(1, 4).Draw(t, "tasks"))
			}
		}
		c.checkView(t, c.batch)
	})
}

// every returns a change to value of the same key in every group.
func every(key, value string) []txn.Record {
	var all []txn.Record
	for g := range keyGroups {
		all = append(all, record(g, 0, key, value))
	}
	return all
}

func deletedStaysDeleted(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	c.apply(t, append(every("gone", "old"), every("kept", "1")...)...)
	c.restore(t, c.batch, 3)
	c.apply(t, every("gone", "-")...)
	c.restore(t, c.batch, 1)
	c.apply(t, every("kept", "2")...)
	for tasks := range keyGroups {
		c.restore(t, c.batch, tasks+1)
	}
	for _, r := range every("gone", "-") {
		c.checkGet(t, string(r.Key), "", false)
	}
}

func emptyState(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	for _, s := range c.tasks {
		if !s.Empty() {
			t.Error("a fresh state is not empty")
		}
	}
	c.checkGet(t, string(every("a", "")[0].Key), "", false)
	c.apply(t)
	c.restore(t, c.batch, 1)
	if !c.tasks[0].Empty() {
		t.Error("a state that never held anything is not empty")
	}
	c.apply(t, record(1, 0, "a", "1"))
	c.restore(t, c.batch, 1)
	if c.tasks[0].Empty() {
		t.Error("a restored state is empty")
	}
}

func emptyCut(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "1")...)
	before := len(c.files[0])
	c.apply(t)
	if len(c.files[0]) != before {
		t.Errorf("an empty cut added a file: %+v", c.files[0])
	}
	c.checkView(t, c.batch)
	c.checkView(t, c.batch-1)
}

func views(t *testing.T, c *cluster) {
	c.restore(t, 0, 2)
	c.apply(t, append(every("a", "1"), every("b", "1")...)...)
	c.apply(t, every("a", "2")...)
	c.apply(t, append(every("b", "-"), every("c", "3")...)...)
	for n := range c.batch + 1 {
		c.checkView(t, n)
	}
	s := c.tasks[0]
	s.Release(2)
	for n, there := range []bool{false, false, true, true, false} {
		if _, err := s.View(checkpoint.BatchID(n)); (err == nil) != there {
			t.Errorf("view of batch %d after Release(2): %v", n, err)
		}
	}
	c.checkView(t, 3)
	v, err := s.View(3)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Scan("nonsense", func([]byte, []byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "low") {
		t.Errorf("scan of an unknown state: %v", err)
	}
	stop := errors.New("stop")
	calls := 0
	if err := v.Scan("low", func([]byte, []byte) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("a scan that was stopped: %v after %d calls", err, calls)
	}
}

func getDuringApply(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "0")...)
	s, key := c.tasks[0], every("a", "")[3].Key
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for last := "0"; ; {
			value, asOf, err := s.Get(key)
			if err != nil || string(value) < last || string(value) != fmt.Sprint(asOf-1) {
				t.Errorf("get gives %q as of %d after %q, %v", value, asOf, last, err)
				return
			}
			last = string(value)
			clear(value)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 9 {
		c.apply(t, every("a", fmt.Sprint(i+1))...)
		c.checkView(t, c.batch-1)
	}
	close(stop)
	reader.Wait()
	c.checkView(t, c.batch)
}

func badCuts(t *testing.T, c *cluster) {
	c.restore(t, 0, 1)
	c.apply(t, every("a", "1")...)
	c.apply(t, every("a", "2")...)
	s := c.tasks[0]
	if _, err := s.Apply(t.Context(), &txn.Cut{Batch: 1, Records: every("a", "3")}); err == nil {
		t.Error("an older batch was applied")
	}
	files, err := s.Apply(t.Context(), &txn.Cut{Batch: 2, Records: every("a", "2")})
	if err != nil || !slices.Equal(files, c.files[0]) {
		t.Errorf("the newest batch again gives %+v, %v; want %+v", files, err, c.files[0])
	}
	clear(files)
	c.apply(t, every("b", "3")...)
	c.checkView(t, 3)
	c.restore(t, 3, 1)
	if _, err := c.tasks[0].Apply(t.Context(), &txn.Cut{Batch: 3, Records: every("a", "4")}); err == nil {
		t.Error("the restored batch was applied again")
	}
}
