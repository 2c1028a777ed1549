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
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// These cases are about the life of a topology: aborted checkpoints, stops, edits, and
// two runs of one topology.

// objects returns the names of all objects in a store, and those that the retained
// checkpoints need.
func objects(t *testing.T, s checkpoint.Store) (all, needed []string) {
	t.Helper()
	data, _, err := s.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range h.Regions {
		for _, ref := range r.Retained {
			needed = append(needed, ref.Manifest)
			mf, err := checkpoint.ReadManifest(t.Context(), s, ref)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range mf.Tasks {
				for _, f := range task.Files {
					needed = append(needed, f.Name)
				}
			}
		}
	}
	for o, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o.Name)
	}
	slices.Sort(needed)
	return all, slices.Compact(needed)
}

// Case: checkpoints that were aborted leaked their files, because the clean-up relied
// on messages that could be lost, or came only with the next start.
func TestAbortedCheckpointsLeaveNothingBehind(t *testing.T) {
	const grace = time.Minute
	lines := numbered("n", 20_000)
	for name, aborts := range map[string]uint64{"given up": 100, "rolled back": 30} {
		failing := name == "rolled back"
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var ill atomic.Bool
				var look atomic.Pointer[engine.Inspector]
				began := time.Now()
				run := func(ctx context.Context) <-chan ended {
					b := engine.NewTopologyBuilder()
					b.SetSpout("lines", func() txn.Spout {
						l := newLines(lines)
						l.gate = func(_, line int) bool { return time.Duration(line) < time.Since(began)/time.Second }
						return l
					}, 1)
					b.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("lines", "line")
					b.SetBolt("sink", func() txn.Bolt {
						return &sink{o: newOutside(), log: &calls{}, commit: func(context.Context, txn.BatchID) error {
							if ill.Load() && failing {
								time.Sleep(time.Second) // the state is stored meanwhile
								return txn.Fatal(errors.New("rolled back"))
							}
							if ill.Load() {
								return errors.New("not now")
							}
							return nil
						}}
					}, 1).GlobalGrouping("count")
					return start(ctx, build(t, b), engine.WithStore(store, memstore.NewOpener(store)),
						engine.WithInspector(look.Store),
						conf(t, map[string]any{
							"topology.restart.max": 0, "transaction.batch.snapshot.timeout": 5,
							"transaction.schedule.batch.delay.ms": 1000, "checkpoint.orphan.grace.secs": int(grace / time.Second),
						}))
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				first := run(ctx)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				ill.Store(true)
				for r := look.Load().Regions()[0]; r.GivenUp+r.Restarts < aborts; r = look.Load().Regions()[0] {
					time.Sleep(time.Second)
				}
				ill.Store(false)
				time.Sleep(4 * grace)
				all, needed := objects(t, store)
				// What was stored last may not be committed yet. What was given up and never
				// named stays until its generation has passed.
				if most := 10; failing && len(all) > len(needed)+most {
					t.Errorf("%d objects, %d of them needed", len(all), len(needed))
				}
				stop()
				if e := <-first; e.err != nil {
					t.Fatal(e.err)
				}
				time.Sleep(2 * grace)
				ctx, stop = context.WithCancel(t.Context())
				defer stop()
				second := run(ctx)
				time.Sleep(5 * time.Second)
				stop()
				if e := <-second; e.err != nil {
					t.Fatal(e.err)
				}
				all, needed = objects(t, store)
				if most := 10; len(all) > len(needed)+most {
					t.Errorf("after a rerun %d objects, %d of them needed", len(all), len(needed))
				}
			})
		})
	}
}

