package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// ledger is a system outside that two sinks write to, whatever branch they are on.
type ledger struct {
	mu        sync.Mutex
	store     checkpoint.Store
	prepared  map[txn.TransactionID][]string
	published map[txn.TransactionID][]string
	markers   map[string]txn.TransactionID // by component and task
	wrongs    wrongs
	down      bool // does not answer
	dead      bool // kills who calls it
}

func newLedger(s checkpoint.Store) *ledger {
	return &ledger{
		store:     s,
		prepared:  map[txn.TransactionID][]string{},
		published: map[txn.TransactionID][]string{},
		markers:   map[string]txn.TransactionID{},
	}
}

// mayPublish fails unless the current checkpoint lists the transaction: invariants I1
// and I7.
func (l *ledger) mayPublish(ctx context.Context, id txn.TransactionID, mark []byte) error {
	switch {
	case l.dead:
		return errKilled
	case l.down:
		return errTarget
	}
	data, _, err := l.store.ReadHead(ctx)
	if err != nil {
		return err
	}
	h, err := checkpoint.DecodeHead("head", data)
	if err != nil {
		return err
	}
	for _, r := range h.Regions {
		mf, err := checkpoint.ReadManifest(ctx, l.store, *r.Current())
		if err != nil {
			return err
		}
		for _, task := range mf.Tasks {
			for _, handle := range task.Handles {
				if task.Component == id.Component && handle.Batch == id.Batch && bytes.Contains(handle.Data, mark) {
					return nil
				}
			}
		}
		l.wrongs.add("transaction %s is published, and checkpoint %s does not list it", id, r.Current())
	}
	return nil
}

func (l *ledger) set(down, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.dead = down, dead
}

// write publishes the rows of a transaction.
func (l *ledger) write(id txn.TransactionID, rows []string) {
	if _, twice := l.published[id]; twice {
		l.wrongs.add("transaction %s is published twice", id)
	}
	l.published[id] = rows
}

// counts returns how often each row of a component was published.
func (l *ledger) counts(component string) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int64{}
	for id, rows := range l.published {
		for _, row := range rows {
			if id.Component == component {
				counts[row]++
			}
		}
	}
	return counts
}

// phasedBranch writes to the ledger in two phases.
type phasedBranch struct {
	l    *ledger
	rows []string
}

func (s *phasedBranch) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.rows = append(s.rows, t.Str(0))
	return nil
}

func (s *phasedBranch) Finish(txn.TransactionID) (any, error) {
	out := s.rows
	s.rows = nil
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func (s *phasedBranch) Prepare(_ context.Context, id txn.TransactionID, out any) ([]byte, error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.prepared[id] != nil || s.l.published[id] != nil {
		s.l.wrongs.add("transaction %s is prepared a second time", id)
	}
	s.l.prepared[id] = out.([]string)
	return []byte(id.String()), nil
}

func (s *phasedBranch) Publish(ctx context.Context, id txn.TransactionID, data []byte) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if err := s.l.mayPublish(ctx, id, data); err != nil {
		return err
	}
	rows, ok := s.l.prepared[id]
	switch {
	case s.l.published[id] != nil:
		return nil
	case !ok:
		return txn.Fatal(fmt.Errorf("transaction %s is not prepared", id))
	}
	delete(s.l.prepared, id)
	s.l.write(id, rows)
	return nil
}

func (s *phasedBranch) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.rows = nil
	maps.DeleteFunc(s.l.prepared, func(id txn.TransactionID, _ []string) bool { return void(id) })
	return nil
}

// stagedBranch writes to the ledger with a marker.
type stagedBranch struct {
	txn.Stage
	l *ledger
}

func (s *stagedBranch) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.Add([]byte(t.Str(0)))
	return nil
}

func (s *stagedBranch) Publish(ctx context.Context, id txn.TransactionID, records [][]byte) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if err := s.l.mayPublish(ctx, id, records[0]); err != nil {
		return err
	}
	key := fmt.Sprint(id.Component, id.Task)
	last := s.l.markers[key]
	if last.Generation > id.Generation || last.Generation == id.Generation && last.Batch >= id.Batch {
		return nil
	}
	s.l.markers[key] = id
	var rows []string
	for _, r := range records {
		rows = append(rows, string(r))
	}
	s.l.write(id, rows)
	return nil
}

// stay is one stay on a branch: the lines from where it began to where it was left.
type stay struct{ from, to int }

