package bolttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

var stream = &tuple.Stream{Component: "in", ID: tuple.DefaultStream, Fields: tuple.Fields{"key", "n"}}

func tupleOf(i int) *tuple.Tuple {
	return tuple.New(stream, tuple.String(fmt.Sprint("k", i%3)), tuple.Int(i))
}

// target is a system with two-phase commit: transactions are prepared under a name,
// and then published or discarded.
type target struct {
	prepared map[string][]string
	shown    []string
}

// flaws are the ways in which a twoPhase sink can be broken.
type flaws struct {
	publishesEarly   bool // in Commit, not in AckCommit
	publishesInClose bool
	publishesAlways  bool // again when it is acknowledged again
	publishesNewest  bool // only the batch that is acknowledged
	listsNothing     bool // in its handle
	publishesAll     bool // prepared ones too, listed or not
	ignoresHandles   bool // in InitState
	ignoresOld       bool // handles but the newest, in InitState
	keepsBuffer      bool // in Rollback
	keepsPrepared    bool // in Rollback, to publish it later
	namesByBatch     bool // its transactions, without the generation
	keepsLast        bool // what came last stays with it
	dropsEmpty       bool // a batch without tuples breaks it
	splits           bool // a batch may show in part
}

// twoPhase is a sink with a target, broken by its flaws.
type twoPhase struct {
	flaws
	target *target
	gen    txn.Generation
	buffer []string
	seq    int
	names  []name // prepared and not published, in order
	done   map[txn.BatchID][]string
}

func (s *twoPhase) Open(ctx *txn.Context) error {
	s.gen = ctx.Generation
	s.done = map[txn.BatchID][]string{}
	return nil
}

func (s *twoPhase) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.buffer = append(s.buffer, fmt.Sprint(t.Int64(1)))
	return nil
}

type name struct {
	batch txn.BatchID
	text  string
}

type finishedBatch struct {
	name string
	rows []string
}

func (s *twoPhase) FinishBatch(n txn.BatchID, _ *txn.Collector) (any, error) {
	rows := s.buffer
	s.buffer = nil
	if s.keepsLast && len(rows) > 1 {
		rows, s.buffer = rows[:len(rows)-1], rows[len(rows)-1:]
	}
	if s.dropsEmpty && len(rows) == 0 {
		return nil, errors.New("nothing to do")
	}
	s.seq++
	name := fmt.Sprintf("%d.%d.%d", s.gen, n, s.seq)
	if s.namesByBatch {
		name = fmt.Sprint(n)
	}
	return finishedBatch{name, rows}, nil
}

func (s *twoPhase) Commit(_ context.Context, n txn.BatchID, state any) ([]byte, error) {
	b := state.(finishedBatch)
	if s.namesByBatch {
		b.rows = append(s.target.prepared[b.name], b.rows...)
	}
	s.target.prepared[b.name] = b.rows
	s.names = append(s.names, name{n, b.name})
	if s.publishesEarly {
		s.publish(b.name)
	}
	if s.listsNothing {
		return []byte(`""`), nil
	}
	return json.Marshal(b.name)
}

func (s *twoPhase) publish(name string) []string {
	rows := s.target.prepared[name]
	delete(s.target.prepared, name)
	s.target.shown = append(s.target.shown, rows...)
	return rows
}

func (s *twoPhase) AckCommit(_ context.Context, n, _ txn.BatchID) error {
	s.names = slices.DeleteFunc(s.names, func(b name) bool {
		if b.batch > n || s.publishesNewest && b.batch < n {
			return false
		}
		if rows := s.target.prepared[b.text]; s.splits && len(rows) > 1 {
			s.target.prepared[b.text] = rows[1:]
		}
		s.done[b.batch] = s.publish(b.text)
		return true
	})
	if s.publishesAlways {
		s.target.shown = append(s.target.shown, s.done[n]...)
	}
	return nil
}

func (s *twoPhase) InitState(handles []txn.Handle) error {
	if s.ignoresOld && len(handles) > 1 {
		handles = handles[len(handles)-1:]
	}
	for _, h := range handles {
		var name string
		if err := json.Unmarshal(h.Data, &name); err != nil {
			return err
		}
		if !s.ignoresHandles {
			s.publish(name)
		}
	}
	if s.publishesAll {
		for _, name := range slices.Sorted(maps.Keys(s.target.prepared)) {
			s.publish(name)
		}
	}
	if !s.keepsPrepared && !s.namesByBatch {
		clear(s.target.prepared)
	}
	return nil
}

func (s *twoPhase) Rollback(handles []txn.Handle) error {
	if !s.keepsBuffer {
		s.buffer = nil
	}
	if !s.keepsPrepared {
		s.names = nil
	}
	return s.InitState(handles)
}

func (s *twoPhase) Close() error {
	if s.publishesInClose {
		s.target.shown = append(s.target.shown, s.buffer...)
		for _, name := range s.names {
			s.publish(name.text)
		}
	}
	return nil
}

func open(f flaws, fenced bool) func(testing.TB) Sink {
	return func(testing.TB) Sink {
		target := &target{prepared: map[string][]string{}}
		return Sink{
			New:    func() txn.Bolt { return &twoPhase{flaws: f, target: target} },
			Tuple:  tupleOf,
			Shown:  func(testing.TB) []string { return slices.Clone(target.shown) },
			Fenced: fenced,
			Want: func(n int) (want []string) {
				for i := range n {
					want = append(want, fmt.Sprint(i))
				}
				return want
			},
		}
	}
}

