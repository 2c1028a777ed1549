package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// alarm sets timers for the words it gets, and emits the word of each that fires.
type alarm struct {
	set    func(t *txn.Timers, word string)
	fire   func(word string) error // if set, is asked first
	word   *txn.Value[string]
	timers *txn.Timers
}

func (a *alarm) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("row") }

func (a *alarm) Open(_ *txn.Context, s *txn.State) error {
	a.word = txn.NewValue(s, "word", txn.StringCodec())
	a.timers = s.Timers()
	return nil
}

func (a *alarm) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	a.set(a.timers, t.Str(0))
	return a.word.Set(t.Str(0))
}

func (a *alarm) OnTimer(timer txn.Timer, out *txn.Collector) error {
	word, ok, err := a.word.Get()
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("timer %v fired for a key without a word", timer)
	}
	if a.fire != nil {
		if err := a.fire(word); err != nil {
			return err
		}
	}
	out.Emit1(tuple.String(word + timer.Name))
	return nil
}

// held returns a gate that never lets the last of n lines through.
func held(n int) func(part, line int) bool { return func(_, line int) bool { return line < n-1 } }

// Timers that are due only after a restart fire then, although nothing else happens,
// and what they emit is committed and published by the idle region.
func TestTimersOfACheckpointFireInAnIdleTopology(t *testing.T) {
	words := []string{"a", "b", "c"}
	synctest.Test(t, func(t *testing.T) {
		store, o := memstore.New(), newOutside()
		begun := time.Now()
		run := func(length time.Duration) engine.Result {
			b := engine.NewTopologyBuilder()
			b.SetSpout("words", func() txn.Spout {
				l := newLines(append(slices.Clone(words), "never"))
				l.gate = held(4)
				return l
			}, 1)
			b.SetBolt("alarm", func() txn.Bolt {
				return &alarm{set: func(timers *txn.Timers, word string) {
					timers.SetProcessing(begun.Add(time.Hour), "1")
					timers.SetProcessing(begun.Add(2*time.Hour), "2")
					timers.SetProcessing(begun.Add(3*time.Hour), "deleted")
					timers.Delete(txn.Timer{At: begun.Add(3 * time.Hour), Name: "deleted"})
				}}
			}, 2).FieldsGrouping("words", "line")
			b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("alarm")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end := start(ctx, build(t, b), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
			time.Sleep(length)
			o.check(t, timersUntil(words, time.Since(begun)))
			cancel()
			e := <-end
			if e.err != nil {
				t.Fatal(e.err)
			}
			return e.res
		}
		run(30 * time.Minute)
		run(10 * time.Minute)
		res := run(50 * time.Minute) // the first is due
		if res.Committed < 1 || res.Committed > 4 {
			t.Errorf("the idle topology took %d checkpoints", res.Committed)
		}
		run(20 * time.Minute)
		time.Sleep(time.Hour) // the second is due while nothing runs
		run(time.Second)
		run(3 * time.Hour)
	})
}

func timersUntil(words []string, d time.Duration) (rows []string) {
	for _, w := range words {
		for i := range 2 {
			if d >= time.Duration(i+1)*time.Hour {
				rows = append(rows, w+strconv.Itoa(i+1))
			}
		}
	}
	return rows
}

func TestTimersFireOnceThoughTasksFail(t *testing.T) {
	words := numbered("w", 300)
	synctest.Test(t, func(t *testing.T) {
		o := newOutside()
		var fired atomic.Int64
		b := engine.NewTopologyBuilder()
		b.SetSpout("words", func() txn.Spout {
			l := newLines(append(slices.Clone(words), "never"))
			pace, hold := paced(10), held(301)
			l.gate = func(part, line int) bool { return hold(part, line) && pace(part, line) }
			return l
		}, 1)
		begun := time.Now()
		b.SetBolt("alarm", func() txn.Bolt {
			return &alarm{
				set: func(timers *txn.Timers, word string) {
					n, _ := strconv.Atoi(word[1:])
					timers.SetProcessing(begun.Add(time.Second+time.Duration(n)*7*time.Millisecond), "")
				},
				fire: func(string) error {
					if n := fired.Add(1); n%101 == 0 && n < 500 {
						return errors.New("no")
					}
					return nil
				},
			}
		}, 2).FieldsGrouping("words", "line")
		b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("alarm")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end := start(ctx, build(t, b), conf(t, map[string]any{"topology.restart.max": 0}))
		time.Sleep(10 * time.Minute)
		cancel()
		e := <-end
		if e.err != nil || e.res.Restarts == 0 {
			t.Fatalf("%d restarts, %v", e.res.Restarts, e.err)
		}
		o.check(t, words)
	})
}

// timed emits lines of the form "word ms" with watermarks some way behind them.
type timed struct {
	*lines
	emit func(line string, out *txn.Collector)
}

func (s *timed) NextTuple(out *txn.Collector) (txn.Status, error) {
	for _, i := range s.own {
		if n := s.at[i]; n < len(s.parts[i]) && (s.gate == nil || s.gate(i, n)) {
			defer s.emit(s.parts[i][n], out)
		}
	}
	return s.lines.NextTuple(out)
}

func lineTime(line string) time.Time {
	ms, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		panic(err)
	}
	return time.UnixMilli(int64(ms))
}

