package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// chain measures what two hops cost: a spout that emits the same tuple for ever, a
// bolt that passes it on, and one that counts what arrives. Its components use what
// the SDK has for those in a hurry.
type chain struct{}

func (chain) name() string    { return "chain" }
func (chain) heeds() []string { return []string{"modes"} }

func (chain) comparisons(o options) ([]comparison, error) {
	modes, err := parseModes(o.modes, allModes)
	return []comparison{{
		label: "1/1/1", columns: paceColumns("tuples"), bases: []string{limitMode, "at-most-once"},
		variants: byMode(modes, func(ctx context.Context, m mode) (sample, error) {
			return pace(ctx, o, 1, func(ctx context.Context, counted []paddedCounter) error {
				if m.name == limitMode {
					limitChain(ctx, counted)
					return nil
				}
				t, err := chainTopology(&constantSpout{}, counted)
				if err != nil {
					return err
				}
				return runTopology(ctx, m, t)
			})
		}),
	}}, err
}

func chainTopology(s *constantSpout, counted []paddedCounter) (*engine.Topology, error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("constant", func() txn.Spout { return s }, 1)
	b.SetBolt("identity", func() txn.Bolt { return identityBolt{} }, 1).ShuffleGrouping("constant")
	b.SetBolt("null", func() txn.Bolt { return &nullBolt{told: counted} }, 1).ShuffleGrouping("identity")
	return b.Build()
}

const constant = "constant"

// constantSpout emits the same tuple for ever.
type constantSpout struct{ source }

// tuplesPerCall is how many tuples its NextTuple emits.
const tuplesPerCall = 1024

func (s *constantSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("it") }

func (s *constantSpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	v := tuple.String(constant)
	for range tuplesPerCall {
		out.Emit1(v)
	}
	s.emitted += tuplesPerCall
	return txn.Emitted, nil
}

// identityBolt emits what it gets.
type identityBolt struct{}

func (identityBolt) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("it") }

func (identityBolt) ExecuteBatch(f *tuple.Frame, out *txn.Collector) error {
	for _, v := range f.Values() {
		out.Emit1(v)
	}
	return nil
}

func (identityBolt) Execute(t *tuple.Tuple, out *txn.Collector) error {
	out.Emit1(t.Value(0))
	return nil
}

// nullBolt tells how many tuples it has got.
type nullBolt struct {
	told    []paddedCounter // of all tasks
	counted *atomic.Int64
}

func (b *nullBolt) Open(ctx *txn.Context) error {
	b.counted = &b.told[ctx.TaskIndex].n
	return nil
}

func (b *nullBolt) ExecuteBatch(f *tuple.Frame, _ *txn.Collector) error {
	b.counted.Add(int64(f.Len()))
	return nil
}

func (b *nullBolt) Execute(*tuple.Tuple, *txn.Collector) error {
	b.counted.Add(1)
	return nil
}

// limitChain is the chain written by hand: goroutines and slabs of texts. It returns
// how many it has emitted.
func limitChain(ctx context.Context, counted []paddedCounter) (emitted int64) {
	first, second := inlets[string](1, 1), inlets[string](1, 1)
	var spout, identity, null sync.WaitGroup
	spout.Go(func() { emitted = limitConstant(ctx, newOutlet(first, wordsPerSlab)) })
	identity.Go(func() { limitIdentity(first[0], newOutlet(second, wordsPerSlab)) })
	null.Go(func() {
		for s := range second[0] {
			counted[0].n.Add(int64(len(s.items)))
			s.home <- s
		}
	})
	spout.Wait()
	closeAll(first)
	identity.Wait()
	closeAll(second)
	null.Wait()
	return emitted
}

func limitConstant(ctx context.Context, out *outlet[string]) (emitted int64) {
	for ctx.Err() == nil {
		s := out.open[0]
		for len(s.items) < cap(s.items) {
			s.items = append(s.items, constant)
		}
		emitted += int64(len(s.items))
		out.send(0)
	}
	return emitted
}

func limitIdentity(in <-chan *slab[string], out *outlet[string]) {
	defer out.flush()
	for from := range in {
		to := out.open[0]
		for _, item := range from.items {
			if len(to.items) == cap(to.items) {
				out.send(0)
				to = out.open[0]
			}
			to.items = append(to.items, item)
		}
		from.home <- from
	}
}
