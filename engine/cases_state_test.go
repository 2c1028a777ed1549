package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// These cases are about what checkpoints hold.

// forgetful is a counter whose counts expire.
type forgetful struct{ n *txn.Aggregate[int64] }

const forgetfulTTL = time.Second

func (f *forgetful) Open(_ *txn.Context, s *txn.State) error {
	f.n = txn.NewAggregate(s, "n", txn.Sum(), txn.WithTTL(forgetfulTTL))
	return nil
}

func (f *forgetful) Execute(*tuple.Tuple, *txn.Collector) error { return f.n.Add(1) }

// stateBytes returns how much keyed state the current checkpoint names, 0 if there is none.
func stateBytes(t *testing.T, s checkpoint.Store) (n int64) {
	t.Helper()
	data, _, err := s.ReadHead(t.Context())
	if err != nil {
		return 0
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range h.Regions {
		if r.Current() == nil {
			continue
		}
		mf, err := checkpoint.ReadManifest(t.Context(), s, *r.Current())
		if errors.Is(err, checkpoint.ErrNotFound) {
			return 0 // superseded by now, and swept
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range mf.Tasks {
			for _, f := range task.Files {
				n += f.Size
			}
		}
	}
	return n
}

// Case: expired state could not be seen any more and was kept, so that checkpoints grew
// without end. Here nobody reads the keys again while a few others go on.
func TestCheckpointsShrinkWhenStateExpires(t *testing.T) {
	store := memstore.New()
	opener := pebblestate.New(pebblestate.Options{Dir: t.TempDir(), Store: store})
	defer func() {
		if err := opener.Close(); err != nil {
			t.Error(err)
		}
	}()
	const words = 40_000 // far more than is worth writing a base for
	var expiring atomic.Bool
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout { return newLines(numbered("w", words)) }, 1)
	b.SetSpout("busy", func() txn.Spout {
		l := newLines(slices.Repeat([]string{"always"}, 1<<20))
		pace := paced(1)
		l.gate = func(part, line int) bool { return expiring.Load() && pace(part, line) }
		return l
	}, 1)
	b.SetBolt("count", func() txn.Bolt { return &forgetful{} }, 2).FieldsGrouping("words", "line").FieldsGrouping("busy", "line")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	run := start(ctx, build(t, b), engine.WithStore(store, opener), conf(t, nil))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	full := int64(0)
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		select {
		case <-tick.C:
		case e := <-run:
			t.Fatalf("it ended: %v", e.err)
		}
		now := stateBytes(t, store)
		full = max(full, now)
		if expiring.Store(full > 4*words); expiring.Load() && now < full/20 {
			stop()
			if e := <-run; e.err != nil {
				t.Fatal(e.err)
			}
			return
		}
	}
	t.Errorf("of %d bytes of state %d are left", full, stateBytes(t, store))
}

// Case: after a crash the first batch that was committed wiped the positions of the
// partitions that had not moved in it, and a second crash sent those back to their
// beginning.
func TestPositionsOfPartitionsThatDoNotMoveAreKept(t *testing.T) {
	const parts = 16
	var in [][]string
	for p := range parts {
		in = append(in, numbered(fmt.Sprintf("p%d-", p), 30))
	}
	synctest.Test(t, func(t *testing.T) {
		store, x := memstore.New(), newTarget()
		// Lines below the limit of their partition are let through.
		var limits [parts]atomic.Int64
		run := func(kill bool) error {
			when := &atomic.Value{}
			when.Store("")
			b := engine.NewTopologyBuilder()
			b.SetSpout("lines", func() txn.Spout {
				l := newLines(in...)
				l.gate = func(part, line int) bool { return int64(line) < limits[part].Load() }
				return &skipping{l}
			}, 2)
			b.SetBolt("sink", func() txn.Bolt { return &dying{twoPhase{t: x}, when} }, 1).ShuffleGrouping("lines")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			e := start(ctx, build(t, b), engine.WithStore(store, memstore.NewOpener(store)),
				conf(t, map[string]any{"topology.restart.max": 1, "transaction.schedule.batch.delay.ms": 100}))
			time.Sleep(time.Minute)
			if kill {
				when.Store("before")
				limits[3].Add(1) // one batch, of one partition
				time.Sleep(time.Minute)
			} else {
				stop()
			}
			return (<-e).err
		}
		for i := range limits {
			limits[i].Store(10)
		}
		for range 3 {
			if err := run(true); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
		}
		for i := range limits {
			limits[i].Store(30)
		}
		if err := run(false); err != nil {
			t.Fatal(err)
		}
		if want := once(slices.Concat(in...)); !maps.Equal(x.words, want) {
			t.Errorf("%d lines are published, want %d; p0-0 %d times", len(x.words), len(want), x.words["p0-0"])
		}
	})
}

// skipping goes on with the next partition where its gate is shut.
type skipping struct{ *lines }

func (s *skipping) NextTuple(out *txn.Collector) (txn.Status, error) {
	for range s.own {
		status, err := s.lines.NextTuple(out)
		if status != txn.Idle || err != nil {
			return status, err
		}
		s.own = append(s.own[1:], s.own[0])
	}
	return txn.Idle, nil
}

