package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// numbers is a spout that emits 1 to 10. Its one partition has the last number
// emitted as its position, so that a restart goes on from there.
type numbers struct {
	n     int
	owned bool
}

func (*numbers) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("n") }

func (*numbers) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{"all"}, nil
}

func (s *numbers) Seek(_ txn.PartitionID, pos []byte) error {
	s.owned = true
	if pos == nil {
		return nil
	}
	return json.Unmarshal(pos, &s.n)
}

func (s *numbers) NextTuple(out *txn.Collector) (txn.Status, error) {
	if !s.owned || s.n == 10 {
		return txn.Finished, nil
	}
	s.n++
	out.Emit1(tuple.Int(s.n))
	return txn.Emitted, nil
}

func (s *numbers) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	if !s.owned {
		return nil, nil
	}
	pos, err := json.Marshal(s.n)
	return []txn.Position{{Partition: "all", Data: pos}}, err
}

// parity emits whether a number is even or odd.
type parity struct{}

func (parity) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("parity", "n") }

func (parity) Execute(t *tuple.Tuple, out *txn.Collector) error {
	out.Emit2(tuple.String([]string{"even", "odd"}[t.Int64(0)%2]), t.Value(0))
	return nil
}

// total is a keyed bolt: it adds up numbers by their parity, and shows the sums when
// they are committed.
type total struct {
	sum  *txn.Aggregate[int64]
	show func(line string)
}

func (s *total) Open(_ *txn.Context, st *txn.State) error {
	s.sum = txn.NewAggregate(st, "sum", txn.Sum())
	return nil
}

func (s *total) Execute(t *tuple.Tuple, _ *txn.Collector) error { return s.sum.Add(t.Int64(1)) }

func (s *total) Publish(_ context.Context, _ txn.BatchID, view txn.View, last bool) error {
	if !last {
		return txn.ErrPostponed
	}
	return s.sum.Scan(view, func(key []tuple.Value, sum int64) error {
		s.show(fmt.Sprint(key[0].Str(), " ", sum))
		return nil
	})
}

// lineup collects what several tasks print, in order.
type lineup struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineup) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

func (l *lineup) print() {
	slices.Sort(l.lines)
	fmt.Println(strings.Join(l.lines, "\n"))
}

// A whole topology: a spout, a plain bolt, and a keyed bolt that publishes its state.
func ExampleRun() {
	var out lineup
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("parity", func() txn.Bolt { return parity{} }, 2).ShuffleGrouping("numbers")
	b.SetBolt("total", func() txn.Bolt { return &total{show: out.add} }, 2).FieldsGrouping("parity", "parity")
	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := engine.Run(context.Background(), topology)
	out.print()
	fmt.Println(result.Outcome == engine.Completed, err)
	// Output:
	// even 30
	// odd 25
	// true <nil>
}

// Every mistake of a topology is found at once.
func ExampleTopologyBuilder_Build() {
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("parity", func() txn.Bolt { return parity{} }, 0).ShuffleGrouping("number")
	b.SetBolt("total", func() txn.Bolt { return &total{} }, 2).ShuffleGrouping("parity")
	_, err := b.Build()
	fmt.Println(err)
	// Output:
	// component "parity": 0 tasks, at least 1 is needed
	// bolt "parity" reads from component "number", which does not exist; there are ["numbers" "parity" "total"]
	// keyed bolt "total" reads "parity" without fields grouping, so its keys would be spread over tasks: use FieldsGrouping("parity", …)
}

// Named streams and other groupings; configuration of one component.
func ExampleBoltDeclarer_Grouping() {
	var out lineup
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("parity", func() txn.Bolt { return parity{} }, 2).
		Grouping("numbers", tuple.DefaultStream, engine.LocalOrShuffle()).
		Config("topology.poison.max.attempts", 3)
	b.SetBolt("total", func() txn.Bolt { return &total{show: out.add} }, 1).FieldsGrouping("parity", "parity")
	// Tuples that parity keeps failing on end up here instead of failing the topology.
	b.SetBolt("failed", func() txn.Bolt { return parity{} }, 1).
		Grouping("parity", engine.FailedStream, engine.Global())
	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	conf, _ := config.ParseAssignments([]string{"transaction.schedule.batch.delay.ms=50"})
	_, err = engine.Run(context.Background(), topology, engine.WithConfig(conf))
	out.print()
	fmt.Println(err)
	// Output:
	// even 30
	// odd 25
	// <nil>
}

// journal is a system outside that writes several lines in one atomic step and keeps a
// marker for each writer.
type journal struct {
	mu      sync.Mutex
	lines   []string
	markers map[string]txn.TransactionID
}

// toJournal is a staged sink: its output waits in the checkpoint until that is
// committed, and is then written together with a marker that makes it count once.
type toJournal struct {
	txn.Stage
	journal *journal
}

func (s *toJournal) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.Add(fmt.Appendf(nil, "number %d", t.Int64(0)))
	return nil
}

func (s *toJournal) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	writer := fmt.Sprint(id.Run, id.Component, id.Task)
	if last, ok := s.journal.markers[writer]; ok && last.Batch >= id.Batch {
		return nil
	}
	for _, r := range records {
		s.journal.lines = append(s.journal.lines, string(r))
	}
	s.journal.markers[writer] = id
	return nil
}

// A sink to a system that has atomic writes but no prepared transactions.
func ExampleRun_stagedSink() {
	j := &journal{markers: map[string]txn.TransactionID{}}
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("journal", func() txn.Bolt { return &toJournal{journal: j} }, 1).GlobalGrouping("numbers")
	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = engine.Run(context.Background(), topology)
	fmt.Println(len(j.lines), j.lines[0], j.lines[9], err)
	// Output: 10 number 1 number 10 <nil>
}
