package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// The tests of this package that need a certain order of events run in a bubble of
// testing/synctest: time stands still as long as anything can go on, so that a pause
// of minutes costs nothing and "nothing happens any more" can be asked for. For time
// to pass while there is input, a spout must be idle now and then.

// paced returns a gate for lines that makes a spout idle after every n lines, until a
// millisecond has passed since it was asked for the first of them.
func paced(n int) func(part, line int) bool {
	left, began := 0, time.Time{}
	return func(int, int) bool {
		if left == 0 {
			if time.Since(began) < time.Millisecond {
				return false
			}
			left, began = n, time.Now()
		}
		left--
		return true
	}
}

func pacedLines(n int, parts ...[]string) func() txn.Spout {
	return func() txn.Spout {
		l := newLines(parts...)
		l.gate = paced(n)
		return l
	}
}

func numbered(prefix string, n int) (ls []string) {
	for i := range n {
		ls = append(ls, fmt.Sprint(prefix, i))
	}
	return ls
}

// ended is how a run ended.
type ended struct {
	res engine.Result
	err error
}

// start runs a topology beside the test.
func start(ctx context.Context, topo *engine.Topology, opts ...engine.Option) <-chan ended {
	c := make(chan ended, 1)
	go func() {
		res, err := engine.Run(ctx, topo, opts...)
		c <- ended{res, err}
	}()
	return c
}

func build(t testing.TB, b *engine.TopologyBuilder) *engine.Topology {
	t.Helper()
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// outside stands for a system with transactions: rows are prepared under a
// transaction's id, and then published or discarded. It outlives all tasks.
type outside struct {
	mu        sync.Mutex
	prepared  map[string][]string
	published map[string][]string
	wrongs    wrongs
}

func newOutside() *outside {
	return &outside{prepared: map[string][]string{}, published: map[string][]string{}}
}

// wrongs gathers what a correct engine never causes.
type wrongs struct {
	mu   sync.Mutex
	errs []error
}

func (w *wrongs) add(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *wrongs) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := errors.Join(w.errs...); err != nil {
		t.Error(err)
	}
}

func (o *outside) prepare(id string, rows []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.published[id] != nil {
		o.wrongs.add("transaction %s is prepared after it was published", id)
	}
	o.prepared[id] = append([]string{}, rows...)
}

func (o *outside) publish(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows, ok := o.prepared[id]
	if !ok && o.published[id] == nil {
		o.wrongs.add("transaction %s is published but was never prepared, or was discarded", id)
	}
	if ok {
		o.published[id] = rows
		delete(o.prepared, id)
	}
}

// discardOthers drops what a task has prepared, except keep.
func (o *outside) discardOthers(task int, keep []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.prepared {
		var owner, gen, batch int
		if _, err := fmt.Sscanf(id, "%d/%d.%d", &owner, &gen, &batch); err != nil {
			panic(err)
		}
		if owner == task && !slices.Contains(keep, id) {
			delete(o.prepared, id)
		}
	}
}

// rows returns everything published, sorted.
func (o *outside) rows() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, rows := range o.published {
		all = append(all, rows...)
	}
	slices.Sort(all)
	return all
}

func (o *outside) check(t *testing.T, want ...[]string) {
	t.Helper()
	o.wrongs.check(t)
	all := slices.Concat(want...)
	slices.Sort(all)
	if got := o.rows(); !slices.Equal(got, all) {
		t.Errorf("%d rows published, want %d: not published, or published twice: %q", len(got), len(all), difference(got, all))
	}
	if len(o.prepared) > 0 {
		t.Errorf("%d transactions were left prepared", len(o.prepared))
	}
}

// difference returns up to ten of the rows that two sorted lists do not share.
func difference(a, b []string) (only []string) {
	for len(a)+len(b) > 0 && len(only) < 10 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			only, a = append(only, "+"+a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			only, b = append(only, "-"+b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return only
}

// sink publishes its input to outside in two phases: it prepares in Commit and
// publishes in AckCommit. The functions, if set, can make its calls fail or wait.
type sink struct {
	o        *outside
	log      *calls
	execute  func(t *tuple.Tuple) error
	commit   func(ctx context.Context, n txn.BatchID) error
	ack      func(ctx context.Context, n txn.BatchID) error
	ctx      *txn.Context
	buf      []string
	mu       sync.Mutex
	ids      map[txn.BatchID]string // prepared and not acknowledged
	restored bool
	failed   bool        // in Execute
	spent    atomic.Bool // by a fatal error
	closed   bool
}

// calls counts what becomes of the instances of a component.
type calls struct {
	mu                         sync.Mutex
	inits, rollbacks, closings int
	attempts, acks             int
}

func (c *calls) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (s *sink) Open(ctx *txn.Context) error {
	s.ctx, s.ids = ctx, map[txn.BatchID]string{}
	return nil
}

// usable notes a call that an instance should not get any more, or not yet.
func (s *sink) usable(call string) {
	if s.restored && !s.failed && !s.closed {
		return
	}
	s.o.wrongs.add("%s of an instance that was restored: %t, has failed: %t, was closed: %t", call, s.restored, s.failed, s.closed)
}

func (s *sink) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.usable("Execute")
	if s.execute != nil {
		if err := s.execute(t); err != nil {
			s.failed = true
			return err
		}
	}
	s.buf = append(s.buf, t.Str(0))
	return nil
}

func (s *sink) FinishBatch(txn.BatchID, *txn.Collector) (any, error) {
	s.usable("FinishBatch")
	rows := s.buf
	s.buf = nil
	return rows, nil
}

func (s *sink) Commit(ctx context.Context, n txn.BatchID, state any) ([]byte, error) {
	s.log.count(&s.log.attempts)
	if s.commit != nil {
		if err := s.commit(ctx, n); err != nil {
			s.spent.Store(txn.IsFatal(err))
			return nil, err
		}
	}
	id := fmt.Sprintf("%d/%d.%d", s.ctx.TaskID, s.ctx.Generation, n)
	s.o.prepare(id, state.([]string))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[n] = id
	return []byte(id), nil
}

func (s *sink) AckCommit(ctx context.Context, n, _ txn.BatchID) error {
	s.log.count(&s.log.acks)
	if s.ack != nil {
		if err := s.ack(ctx, n); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for batch, id := range s.ids {
		if batch <= n {
			s.o.publish(id)
			delete(s.ids, batch)
		}
	}
	return nil
}

func (s *sink) restore(handles []txn.Handle) error {
	var keep []string
	for _, h := range handles {
		keep = append(keep, string(h.Data))
	}
	s.o.discardOthers(s.ctx.TaskID, keep)
	for _, id := range keep {
		s.o.publish(id)
	}
	clear(s.ids)
	s.buf = nil
	return nil
}

func (s *sink) InitState(handles []txn.Handle) error {
	s.log.count(&s.log.inits)
	if s.ctx == nil || s.restored {
		s.o.wrongs.add("InitState of an instance that is not new")
	}
	s.restored = true
	return s.restore(handles)
}

func (s *sink) Rollback(handles []txn.Handle) error {
	s.log.count(&s.log.rollbacks)
	s.usable("Rollback")
	if s.spent.Load() {
		s.o.wrongs.add("Rollback of an instance that has failed for good")
	}
	return s.restore(handles)
}

func (s *sink) Close() error {
	s.log.count(&s.log.closings)
	s.closed = true
	return nil
}
