package sim

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
	"github.com/isobar-io/isobar/txn/protocol"
)

// phased is a txn.TwoPhaseSink. Its Bolt is nil: here tuples come as items.
type phased struct {
	txn.Bolt
	items   []item
	prepare func(id txn.TransactionID, items []item) error
	publish func(id txn.TransactionID) error
	discard func(void func(txn.TransactionID) bool) error
}

// Finish ends a batch; see [txn.TwoPhaseSink].
func (p *phased) Finish(txn.TransactionID) (any, error) {
	if len(p.items) == 0 {
		return nil, nil
	}
	items := p.items
	p.items = nil
	return items, nil
}

// Prepare makes output durable; see [txn.TwoPhaseSink].
func (p *phased) Prepare(_ context.Context, id txn.TransactionID, output any) ([]byte, error) {
	return nil, p.prepare(id, output.([]item))
}

// Publish makes it visible; see [txn.TwoPhaseSink].
func (p *phased) Publish(_ context.Context, id txn.TransactionID, _ []byte) error {
	return p.publish(id)
}

// Discard drops what is void; see [txn.TwoPhaseSink].
func (p *phased) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	return p.discard(void)
}

// stager is a txn.StagedSink, likewise.
type stager struct {
	txn.Bolt
	txn.Stage
	publish func(id txn.TransactionID, items []item) error
}

// Publish writes records and marker in one step; see [txn.StagedSink].
func (s *stager) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	var items []item
	for _, r := range records {
		items = append(items, decodeItems(r)...)
	}
	return s.publish(id, items)
}

// sinkLogic drives the five calls that package txn makes for a sink.
type sinkLogic struct {
	t       *task
	phased  *phased // one of the two
	stager  *stager
	calls   txn.StatefulBolt
	request underWay
	closed  map[batchID]any
}

func newSinkLogic(t *task) *sinkLogic {
	l := &sinkLogic{t: t, closed: map[batchID]any{}}
	at := t.w.target
	var inst any
	if t.comp.kind == staged {
		l.stager = &stager{publish: func(id txn.TransactionID, items []item) error {
			return l.ask(func(reply func(error)) { at.write(id, items, t.gen, reply) })
		}}
		inst = l.stager
	} else {
		l.phased = &phased{
			prepare: func(id txn.TransactionID, items []item) error {
				return l.ask(func(reply func(error)) { at.prepare(id, items, t.gen, reply) })
			},
			publish: func(id txn.TransactionID) error {
				return l.ask(func(reply func(error)) { at.publish(id, t.gen, reply) })
			},
			discard: func(void func(txn.TransactionID) bool) error {
				return l.ask(func(reply func(error)) { at.discard(t.comp.name, t.gen, void, reply) })
			},
		}
		inst = l.phased
	}
	l.calls, _ = txn.AsStateful(inst, txn.NewContext(context.Background(), txn.Context{
		RunID: runID, Component: t.comp.name, TaskIndex: t.index, TaskCount: t.comp.tasks, Generation: t.gen,
	}, nil))
	return l
}

// underWay is the one request that user code waits for.
type underWay struct {
	again    func() // makes the call again that has asked
	answered bool
	err      error
}

// errUnderWay is returned by user code that has asked and must be called again when
// the answer is there: in place of waiting, for which there is no goroutine.
var errUnderWay = errors.New("the request is under way")

func (l *sinkLogic) ask(request func(reply func(error))) error {
	r := &l.request
	if r.answered {
		r.answered = false
		return fatalIfFenced(r.err)
	}
	request(func(err error) {
		if l.t.state != ended {
			r.answered, r.err = true, err
			r.again()
		}
	})
	return errUnderWay
}

// wait makes a call until what it asks for is answered.
func (l *sinkLogic) wait(call func() error, done func(error)) {
	err := call()
	if errors.Is(err, errUnderWay) {
		l.request.again = func() { l.wait(call, done) }
		return
	}
	done(err)
}