// branches is a topology that is taken back and forth between its checkpoints.
type branches struct {
	t       *testing.T
	store   *memstore.Store
	ledger  *ledger
	board   *board
	lines   []string
	limit   atomic.Int64 // never all lines: the run would end
	fail    atomic.Bool
	control *engine.Control
	stop    context.CancelFunc
	ended   <-chan ended
	stays   []stay
	edits   int
}

func newBranches(t *testing.T) *branches {
	in, _ := sample(1, 400)
	b := &branches{t: t, store: memstore.New(), lines: in[0], stays: []stay{{}}}
	for i := range b.lines {
		b.lines[i] += fmt.Sprint(" n", i)
	}
	b.ledger = newLedger(b.store)
	return b
}

// start starts the topology with a number of tasks for each of its parts.
func (b *branches) start(from string, tasks int) { b.startFrom(engine.Start{From: from}, tasks) }

func (b *branches) startFrom(from engine.Start, tasks int) {
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", limited(&b.limit, 10, b.lines), 1)
	tb.SetBolt("split", func() txn.Bolt {
		return failingSplit{&b.fail}
	}, 1).ShuffleGrouping("lines")
	tb.SetBolt("count", func() txn.Bolt { return &count{} }, tasks).FieldsGrouping("split", "word")
	b.board = &board{}
	tb.SetBolt("sink", func() txn.Bolt { return &latest{b: b.board} }, 1).GlobalGrouping("count")
	tb.SetBolt("phased", func() txn.Bolt { return &phasedBranch{l: b.ledger} }, tasks).FieldsGrouping("lines", "line")
	tb.SetBolt("staged", func() txn.Bolt { return &stagedBranch{l: b.ledger} }, tasks).FieldsGrouping("lines", "line")
	ctx, stop := context.WithCancel(b.t.Context())
	b.stop, b.control = stop, engine.NewControl()
	b.ended = start(ctx, build(b.t, tb), engine.WithStore(b.store, memstore.NewOpener(b.store)), engine.WithControl(b.control),
		engine.WithStart(from), conf(b.t, map[string]any{
			"transaction.schedule.batch.delay.ms": 50, "checkpoint.retained": 3,
			"checkpoint.orphan.grace.secs": 0, "topology.restart.max": 2}))
	b.settle()
}

// failingSplit is a split that fails once when it is told to.
type failingSplit struct{ fail *atomic.Bool }

func (failingSplit) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

func (f failingSplit) Execute(t *tuple.Tuple, out *txn.Collector) error {
	if f.fail.CompareAndSwap(true, false) {
		return errors.New("no luck")
	}
	return split{}.Execute(t, out)
}

// settle waits until nothing moves any more: all input is committed and published.
func (b *branches) settle() { time.Sleep(10 * time.Second); synctest.Wait() }

func (b *branches) kept() []checkpoint.Ref { return headOf(b.t, b.store).Kept("count") }

func (b *branches) current() checkpoint.Ref { return *headOf(b.t, b.store).Regions["count"].Current() }

// counted returns how many lines a checkpoint has counted.
func (b *branches) counted(ref checkpoint.Ref) int {
	mf, err := checkpoint.ReadManifest(b.t.Context(), b.store, ref)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, task := range mf.Tasks {
		for _, p := range task.Positions {
			return int(binary.BigEndian.Uint64(p.Data))
		}
	}
	return 0
}

// leave notes that the branch goes on from another checkpoint, with some more lines.
func (b *branches) leave(to string, more int) {
	b.stays[len(b.stays)-1].to = b.counted(b.current())
	at := 0
	for _, ref := range b.kept() {
		if ref.String() == to {
			at = b.counted(ref)
		}
	}
	b.stays = append(b.stays, stay{from: at})
	b.limit.Store(int64(min(at+more, len(b.lines)-1)))
}

// end stops the run.
func (b *branches) end() {
	b.stop()
	if e := <-b.ended; e.err != nil {
		b.t.Fatal(e.err)
	}
}

// crash ends the run whether it can publish or not.
func (b *branches) crash() {
	b.stop()
	b.settle()
	b.ledger.set(false, true)
	if e := <-b.ended; e.err != nil && !errors.Is(e.err, errKilled) {
		b.t.Fatal(e.err)
	}
	b.ledger.set(false, false)
}

// check compares state and what is published with the model of this branch.
func (b *branches) check(op string) {
	want := b.checkState(op)
	for _, component := range []string{"phased", "staged"} {
		if got := b.ledger.counts(component); !maps.Equal(got, want) {
			b.t.Errorf("%s: %s has published %d lines, want %d, of the stays %v", op, component, len(got), len(want), b.stays)
		}
	}
	if len(b.ledger.prepared) > 0 {
		b.t.Errorf("%s: %d transactions are left prepared", op, len(b.ledger.prepared))
	}
}

