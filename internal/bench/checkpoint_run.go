package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// load says which keys a run changes, and how fast.
type load struct {
	keys       uint64        // that there are
	perBatch   uint64        // of them, how many different ones a batch changes at most
	rate       float64       // tuples a second; 0: as many as go through
	until      atomic.Uint64 // the spout idles when that many are emitted; 0: it does not
	valueBytes int
	ages       *ages
}

// changeRun is a run that changes the values of keys.
type changeRun struct {
	store    checkpoint.Store
	local    string
	interval time.Duration // between barriers
	load     *load
	ledger   *ledger

	bases atomic.Int64 // that are being written
}

// components of a changeRun
const (
	changesComponent = "changes"
	holdComponent    = "hold"
	holdState        = "value"
)

// run runs it until ctx ends.
func (r *changeRun) run(ctx context.Context) error {
	r.bases.Store(0) // of one that an earlier run gave up nothing was heard
	b := engine.NewTopologyBuilder()
	b.SetSpout(changesComponent, func() txn.Spout { return &changeSpout{load: r.load, ledger: r.ledger} }, 1)
	b.SetBolt(holdComponent, func() txn.Bolt { return &changeBolt{load: r.load} }, holdTasks).FieldsGrouping(changesComponent, "key")
	topology, err := b.Build()
	if err != nil {
		return err
	}
	conf, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": int(max(r.interval.Milliseconds(), 1))})
	if err != nil {
		return err
	}
	state := pebblestate.New(pebblestate.Options{Dir: r.local, Store: r.store})
	_, err = engine.Run(ctx, topology, engine.WithConfig(conf), engine.WithStore(r.store, state), engine.WithHook(r.hook))
	return errors.Join(err, state.Close())
}

func (r *changeRun) hook(step string) {
	switch step {
	case "base.before":
		r.bases.Add(1)
	case "base.after":
		r.bases.Add(-1)
	}
}

// during runs it until fn returns.
func (r *changeRun) during(ctx context.Context, fn func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- r.run(ctx)
		stop() // fn need not wait for what will not come
	}()
	err := fn(ctx)
	stop()
	if runErr := <-ended; runErr != nil {
		return runErr
	}
	return err
}

// paced runs it for one window, which opens some time after a checkpoint, and has one at
// least. It returns how old tuples were, and what was put.
func (r *changeRun) paced(ctx context.Context, o options) (aged spread, put account, err error) {
	runtime.GC()
	err = r.during(ctx, func(ctx context.Context) error {
		since := time.Time{}
		checkpointed := func() bool { return r.ledger.lastMoved.After(since) }
		if err := errors.Join(r.ledger.await(ctx, checkpointed), pass(ctx, o.warmUp)); err != nil {
			return err
		}
		since = time.Now()
		before := spreadOf(r.load.ages.old)
		if err := errors.Join(pass(ctx, o.duration), r.ledger.await(ctx, checkpointed)); err != nil {
			return err
		}
		aged, put = spreadOf(r.load.ages.old).since(before), r.ledger.between(since, time.Now())
		return nil
	})
	return aged, put, err
}

// pass waits for some time.
func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changeSpout emits keys with the moments at which they are due. A batch begins with
// the key that follows the tuples before, and goes through so many keys in turn.
type changeSpout struct {
	source
	load   *load
	ledger *ledger
	began  time.Duration
	sent   uint64   // since then
	names  []string // of the keys of the open batch, as far as it has come
	keys   keyMaker
}

func (s *changeSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("key", "due") }

func (s *changeSpout) Open(ctx *txn.Context) error {
	s.began = s.load.ages.now()
	return s.source.Open(ctx)
}

func (s *changeSpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	now := s.load.ages.now()
	t := timetable{s.began, s.load.rate}
	n := min(changesPerCall, t.due(now, s.sent))
	if until := s.load.until.Load(); until > 0 {
		n = min(n, until-min(s.emitted, until))
	}
	for range n {
		due := t.at(now, s.sent)
		out.Emit2(tuple.String(s.key()), tuple.Int64(int64(due)))
		s.load.ages.late[0].observe(now-due, 1)
		s.sent++
		s.emitted++
	}
	if n == 0 {
		return txn.Idle, nil
	}
	return txn.Emitted, nil
}

// changesPerCall is how many tuples a NextTuple emits at most.
const changesPerCall = 256

// key returns the key of the next tuple.
func (s *changeSpout) key() string {
	i := int((s.emitted - s.finished) % s.load.perBatch)
	if i == len(s.names) {
		number := (s.finished + uint64(i)) % s.load.keys
		s.names = append(s.names, s.keys.make(int(number)).text)
	}
	return s.names[i]
}

func (s *changeSpout) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	s.ledger.close(n, min(s.emitted-s.finished, s.load.perBatch), s.emitted)
	s.names = s.names[:0]
	return s.source.FinishBatch(n)
}

// changeBolt gives its keys other values, which do not compress.
type changeBolt struct {
	load    *load
	values  *txn.Value[[]byte]
	counted *atomic.Int64
	old     *histogram
	noise   []byte
	at      int
}

// noise returns random bytes: values are parts of them.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 8<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(b) // it cannot fail
	return b
})

func (b *changeBolt) Open(ctx *txn.Context, s *txn.State) error {
	b.counted = &b.load.ages.words[ctx.TaskIndex].n
	b.old = b.load.ages.old[ctx.TaskIndex]
	b.noise = noise()
	b.values = txn.NewValue(s, holdState, txn.BytesCodec())
	return nil
}

// ExecuteKeyed changes the keys of a frame.
func (b *changeBolt) ExecuteKeyed(keys *txn.KeyedBatch, _ *txn.Collector) error {
	b.load.ages.arrived(b.old, keys)
	for i := range keys.Len() {
		if err := keys.Select(i); err != nil {
			return err
		}
		if err := b.values.Set(b.value()); err != nil {
			return err
		}
	}
	b.counted.Add(int64(keys.Len()))
	return nil
}

func (b *changeBolt) Execute(*tuple.Tuple, *txn.Collector) error {
	b.counted.Add(1)
	return b.values.Set(b.value())
}

// value returns the next value.
func (b *changeBolt) value() []byte {
	const step = 104729 // no value is found again within a block of a table
	b.at = (b.at + step) % (len(b.noise) - b.load.valueBytes)
	return b.noise[b.at : b.at+b.load.valueBytes]
}