// Case: what describes a checkpoint of thousands of tasks was more than one message of
// the coordination service may hold, and was lost without an error.
func TestManifestOfThousandsOfTasks(t *testing.T) {
	const tasks, files = 5000, 10
	mf := &checkpoint.Manifest{Topology: "t", RunID: "r", Region: "c", Generation: 7, Batch: files, Engine: engine.Version, Table: checkpoint.TableFormat,
		KeyGroups: 65536, Graph: "g", Components: map[string]checkpoint.ComponentMeta{"c": {Parallelism: tasks, Keyed: true}}}
	for i := range tasks {
		task := checkpoint.TaskSnapshot{Component: "c", Index: i}
		for f := range files {
			task.Files = append(task.Files, checkpoint.FileRef{Name: checkpoint.DataName(7, "c", i, checkpoint.BatchID(f+1), "u"), Size: 1000, CRC32C: uint32(i),
				Generation: 7, Batch: checkpoint.BatchID(f + 1), Base: f == 0, GroupFrom: i, GroupTo: i + 1})
		}
		mf.Tasks = append(mf.Tasks, task)
	}
	data, err := checkpoint.EncodeManifest(mf)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	ref := checkpoint.Ref{Generation: 7, Batch: files, Manifest: checkpoint.ManifestName(7, files, "c", "u"), Size: int64(len(data)), CRC32C: checkpoint.CRC(data)}
	if err := store.Put(t.Context(), ref.Manifest, bytes.NewReader(data), ref.Size, ref.CRC32C); err != nil {
		t.Fatal(err)
	}
	got, err := checkpoint.ReadManifest(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tasks) != tasks || !slices.Equal(got.Tasks[tasks-1].Files, mf.Tasks[tasks-1].Files) {
		t.Errorf("of %d bytes come %d tasks", len(data), len(got.Tasks))
	}
	h := &checkpoint.Head{Topology: "t", RunID: "r", Writer: "w", Generation: 7, Regions: map[string]checkpoint.RegionHead{"c": {Generation: 7, Retained: []checkpoint.Ref{ref}}}}
	if head, err := checkpoint.EncodeHead(h); err != nil || len(head) > 4096 {
		t.Errorf("the head grows with the tasks: %d bytes, %v", len(head), err)
	}
}

// nameless is a spout of one line whose partition has an awkward name, or that tells
// positions of one that is not its own.
type nameless struct {
	*lines
	listed, moved txn.PartitionID
}

func (n *nameless) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{n.listed}, nil
}

func (n *nameless) Seek(txn.PartitionID, []byte) error { return n.lines.Seek("0", nil) }

func (n *nameless) FinishBatch(b txn.BatchID) ([]txn.Position, error) {
	ps, err := n.lines.FinishBatch(b)
	for i := range ps {
		ps[i].Partition = n.moved
	}
	return ps, err
}

// labelled is a counter whose state has these names.
type labelled struct {
	state, codec string
	n            *txn.Value[int64]
}

func (l *labelled) Open(_ *txn.Context, s *txn.State) error {
	codec := txn.Int64Codec()
	codec.Name = l.codec
	l.n = txn.NewValue(s, l.state, codec)
	return nil
}

func (l *labelled) Execute(*tuple.Tuple, *txn.Collector) error { return l.n.Set(1) }

// Case: a text that its encoding does not keep was in what a checkpoint records. No
// checkpoint could be taken any more, and it looked as if the store did not answer.
func TestNamesThatNoCheckpointCanKeepAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		listed, moved txn.PartitionID
		state, codec  string
		want          string // nothing: all is well
	}{
		"good":              {"Größe", "Größe", "n", "int64", ""},
		"partition, bytes":  {"\xff", "\xff", "n", "int64", `partition "\xff" is not UTF-8`},
		"partition, none":   {"", "", "n", "int64", "empty name"},
		"partition, others": {"a", "b", "n", "int64", `partition "b", which this task was not told to read`},
		"state, bytes":      {"a", "a", "\xff", "int64", `the name is "\xff"`},
		"state, none":       {"a", "a", "", "int64", `the name is ""`},
		"codec, bytes":      {"a", "a", "n", "\xff", `the name of its codec is "\xff"`},
		"codec, none":       {"a", "a", "n", "", `the name of its codec is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := engine.NewTopologyBuilder()
				b.SetSpout("lines", func() txn.Spout { return &nameless{newLines([]string{"a"}), c.listed, c.moved} }, 1)
				b.SetBolt("labelled", func() txn.Bolt { return &labelled{state: c.state, codec: c.codec} }, 1).FieldsGrouping("lines", "line")
				run := start(t.Context(), build(t, b), conf(t, map[string]any{"topology.restart.max": 2}))
				var e ended
				select {
				case e = <-run:
				case <-time.After(time.Hour):
					t.Fatal("it goes on and on")
				}
				switch {
				case c.want == "" && (e.err != nil || e.res.Committed == 0):
					t.Errorf("%v, %d checkpoints", e.err, e.res.Committed)
				case c.want != "" && (e.err == nil || !strings.Contains(e.err.Error(), c.want) || e.res.Committed > 0):
					t.Errorf("%v, want an error with %s; %d checkpoints", e.err, c.want, e.res.Committed)
				}
			})
		})
	}
}

// The name of a topology is that of a folder, and is in each of its checkpoints.
func TestWrongTopologyNamesAreRefused(t *testing.T) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return newLines([]string{"a"}) }, 1)
	b.SetBolt("sink", func() txn.Bolt { return &sink{o: newOutside(), log: &calls{}} }, 1).ShuffleGrouping("lines")
	topo := build(t, b)
	for name, right := range map[string]bool{
		"word-count_2.x": true, "7": true, strings.Repeat("n", 128): true,
		"": false, "a/b": false, "..": false, ".": false, "../a": false, "a b": false, "\xff": false, "ä": false, strings.Repeat("n", 129): false,
	} {
		_, err := engine.Run(timeout(t), topo, engine.WithName(name), conf(t, nil))
		if (err == nil) != right || err != nil && !strings.Contains(err.Error(), "topology name") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