// counts is a keyed sink: it shows for each key how many tuples it got, as one text.
type counts struct {
	keyedFlaws
	shown *map[string]int64
	total *txn.Aggregate[int64]
}

type keyedFlaws struct {
	showsLive bool // what is not committed, too
	adds      bool // to what the target shows
	postpones bool // for ever
}

func (c *counts) Open(_ *txn.Context, s *txn.State) error {
	c.total = txn.NewAggregate(s, "total", txn.Sum())
	return nil
}

func (c *counts) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if c.showsLive {
		(*c.shown)[t.Str(0)]++
	}
	return c.total.Add(1)
}

func (c *counts) Publish(_ context.Context, _ txn.BatchID, view txn.View, _ bool) error {
	if c.postpones {
		return txn.ErrPostponed
	}
	all := map[string]int64{}
	err := c.total.Scan(view, func(key []tuple.Value, n int64) error {
		all[key[0].Str()] = n
		if c.adds {
			all[key[0].Str()] += (*c.shown)[key[0].Str()]
		}
		return nil
	})
	*c.shown = all
	return err
}

func openKeyed(f keyedFlaws) func(testing.TB) Sink {
	render := func(counts map[string]int64) (rows []string) {
		for k, n := range counts {
			rows = append(rows, fmt.Sprint(k, "=", n))
		}
		return rows
	}
	return func(testing.TB) Sink {
		shown := map[string]int64{}
		return Sink{
			New:   func() txn.Bolt { return &counts{keyedFlaws: f, shown: &shown} },
			Key:   []string{"key"},
			Tuple: tupleOf,
			Shown: func(testing.TB) []string { return render(shown) },
			Want: func(n int) []string {
				want := map[string]int64{}
				for i := range n {
					want[fmt.Sprint("k", i%3)]++
				}
				return render(want)
			},
		}
	}
}

func TestGoodSinksPass(t *testing.T) {
	t.Run("two phases", func(t *testing.T) { Run(t, open(flaws{}, true)) })
	t.Run("keyed", func(t *testing.T) { Run(t, openKeyed(keyedFlaws{})) })
}

// recorder stands in for the test of a broken sink.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper()        {}
func (r *recorder) Cleanup(func()) {}
func (r *recorder) Fatalf(f string, a ...any) {
	r.failed = fmt.Sprintf(f, a...)
	runtime.Goexit()
}

// found returns the names of the checks that a sink fails.
func found(open func(testing.TB) Sink) (names []string) {
	for _, c := range checks {
		r := &recorder{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(r, open)
		}()
		<-done
		if r.failed != "" {
			names = append(names, c.name)
		}
	}
	return names
}

func TestEachBrokenPromiseIsFound(t *testing.T) {
	for _, tc := range []struct {
		flaw  string
		flaws flaws
		by    string // a check that must find it
	}{
		{"publishes in Commit", flaws{publishesEarly: true}, "Undisturbed"},
		{"publishes in Close", flaws{publishesInClose: true}, "Crash"},
		{"publishes again when acknowledged again", flaws{publishesAlways: true}, "Repetition"},
		{"publishes only the acknowledged batch", flaws{publishesNewest: true}, "Undisturbed"},
		{"lists nothing in its handle", flaws{listsNothing: true}, "Crash"},
		{"publishes what is not listed", flaws{publishesAll: true}, "Crash"},
		{"ignores handles", flaws{ignoresHandles: true}, "Crash"},
		{"ignores all handles but the newest", flaws{ignoresOld: true}, "Crash"},
		{"keeps tuples when it is rolled back", flaws{keepsBuffer: true}, "Rollback"},
		{"keeps what is void when it is rolled back", flaws{keepsPrepared: true}, "Rollback"},
		{"does not tell a batch from its repetition", flaws{namesByBatch: true}, "Crash"},
		{"keeps tuples back", flaws{keepsLast: true}, "Undisturbed"},
		{"cannot finish an empty batch", flaws{dropsEmpty: true}, "Undisturbed"},
		{"loses a part of a batch", flaws{splits: true}, "Undisturbed"},
	} {
		if names := found(open(tc.flaws, false)); !slices.Contains(names, tc.by) {
			t.Errorf("that a sink %s is found by %q, not by %s", tc.flaw, names, tc.by)
		}
	}
	if names := found(open(flaws{namesByBatch: true}, true)); !slices.Contains(names, "Zombie") {
		t.Errorf("that a sink is not fenced is found by %q", names)
	}
	for flaw, f := range map[string]keyedFlaws{
		"shows what is not committed":  {showsLive: true},
		"adds to what is there":        {adds: true},
		"does not show the last batch": {postpones: true},
	} {
		if names := found(openKeyed(f)); len(names) == 0 {
			t.Errorf("a keyed sink that %s passes", flaw)
		}
	}
}

// plain is no sink.
type plain struct{}

func (plain) Execute(*tuple.Tuple, *txn.Collector) error { return nil }

func TestPlainBoltIsRefused(t *testing.T) {
	names := found(func(testing.TB) Sink {
		return Sink{New: func() txn.Bolt { return plain{} }, Tuple: tupleOf, Shown: func(testing.TB) []string { return nil }, Want: func(int) []string { return nil }}
	})
	if !slices.Contains(names, "Undisturbed") {
		t.Errorf("a plain bolt is refused by %q", names)
	}
}