// Case: a stop with a last checkpoint went wrong, and the good checkpoint before it, or
// the last one itself, was forgotten.
func TestStopThatFailsForgetsNoCheckpoint(t *testing.T) {
	lines := numbered("n", 300)
	for name, ill := range map[string]func(s *sink, stopping *atomic.Bool){
		"the last checkpoint fails": func(s *sink, stopping *atomic.Bool) {
			s.commit = func(context.Context, txn.BatchID) error {
				if stopping.Load() {
					return txn.Fatal(errors.New("cannot commit"))
				}
				return nil
			}
		},
		"it is complete and the stop fails": func(s *sink, stopping *atomic.Bool) {
			s.ack = func(context.Context, txn.BatchID) error {
				if stopping.Load() {
					return txn.Fatal(errors.New("cannot publish"))
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, o := memstore.New(), newOutside()
				var limit atomic.Int64
				var stopping atomic.Bool
				run := func(ctx context.Context) <-chan ended {
					topo := publishing(t, limited(&limit, 10, lines), never, func() *sink {
						s := &sink{o: o, log: &calls{}}
						ill(s, &stopping)
						return s
					}, 2)
					return start(ctx, topo, engine.WithStore(store, memstore.NewOpener(store)), conf(t, map[string]any{
						"topology.restart.max": 1, "transaction.schedule.batch.delay.ms": 60_000,
					}))
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				limit.Store(100)
				first := run(ctx)
				time.Sleep(65 * time.Second)
				o.check(t, lines[:100])
				limit.Store(200) // these are in the last batch
				time.Sleep(10 * time.Second)
				stopping.Store(true)
				stop()
				// Either it stops with what was complete before, or it says what is wrong.
				if e := <-first; e.res.Restarts != 1 || e.res.Last == nil || e.err != nil && !strings.Contains(e.err.Error(), "cannot ") {
					t.Fatalf("%d restarts, error %v, last checkpoint %v", e.res.Restarts, e.err, e.res.Last)
				}
				stopping.Store(false)
				limit.Store(-1)
				if e := <-run(t.Context()); e.err != nil || e.res.From == nil {
					t.Fatalf("%v, from %v", e.err, e.res.From)
				}
				o.check(t, lines)
			})
		})
	}
}