func fatalIfFenced(err error) error {
	if errors.Is(err, errFenced) {
		return txn.Fatal(err)
	}
	return err
}

func (l *sinkLogic) restore(from origin, done func()) {
	t := l.t
	handles, err := l.handles(from)
	if err != nil {
		t.w.violate("%s: rescale: %v", t, err)
		return
	}
	t.handles = handles
	if !t.w.is(RestoredHandles) {
		handles = nil
	}
	initState := func() {
		t.persist(func(reply func(error)) {
			l.wait(func() error { return l.calls.InitState(handles) }, reply)
		}, done)
	}
	if l.stager != nil { // needs no target before it writes
		initState()
		return
	}
	t.persist(func(reply func(error)) { t.w.target.raise(t.comp.name, t.gen, reply) }, initState)
}

func (l *sinkLogic) handles(from origin) ([]txn.Handle, error) {
	old := make([][]txn.Handle, len(from.old))
	for i, s := range from.old {
		old[i] = s.Handles
	}
	switch len(old) {
	case 0:
		return nil, nil
	case l.t.comp.tasks:
		return old[l.t.index], nil
	}
	l.t.w.count("rescaled sink task")
	return l.calls.(txn.Rescaler).Rescale(old, l.t.index, l.t.comp.tasks)
}

// persist repeats a request of a task that is being restored until it succeeds.
func (t *task) persist(ask func(reply func(error)), done func()) {
	if t.state == ended {
		return
	}
	ask(func(err error) {
		switch {
		case t.state == ended:
		case err == nil:
			done()
		case errors.Is(err, errFenced):
			t.fail(err)
		default:
			t.w.after(t.w.timing.RetryMin, func() { t.persist(ask, done) })
		}
	})
}

func (l *sinkLogic) execute(it item) {
	if l.stager != nil {
		l.stager.Add(encodeItems([]item{it}))
		return
	}
	l.phased.items = append(l.phased.items, it)
}

func (l *sinkLogic) finish(n batchID, _ tuple.MarkKind) {
	state, err := l.calls.FinishBatch(n, nil)
	if err != nil {
		l.t.w.violate("%s: finish batch %d: %v", l.t, n, err)
	}
	l.closed[n] = state
}

func (l *sinkLogic) commit(n batchID, done func([]byte, error)) {
	var handle []byte
	l.wait(func() (err error) {
		handle, err = l.calls.Commit(context.Background(), n, l.closed[n])
		return err
	}, func(err error) {
		if err == nil {
			delete(l.closed, n)
		}
		done(handle, err)
	})
}

func (l *sinkLogic) acknowledge(a protocol.Acknowledge, done func(error)) {
	l.wait(func() error { return l.calls.AckCommit(context.Background(), a.Batch, a.Oldest) }, done)
}

func (l *sinkLogic) snapshot(batchID, *checkpoint.TaskSnapshot) {}

// listed is a transaction that a handle lists, with its output if that is staged.
type listed struct {
	id    txn.TransactionID
	items []item
}

// transactions returns what handles of a sink list: what it would publish.
func transactions(k kind, handles []txn.Handle) ([]listed, error) {
	var all []listed
	var inst any = &stager{publish: func(id txn.TransactionID, items []item) error {
		all = append(all, listed{id, items})
		return nil
	}}
	if k == twoPhase {
		inst = &phased{
			publish: func(id txn.TransactionID) error {
				all = append(all, listed{id: id})
				return nil
			},
			discard: func(func(txn.TransactionID) bool) error { return nil },
		}
	}
	calls, _ := txn.AsStateful(inst, txn.NewContext(context.Background(), txn.Context{}, nil))
	if err := calls.InitState(handles); err != nil {
		return nil, fmt.Errorf("restore the handles: %w", err)
	}
	return all, calls.AckCommit(context.Background(), math.MaxUint64, 0)
}