// checkState compares the state with the model of this branch, and returns how often
// each line was counted on all of them.
func (b *branches) checkState(op string) map[string]int64 {
	at := b.counted(b.current())
	if want := int(b.limit.Load()); at != want {
		b.t.Errorf("%s: %d lines are committed, want %d", op, at, want)
	}
	if got, want := b.board.get(), wordsOf(b.lines, at); !maps.Equal(got, want) {
		b.t.Errorf("%s: %d words of %d lines are shown, want %d; a = %d", op, len(got), at, len(want), got["a"])
	}
	want := map[string]int64{}
	for i, s := range b.stays {
		if i == len(b.stays)-1 {
			s.to = at
		}
		for line := s.from; line < s.to; line++ {
			want[b.lines[line]]++
		}
	}
	b.ledger.wrongs.check(b.t)
	return want
}

// op is one thing that an operator does; n and more choose what to do it to.
type op struct {
	kind    string
	n, more int
	tasks   int
}

func (b *branches) do(o op) {
	kept := b.kept()
	ref := kept[o.n%len(kept)]
	switch o.kind {
	case "run", "fail":
		b.fail.Store(o.kind == "fail" && int(b.limit.Load()) < len(b.lines)-1)
		b.limit.Store(min(b.limit.Load()+int64(o.more)+1, int64(len(b.lines)-1)))
	case "rollback":
		b.rollback(ref.String(), o)
	case "from":
		b.end()
		kept = b.kept()
		b.from(kept[o.n%len(kept)].String(), o)
	case "latest":
		b.end()
		b.start("", o.tasks)
	case "savepoint":
		if _, err := b.control.Savepoint(b.t.Context(), ""); err != nil {
			b.t.Errorf("savepoint: %v", err)
		}
	case "pin":
		b.edit(checkpoint.PinEdit(ref.Generation, ref.Batch, ""))
	case "unpin":
		if pins := headOf(b.t, b.store).Pins; len(pins) > 0 {
			b.edit(checkpoint.UnpinEdit(pins[o.n%len(pins)].Generation, pins[o.n%len(pins)].Batch, ""))
		}
	case "prune":
		b.edit(checkpoint.PruneEdit(o.n % 3))
	}
	b.settle()
}

func (b *branches) rollback(to string, o op) {
	b.leave(to, o.more)
	b.board.mu.Lock()
	b.board.n = 0 // what is published now may be older
	b.board.mu.Unlock()
	if err := b.control.Rollback(b.t.Context(), to, false); err != nil {
		b.t.Errorf("roll back to %s: %v", to, err)
	}
}

// from starts again after the end of a run.
func (b *branches) from(checkpoint string, o op) {
	b.leave(checkpoint, o.more)
	b.start(checkpoint, o.tasks)
}

// edit changes the head from outside.
func (b *branches) edit(e checkpoint.Edit) {
	b.edits++
	if _, _, _, err := checkpoint.EditHead(b.t.Context(), b.store, fmt.Sprint("operator-", b.edits), e); err != nil {
		b.t.Error(err)
	}
}

func opGenerator() *rapid.Generator[op] {
	kinds := []string{"run", "run", "fail", "rollback", "rollback", "rollback", "from", "from", "latest", "savepoint", "pin", "unpin", "prune"}
	return rapid.Custom(func(t *rapid.T) op {
		return op{
			kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
			n:     rapid.IntRange(0, 7).Draw(t, "n"),
			more:  rapid.IntRange(0, 60).Draw(t, "more"),
			tasks: rapid.IntRange(1, 3).Draw(t, "tasks"),
		}
	})
}

// An operator goes back and forth between checkpoints, in any order and with any number
// of tasks: state is always that of the branch, and each stay on a branch publishes its
// lines once more, under transactions of its own.
func TestBranchesOfCheckpointsAreIndependent(t *testing.T) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(opGenerator(), 1, 14).Draw(rt, "ops")
		n++
		if !t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBranches(t)
				b.limit.Store(30)
				b.start("", 2)
				for _, o := range ops {
					b.do(o)
					b.check(fmt.Sprintf("%+v", o))
				}
				b.end()
				b.check("end")
			})
		}) {
			rt.Fatalf("operations %+v", ops)
		}
	})
}
