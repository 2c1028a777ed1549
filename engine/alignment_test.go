package engine_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// perBatch counts tuples by source and batch.
type perBatch struct {
	mu sync.Mutex
	n  map[string]map[txn.BatchID]int
}

func (p *perBatch) add(source string, n txn.BatchID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == nil {
		p.n = map[string]map[txn.BatchID]int{}
	}
	if p.n[source] == nil {
		p.n[source] = map[txn.BatchID]int{}
	}
	p.n[source][n]++
}

func (p *perBatch) of(source string) map[txn.BatchID]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.n[source])
}

// tagged is a spout whose tuples say which batch they belong to.
type tagged struct {
	name    string
	total   int
	emitted *perBatch
	n       int
	gate    func(part, line int) bool
	open    txn.BatchID
}

func (s *tagged) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("source", "batch") }

func (s *tagged) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{"0"}, nil
}

func (s *tagged) Seek(txn.PartitionID, []byte) error { s.open = 1; return nil }

func (s *tagged) NextTuple(out *txn.Collector) (txn.Status, error) {
	if s.gate == nil {
		s.gate = paced(5)
	}
	if !s.gate(0, 0) {
		return txn.Idle, nil
	}
	if s.n == s.total {
		return txn.Finished, nil
	}
	s.n++
	s.emitted.add(s.name, s.open)
	out.Emit2(tuple.String(s.name), tuple.Uint64(uint64(s.open)))
	return txn.Emitted, nil
}

func (s *tagged) FinishBatch(n txn.BatchID) ([]txn.Position, error) {
	s.open = n + 1
	return nil, nil
}

// through hands tuples on once it is let.
type through struct{ gate <-chan struct{} }

func (through) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("source", "batch") }

func (p through) Execute(t *tuple.Tuple, out *txn.Collector) error {
	<-p.gate
	out.Emit(t.Values()...)
	return nil
}

// join counts what it gets, by the batch of the tuple and by the batch that is open.
type join struct {
	executed *perBatch // by the tuple's batch
	counted  *perBatch // by the batch it counts for
	open     txn.BatchID
}

func (j *join) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	j.executed.add(t.Str(0), txn.BatchID(t.Int64(1)))
	j.counted.add(t.Str(0), j.open)
	return nil
}

func (j *join) InitState([]txn.Handle) error { j.open = 1; return nil }

func (j *join) FinishBatch(n txn.BatchID, _ *txn.Collector) (any, error) {
	j.open = n + 1
	return nil, nil
}

func (j *join) Commit(context.Context, txn.BatchID, any) ([]byte, error) { return nil, nil }
func (j *join) Rollback([]txn.Handle) error                              { return nil }
func (j *join) AckCommit(context.Context, txn.BatchID, txn.BatchID) error {
	return nil
}

// Case: one input of a bolt is slow. The fast one is read up to its barrier and not
// beyond it; without alignment it would be.
func TestFastInputWaitsAtItsBarrierForTheSlowOne(t *testing.T) {
	for _, exactlyOnce := range []bool{true, false} {
		name := map[bool]string{true: "exactly once", false: "at least once"}[exactlyOnce]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				var emitted, executed, counted perBatch
				b := engine.NewTopologyBuilder()
				b.SetSpout("fast", func() txn.Spout { return &tagged{name: "fast", total: 600, emitted: &emitted} }, 1)
				b.SetSpout("slow", func() txn.Spout { return &tagged{name: "slow", total: 100, emitted: &emitted} }, 1)
				b.SetBolt("through", func() txn.Bolt { return through{gate} }, 1).ShuffleGrouping("slow")
				b.SetBolt("join", func() txn.Bolt { return &join{executed: &executed, counted: &counted} }, 1).
					GlobalGrouping("fast").GlobalGrouping("through")
				run := start(t.Context(), build(t, b), conf(t, map[string]any{"transaction.exactly.once.mode": exactlyOnce}))
				time.Sleep(time.Minute)
				synctest.Wait()
				sent, got := emitted.of("fast"), executed.of("fast")
				if sent[1] == 0 || sent[2] == 0 || got[1] != sent[1] {
					t.Errorf("fast input: %v emitted, %v executed", sent, got)
				}
				if beyond := got[2]; exactlyOnce && beyond != 0 || !exactlyOnce && beyond == 0 {
					t.Errorf("%d tuples were executed beyond a barrier that is not in on the slow input", beyond)
				}
				if slow := executed.of("slow"); len(slow) != 0 {
					t.Errorf("slow input: %v executed", slow)
				}
				close(gate)
				e := <-run
				if e.err != nil || e.res.Restarts != 0 {
					t.Errorf("%v, %d restarts", e.err, e.res.Restarts)
				}
				for _, source := range []string{"fast", "slow"} {
					if sent, got := emitted.of(source), executed.of(source); !maps.Equal(got, sent) || len(sent) < 3 {
						t.Errorf("%s input: %v emitted, %v executed", source, sent, got)
					}
				}
				sent, got = emitted.of("fast"), counted.of("fast")
				if maps.Equal(got, sent) != exactlyOnce {
					t.Errorf("fast input: %v emitted, %v counted", sent, got)
				}
			})
		})
	}
}
