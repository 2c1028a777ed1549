package bolttest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// driver makes the calls to one task of a sink, and knows what must come of them.
type driver struct {
	t        testing.TB
	sink     Sink
	schedule schedule
	script   []op
	at       int      // what of script was done
	past     []string // what happened before it

	generation txn.Generation
	bolt       txn.StatefulBolt
	closers    []func() error               // of all instances
	tuples     int                          // executed
	finished   map[txn.BatchID]any          // what FinishBatch returned
	unacked    []txn.Handle                 // of batches not acknowledged, and of the newest
	listed     map[txn.BatchID][]txn.Handle // by the manifest of a batch

	acked bool // since the last start or rollback

	opener *memstore.Opener // of the state of a keyed sink

	head  txn.BatchID
	heads []txn.BatchID // all that there were
}

func start(t testing.TB, sink Sink, s schedule) *driver {
	t.Helper()
	d := &driver{t: t, sink: sink, schedule: s, heads: []txn.BatchID{0}, listed: map[txn.BatchID][]txn.Handle{}}
	d.begin()
	d.open()
	return d
}

// begin prepares the script for what is not committed.
func (d *driver) begin() {
	d.script, d.at = d.schedule.script(d.head+1), 0
	d.tuples = 0
	for n := range d.head {
		d.tuples += sizes[n]
	}
	d.acked = false
	d.finished = map[txn.BatchID]any{}
	d.unacked = slices.Clone(d.listed[d.head])
}

// open makes a new instance.
func (d *driver) open() {
	d.t.Helper()
	d.generation++
	user := d.sink.New()
	if c, ok := user.(txn.Closer); ok {
		d.closers = append(d.closers, c.Close)
	}
	switch user := user.(type) {
	case txn.KeyedBolt:
		d.bolt = newKeyed(d, user)
	case txn.StatefulBolt:
		d.bolt = user
		if o, ok := user.(txn.Opener); ok {
			if err := o.Open(d.context()); err != nil {
				d.fatalf("Open: %v", err)
			}
		}
	default:
		d.t.Fatalf("%T is no sink: neither a txn.StatefulBolt nor a txn.KeyedBolt", user)
	}
	if err := d.bolt.InitState(slices.Clone(d.unacked)); err != nil {
		d.fatalf("InitState: %v", err)
	}
	d.check("InitState")
}

func (d *driver) context() *txn.Context {
	return txn.NewContext(context.Background(), txn.Context{Topology: "bolttest", Component: "sink", TaskCount: 1, Generation: d.generation}, nil)
}

func (d *driver) fatalf(format string, args ...any) {
	d.t.Helper()
	var did []string
	for _, o := range d.script[:d.at] {
		did = append(did, o.String())
	}
	past := strings.Join(slices.Concat(d.past, did), "\n\t")
	d.t.Fatalf("%s:\n\t%s\nthen: "+format, slices.Concat([]any{d.schedule.name, past}, args)...)
}

// play makes the calls of the script up to one.
func (d *driver) play(to int) {
	d.t.Helper()
	for d.at < to {
		o := d.script[d.at]
		if err := d.do(o); err != nil {
			d.fatalf("%s: %v", o, err)
		}
		d.at++
		if o.kind != execute || d.at == len(d.script) || d.script[d.at].kind != execute {
			d.check(o.String())
		}
	}
}

func (d *driver) do(o op) error {
	switch o.kind {
	case execute:
		d.tuples++
		return d.bolt.Execute(d.sink.Tuple(d.tuples-1), d.collector())
	case ended:
		if e, ok := d.bolt.(txn.InputEnder); ok {
			return e.InputEnded(d.collector())
		}
	case finish:
		state, err := d.bolt.FinishBatch(o.batch, d.collector())
		d.finished[o.batch] = state
		return err
	case commit:
		data, err := d.bolt.Commit(context.Background(), o.batch, d.finished[o.batch])
		d.unacked = append(d.unacked, txn.Handle{Batch: o.batch, Generation: d.generation, Data: slices.Clone(data)})
		d.listed[o.batch] = slices.Clone(d.unacked)
		return err
	case head:
		d.head = o.batch
		d.heads = append(d.heads, o.batch)
	case ack:
		return d.ack(o.batch)
	}
	return nil
}