// One source brings watermarks, through a bolt that knows nothing of them; another one
// never has anything, and says so. A third one, if there, is not heard of.
func TestWatermarksFireTimers(t *testing.T) {
	lines := []string{"a 1000", "b 2000", "c 3000", "d 3100", "never 0"}
	for name, test := range map[string]struct {
		silent bool // a source without any watermark
		finish bool // all input ends
		want   []string
	}{
		"the watermark passes two": {want: []string{"a 1000", "b 2000"}},
		"a source is silent":       {silent: true},
		"all input ends":           {finish: true, want: lines[:4]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutside()
				b := engine.NewTopologyBuilder()
				source := func(emit func(string, *txn.Collector), ls ...string) func() txn.Spout {
					return func() txn.Spout {
						s := &timed{newLines(ls), emit}
						if test.finish {
							s.lines = newLines(ls[:len(ls)-1])
						}
						s.gate = held(len(ls))
						return s
					}
				}
				b.SetSpout("lines", source(func(line string, out *txn.Collector) {
					out.EmitWatermark(lineTime(line).Add(-500 * time.Millisecond))
				}, lines...), 1)
				b.SetSpout("empty", func() txn.Spout { return &idler{held: !test.finish} }, 1)
				if test.silent {
					b.SetSpout("silent", source(func(string, *txn.Collector) {}, "never 0"), 1)
				}
				b.SetBolt("pass", func() txn.Bolt { return pass{func() error { return nil }} }, 2).ShuffleGrouping("lines")
				d := b.SetBolt("alarm", func() txn.Bolt {
					return &alarm{set: func(timers *txn.Timers, line string) { timers.SetEvent(lineTime(line), "") }}
				}, 2).FieldsGrouping("pass", "line").FieldsGrouping("empty", "line")
				if test.silent {
					d.FieldsGrouping("silent", "line")
				}
				b.SetBolt("sink", func() txn.Bolt { return &sink{o: o, log: &calls{}} }, 1).ShuffleGrouping("alarm")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := start(ctx, build(t, b), conf(t, nil))
				time.Sleep(time.Minute)
				o.check(t, test.want)
				cancel()
				if e := <-end; e.err != nil {
					t.Fatal(e.err)
				}
			})
		})
	}
}

// idler is a spout that never has anything.
type idler struct {
	held bool // else it has finished
}

func (*idler) DeclareOutputFields(d *txn.OutputDeclarer)             { d.Declare("line") }
func (*idler) Partitions(context.Context) ([]txn.PartitionID, error) { return nil, nil }
func (*idler) Seek(txn.PartitionID, []byte) error                    { return nil }
func (*idler) FinishBatch(txn.BatchID) ([]txn.Position, error)       { return nil, nil }
func (i *idler) NextTuple(out *txn.Collector) (txn.Status, error) {
	out.EmitIdle()
	if i.held {
		return txn.Idle, nil
	}
	return txn.Finished, nil
}

// What expires in an idle topology leaves its checkpoints.
func TestStateExpiresInAnIdleTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, rows := memstore.New(), &board{}
		b := engine.NewTopologyBuilder()
		b.SetSpout("words", func() txn.Spout {
			l := newLines(append(numbered("w", 100), "never"))
			l.gate = held(101)
			return l
		}, 1)
		b.SetBolt("sink", func() txn.Bolt { return &fleeting{b: rows} }, 1).FieldsGrouping("words", "line")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end := start(ctx, build(t, b), conf(t, nil), engine.WithStore(store, memstore.NewOpener(store)))
		time.Sleep(time.Minute)
		if n := rows.get()["raw"]; n == 0 {
			t.Error("nothing is there before it expires")
		}
		time.Sleep(2 * time.Hour)
		if n := rows.get()["raw"]; n != 0 {
			t.Errorf("%d rows are left in the checkpoint", n)
		}
		cancel()
		if e := <-end; e.err != nil || e.res.Committed > 20 {
			t.Errorf("%d checkpoints of next to nothing, %v", e.res.Committed, e.err)
		}
	})
}

// fleeting keeps each word for an hour and publishes how many rows its state has, of
// whatever age.
type fleeting struct {
	v *txn.Value[int64]
	b *board
}

func (f *fleeting) Open(_ *txn.Context, s *txn.State) error {
	f.v = txn.NewValue(s, "fleeting", txn.Int64Codec(), txn.WithTTL(time.Hour))
	return nil
}

func (f *fleeting) Execute(*tuple.Tuple, *txn.Collector) error { return f.v.Set(1) }

func (f *fleeting) Publish(_ context.Context, n txn.BatchID, view txn.View, _ bool) error {
	raw := int64(0)
	err := view.Scan("fleeting", func(_, _ []byte) error { raw++; return nil })
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	f.b.rows, f.b.n = map[string]int64{"raw": raw}, n
	return err
}

func TestTimersWithoutOnTimerAreRefused(t *testing.T) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout { return newLines([]string{"a"}) }, 1)
	b.SetBolt("deaf", func() txn.Bolt { return deaf{} }, 1).FieldsGrouping("words", "line")
	_, err := engine.Run(t.Context(), build(t, b), conf(t, map[string]any{"topology.restart.max": 1}))
	if err == nil || !strings.Contains(err.Error(), "OnTimer") || !strings.Contains(err.Error(), `"deaf"`) {
		t.Errorf("error %v", err)
	}
}

type deaf struct{}

func (deaf) Open(_ *txn.Context, s *txn.State) error { s.Timers(); return nil }

func (deaf) Execute(*tuple.Tuple, *txn.Collector) error { return nil }
