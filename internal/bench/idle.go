package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// idle measures what a topology of twenty tasks costs that has nothing to do any
// more: its spouts have emitted a tuple each, and all of that is committed.
type idle struct{}

func (idle) name() string    { return "idle" }
func (idle) heeds() []string { return []string{"modes"} }

// Tasks of the components of an idle topology.
const (
	idleSpouts = 4
	idlePasses = 6
	idleCounts = 6
	idleNulls  = 4
)

func (idle) comparisons(o options) ([]comparison, error) {
	modes, err := parseModes(o.modes, "at-most-once,exactly-once@1000,exactly-once@100")
	return []comparison{{
		label:    fmt.Sprintf("%d tasks", idleSpouts+idlePasses+idleCounts+idleNulls),
		columns:  []column{{"cpu_percent", "CPU %", 1, 2}, {"bytes_per_s", "kB/s", 1e3, 1}},
		bases:    []string{"at-most-once"},
		variants: byMode(modes, func(ctx context.Context, m mode) (sample, error) { return measureIdle(ctx, o, m) }),
	}}, err
}

func measureIdle(ctx context.Context, o options, m mode) (sample, error) {
	counted := make([]paddedCounter, idleNulls)
	t, err := idleTopology(counted)
	if err != nil {
		return nil, err
	}
	var inspector atomic.Pointer[engine.Inspector]
	from, to, err := through(ctx, o,
		func(ctx context.Context) error {
			return runTopology(ctx, m, t, engine.WithInspector(func(i *engine.Inspector) { inspector.Store(i) }))
		},
		func() bool {
			return sum(counted) == idleSpouts && (m.intervalMS == 0 || committed(inspector.Load()) > 0)
		},
		used)
	if err != nil {
		return nil, err
	}
	seconds := to.at.Sub(from.at).Seconds()
	return sample{100 * (to.cpu - from.cpu).Seconds() / seconds, float64(to.bytes-from.bytes) / seconds}, nil
}

// committed returns how many batches a run has committed.
func committed(i *engine.Inspector) (batches uint64) {
	for _, r := range i.Regions() {
		batches += r.Committed
	}
	return batches
}

func idleTopology(counted []paddedCounter) (*engine.Topology, error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("once", func() txn.Spout { return &onceSpout{} }, idleSpouts)
	b.SetBolt("pass", func() txn.Bolt { return identityBolt{} }, idlePasses).ShuffleGrouping("once")
	b.SetBolt("count", func() txn.Bolt { return &passingCount{} }, idleCounts).FieldsGrouping("pass", "it")
	b.SetBolt("null", func() txn.Bolt { return &nullBolt{told: counted} }, idleNulls).ShuffleGrouping("count")
	return b.Build()
}

// onceSpout emits one tuple and idles from then on.
type onceSpout struct{ source }

func (s *onceSpout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("it") }

func (s *onceSpout) NextTuple(out *txn.Collector) (txn.Status, error) {
	if s.emitted > 0 {
		return txn.Idle, nil
	}
	out.Emit1(tuple.String(string(s.partition)))
	s.emitted++
	return txn.Emitted, nil
}

// passingCount counts tuples by key and passes them on.
type passingCount struct{ counts *txn.Aggregate[int64] }

func (b *passingCount) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("it") }

func (b *passingCount) Open(_ *txn.Context, s *txn.State) error {
	b.counts = txn.NewAggregate(s, "count", txn.Sum())
	return nil
}

func (b *passingCount) Execute(t *tuple.Tuple, out *txn.Collector) error {
	out.Emit1(t.Value(0))
	return b.counts.Add(1)
}