// ack acknowledges a batch and takes the handles off that need not be listed again.
func (d *driver) ack(n txn.BatchID) error {
	if k, ok := d.bolt.(*keyed); ok {
		k.last = n == lastBatch
	}
	err := d.bolt.AckCommit(context.Background(), n, max(n, 1)-1)
	d.acked = true
	for len(d.unacked) > 1 && d.unacked[0].Batch <= n {
		d.unacked = d.unacked[1:]
	}
	return err
}

// collector drops what a sink emits.
func (d *driver) collector() *txn.Collector {
	var declared txn.OutputDeclarer
	if c, ok := d.bolt.(txn.Declarer); ok {
		c.DeclareOutputFields(&declared)
	}
	streams, _ := declared.Streams()
	return txn.NewTestCollector(streams, func(string, []tuple.Value) {})
}

// acknowledge repeats the newest acknowledgement.
func (d *driver) acknowledge() {
	d.t.Helper()
	if d.head == 0 {
		return
	}
	if err := d.ack(d.head); err != nil {
		d.fatalf("AckCommit of batch %d again: %v", d.head, err)
	}
	d.check("AckCommit again")
}

func (d *driver) turn(what string) {
	for _, o := range d.script[:d.at] {
		d.past = append(d.past, o.String())
	}
	d.past = append(d.past, what)
	d.begin()
}

// crash lets the process die and begins again from the head. A dead instance is closed
// only when all is over: the system does no more for a process that is killed.
func (d *driver) crash() {
	d.t.Helper()
	d.turn("crash")
	d.open()
}

// rollback goes back to the head with the same instance.
func (d *driver) rollback() {
	d.t.Helper()
	if _, ok := d.bolt.(*keyed); ok { // of which the engine makes a new instance
		d.crash()
		return
	}
	d.turn("rollback")
	d.generation++
	if err := d.bolt.Rollback(slices.Clone(d.unacked)); err != nil {
		d.fatalf("Rollback: %v", err)
	}
	d.check("Rollback")
}

// check fails unless the target shows what it may.
func (d *driver) check(after string) {
	d.t.Helper()
	shown := d.sink.Shown(d.t)
	for _, n := range d.heads {
		if within(shown, d.sink.Want(end(n))) {
			return
		}
	}
	d.fatalf("after %s the target shows %q, with batch %d committed, which is %q", after, shown, d.head, d.sink.Want(end(d.head)))
}

// end returns how many tuples there are up to the end of a batch.
func end(n txn.BatchID) int {
	total := 0
	for _, size := range sizes[:n] {
		total += size
	}
	return total
}

// within reports whether all of part is in whole, as often.
func within(part, whole []string) bool {
	left := map[string]int{}
	for _, s := range whole {
		left[s]++
	}
	for _, s := range part {
		if left[s]--; left[s] < 0 {
			return false
		}
	}
	return true
}

// finish fails unless everything shows, once, also when all instances are closed.
func (d *driver) finish() {
	d.t.Helper()
	if !d.acked { // the topology master repeats it until it is confirmed
		d.acknowledge()
	}
	d.compare("in the end")
	for _, c := range d.closers {
		if err := c(); err != nil {
			d.fatalf("Close: %v", err)
		}
	}
	d.closers = nil
	d.compare("after Close")
}

func (d *driver) compare(when string) {
	d.t.Helper()
	shown := slices.Sorted(slices.Values(d.sink.Shown(d.t)))
	if want := slices.Sorted(slices.Values(d.sink.Want(end(lastBatch)))); !slices.Equal(shown, want) {
		d.fatalf("%s the target shows %q, want %q", when, shown, want)
	}
}

// stop returns the process as it is at the moment; it goes on with stumble.
func (d *driver) stop() *driver {
	old := *d
	old.finished = maps.Clone(d.finished)
	old.listed = map[txn.BatchID][]txn.Handle{}
	return &old
}

// stumble makes the next call of a process that has been replaced. The head is out of
// its reach; it may still be at the acknowledgement of the batch that it knows of.
func (d *driver) stumble() {
	if d.at >= len(d.script) {
		return
	}
	o := d.script[d.at]
	d.at++
	defer func() { _ = recover() }()
	switch {
	case o.kind == ack && o.batch <= d.head:
		_ = d.bolt.AckCommit(context.Background(), o.batch, 0)
	case o.kind != ack && o.kind != head:
		_ = d.do(o)
	}
}