// Case: state was found by the position of its step in the graph, so that after an edit
// it was attached to another step, or left out.
func TestStateStaysWithItsComponentWhenTheGraphIsEdited(t *testing.T) {
	in, want := sample(2, 100)
	for w := range want {
		want[w] *= 2
	}
	twice := [][]string{slices.Concat(in[0], in[0]), slices.Concat(in[1], in[1])}
	store := memstore.New()
	b := &board{}
	run := func(data [][]string, edit func(tb *engine.TopologyBuilder, lines func() txn.Spout)) error {
		tb := engine.NewTopologyBuilder()
		edit(tb, func() txn.Spout { return newLines(data...) })
		topo, err := tb.Build()
		if err != nil {
			return err
		}
		_, err = engine.Run(t.Context(), topo, conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		return err
	}
	counter := func() txn.Bolt { return &count{} }
	board := func() txn.Bolt { return &latest{b: b} }
	original := func(tb *engine.TopologyBuilder, lines func() txn.Spout) {
		tb.SetSpout("lines", lines, 2)
		tb.SetBolt("msplit", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
		tb.SetBolt("ncount", counter, 2).FieldsGrouping("msplit", "word")
		tb.SetBolt("other", counter, 1).FieldsGrouping("lines", "line")
		tb.SetBolt("sink", board, 1).GlobalGrouping("ncount")
	}
	if err := run(in, original); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(tb *engine.TopologyBuilder, lines func() txn.Spout){
		`no longer has: ["other"]`: func(tb *engine.TopologyBuilder, lines func() txn.Spout) {
			tb.SetSpout("lines", lines, 2)
			tb.SetBolt("msplit", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
			tb.SetBolt("ncount", counter, 2).FieldsGrouping("msplit", "word")
			tb.SetBolt("sink", board, 1).GlobalGrouping("ncount")
		},
		`no longer has: ["ncount" "sink"]`: func(tb *engine.TopologyBuilder, lines func() txn.Spout) {
			tb.SetSpout("lines", lines, 2)
			tb.SetBolt("msplit", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
			tb.SetBolt("renamed", counter, 2).FieldsGrouping("msplit", "word")
			tb.SetBolt("other", counter, 1).FieldsGrouping("lines", "line")
		},
		`component "ncount" was keyed: true, now it is a bolt`: func(tb *engine.TopologyBuilder, lines func() txn.Spout) {
			tb.SetSpout("lines", lines, 2)
			tb.SetBolt("msplit", func() txn.Bolt { return split{} }, 2).ShuffleGrouping("lines")
			tb.SetBolt("ncount", func() txn.Bolt { return pass{never} }, 2).FieldsGrouping("msplit", "word")
			tb.SetBolt("other", counter, 1).FieldsGrouping("lines", "line")
			tb.SetBolt("sink", counter, 1).FieldsGrouping("ncount", "line")
		},
	} {
		if err := run(twice, edit); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %s", err, name)
		}
	}
	// In another order, a step without state renamed, three steps added, one of which
	// now is the first of the region.
	edited := func(tb *engine.TopologyBuilder, lines func() txn.Spout) {
		tb.SetBolt("sink", board, 1).GlobalGrouping("ncount")
		tb.SetBolt("more", counter, 3).FieldsGrouping("words", "word")
		tb.SetBolt("added", func() txn.Bolt { return split{} }, 1).ShuffleGrouping("lines")
		tb.SetBolt("other", counter, 2).FieldsGrouping("lines", "line")
		tb.SetBolt("ncount", counter, 3).FieldsGrouping("words", "word")
		tb.SetBolt("words", func() txn.Bolt { return split{} }, 1).ShuffleGrouping("lines")
		tb.SetBolt("tail", func() txn.Bolt { return pass{never} }, 1).ShuffleGrouping("other")
		tb.SetSpout("lines", lines, 1)
	}
	if err := run(twice, edited); err != nil {
		t.Fatal(err)
	}
	if got := b.get(); !maps.Equal(got, want) {
		t.Errorf("%d words, want %d; a = %d, want %d", len(got), len(want), got["a"], want["a"])
	}
}

// Case: an old instance that was thought dead went on, and won over its replacement; or
// several topologies of one name ran together.
func TestOldRunIsFencedByItsReplacement(t *testing.T) {
	lines := numbered("n", 3000)
	synctest.Test(t, func(t *testing.T) {
		store, o := memstore.New(), newOutside()
		run := func(limit *atomic.Int64) <-chan ended {
			topo := publishing(t, limited(limit, 10, lines), never, func() *sink { return &sink{o: o, log: &calls{}} }, 2)
			return start(t.Context(), topo, engine.WithStore(store, memstore.NewOpener(store)), conf(t, nil))
		}
		var old, newer, last atomic.Int64
		old.Store(100)
		runs := []<-chan ended{run(&old)}
		time.Sleep(time.Minute)
		newer.Store(200)
		for range 5 { // each replaces those before it
			runs = append(runs, run(&newer))
			time.Sleep(time.Second)
		}
		old.Store(-1) // it wakes up and goes on, up to its next commit
		newer.Store(300)
		time.Sleep(time.Minute)
		for i, r := range runs[:len(runs)-1] {
			select {
			case e := <-r:
				if e.err == nil || !strings.Contains(e.err.Error(), "fenced") {
					t.Errorf("run %d: %v, outcome %v", i, e.err, e.res.Outcome)
				}
			default:
				t.Errorf("run %d goes on", i)
			}
		}
		newer.Store(1000)
		time.Sleep(time.Minute)
		select {
		case e := <-runs[len(runs)-1]:
			t.Errorf("the newest run has ended: %v", e.err)
		default:
		}
		newer.Store(-1)
		if e := <-runs[len(runs)-1]; e.err != nil || e.res.Restarts != 0 {
			t.Errorf("%v, %d restarts", e.err, e.res.Restarts)
		}
		last.Store(-1) // discards what the old ones have left prepared
		if e := <-run(&last); e.err != nil {
			t.Error(e.err)
		}
		o.check(t, lines)
	})
}

// Case: the on-disk format moved forward, and the older program destroyed or ignored
// what it could not read.
func TestNewerFormatIsRefusedAndLeftAlone(t *testing.T) {
	in, _ := sample(2, 50)
	for name, newer := range map[string]func(t *testing.T, s checkpoint.Store){
		"head has format version 4, this isobar reads up to version 3": func(t *testing.T, s checkpoint.Store) {
			swapHead(t, s, func(data []byte) []byte { return sealed(data, "isobar head 3", "isobar head 4") })
		},
		"has format version 3, this isobar reads up to version 2": func(t *testing.T, s checkpoint.Store) {
			rewriteManifest(t, s, func(data []byte) []byte { return sealed(data, "isobar manifest 2", "isobar manifest 3") })
		},
		`its state files have format "` + checkpoint.TableFormat + `9", this build reads "` + checkpoint.TableFormat + `"`: func(t *testing.T, s checkpoint.Store) {
			rewriteManifest(t, s, func(data []byte) []byte {
				return sealed(data, `"tableFormat":"`+checkpoint.TableFormat+`"`, `"tableFormat":"`+checkpoint.TableFormat+`9"`)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			run := func() error {
				topo := wordCount(t, func() txn.Spout { return newLines(in...) }, func() txn.Bolt { return split{} }, &board{})
				_, err := engine.Run(t.Context(), topo, conf(t, map[string]any{"checkpoint.orphan.grace.secs": 0}),
					engine.WithStore(store, memstore.NewOpener(store)))
				return err
			}
			if err := run(); err != nil {
				t.Fatal(err)
			}
			newer(t, store)
			list := func() (all []checkpoint.ObjectInfo) {
				for o, err := range store.List(t.Context(), "") {
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, o)
				}
				return all
			}
			before := list()
			for range 2 {
				if err := run(); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("error %v", err)
				}
			}
			if after := list(); !slices.Equal(before, after) {
				t.Errorf("the store held %v and holds %v", before, after)
			}
		})
	}
}

// sealed replaces a text in a document and makes its checksum right.
func sealed(doc []byte, old, text string) []byte {
	const trailer = len("crc32c 00000000\n")
	body := bytes.Replace(doc[:len(doc)-trailer], []byte(old), []byte(text), 1)
	return fmt.Appendf(body, "crc32c %08x\n", checkpoint.CRC(body))
}

func swapHead(t *testing.T, s checkpoint.Store, change func([]byte) []byte) {
	t.Helper()
	data, v, err := s.ReadHead(t.Context())
	if err == nil {
		_, err = s.SwapHead(t.Context(), v, change(data))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rewriteManifest has the head name an altered copy of the newest manifest.
func rewriteManifest(t *testing.T, s checkpoint.Store, change func([]byte) []byte) {
	t.Helper()
	swapHead(t, s, func(data []byte) []byte {
		h, err := checkpoint.DecodeHead("head", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range h.Regions {
			ref := &r.Retained[len(r.Retained)-1]
			var buf bytes.Buffer
			if err := checkpoint.CopyObject(t.Context(), s, &buf, ref.Manifest, ref.Size, ref.CRC32C); err != nil {
				t.Fatal(err)
			}
			altered := change(buf.Bytes())
			ref.Manifest, ref.Size, ref.CRC32C = ref.Manifest+"x", int64(len(altered)), checkpoint.CRC(altered)
			if err := s.Put(t.Context(), ref.Manifest, bytes.NewReader(altered), ref.Size, ref.CRC32C); err != nil {
				t.Fatal(err)
			}
		}
		out, err := checkpoint.EncodeHead(h)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
}
