package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// drafts is a two-phase sink: a batch is written to a draft, and the draft is renamed
// when the batch is committed.
type drafts struct {
	dir   string
	lines []string
}

func (d *drafts) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	d.lines = append(d.lines, fmt.Sprint(t.Int64(0)))
	return nil
}

func (d *drafts) Finish(txn.TransactionID) (any, error) {
	out := d.lines
	d.lines = nil
	if out == nil {
		return nil, nil // no output, no transaction
	}
	return out, nil
}

func (d *drafts) Prepare(_ context.Context, id txn.TransactionID, output any) ([]byte, error) {
	name := id.String()
	return []byte(name), os.WriteFile(filepath.Join(d.dir, "draft-"+name), []byte(strings.Join(output.([]string), "\n")), 0o600)
}

func (d *drafts) Publish(_ context.Context, _ txn.TransactionID, data []byte) error {
	err := os.Rename(filepath.Join(d.dir, "draft-"+string(data)), filepath.Join(d.dir, string(data)))
	if _, done := os.Stat(filepath.Join(d.dir, string(data))); done == nil {
		return nil // it was published before
	}
	return err
}

func (d *drafts) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	d.lines = nil
	names, err := filepath.Glob(filepath.Join(d.dir, "draft-*"))
	for _, name := range names {
		_, text, _ := strings.Cut(filepath.Base(name), "draft-")
		if id, bad := txn.ParseTransactionID(text); bad == nil && void(id) && err == nil {
			err = os.Remove(name)
		}
	}
	return err
}

// A sink to a system where output can be made durable before it is made visible.
func ExampleRun_twoPhaseSink() {
	dir, err := os.MkdirTemp("", "drafts")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("drafts", func() txn.Bolt { return &drafts{dir: dir} }, 1).GlobalGrouping("numbers")
	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = engine.Run(context.Background(), topology)
	published, _ := filepath.Glob(filepath.Join(dir, "*.drafts.0.*"))
	text, _ := os.ReadFile(published[0])
	fmt.Println(strings.Fields(string(text)), err)
	// Output: [1 2 3 4 5 6 7 8 9 10] <nil>
}

// table is a system outside that is written in Commit: it keeps, beside each sum, the
// batch that wrote it last and the sum before, so that a batch that comes again
// replaces what it has written.
type table struct{ rows map[string]row }

type row struct {
	batch       txn.BatchID
	sum, before int64
}

// toTable is an ordered committer.
type toTable struct {
	table *table
	sums  map[string]int64
}

func (*toTable) CommitsInOrder() {}

func (s *toTable) InitState([]txn.Handle) error { s.sums = map[string]int64{}; return nil }

func (s *toTable) Rollback(h []txn.Handle) error { return s.InitState(h) }

func (s *toTable) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.sums[t.Str(0)] += t.Int64(1)
	return nil
}

func (s *toTable) FinishBatch(txn.BatchID, *txn.Collector) (any, error) {
	out := s.sums
	s.sums = map[string]int64{}
	return out, nil
}

// Commit comes only after the batch before is committed for good, so a row is at most
// one batch ahead.
func (s *toTable) Commit(_ context.Context, n txn.BatchID, state any) ([]byte, error) {
	for key, sum := range state.(map[string]int64) {
		r := s.table.rows[key]
		if r.batch != n {
			r.before = r.sum
		}
		s.table.rows[key] = row{batch: n, before: r.before, sum: r.before + sum}
	}
	return nil, nil
}

func (s *toTable) AckCommit(context.Context, txn.BatchID, txn.BatchID) error { return nil }

// A sink that writes to the outside in Commit, as Trident's states do.
func ExampleRun_orderedCommitter() {
	x := &table{rows: map[string]row{}}
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{} }, 1)
	b.SetBolt("parity", func() txn.Bolt { return parity{} }, 2).ShuffleGrouping("numbers")
	b.SetBolt("table", func() txn.Bolt { return &toTable{table: x} }, 1).GlobalGrouping("parity")
	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = engine.Run(context.Background(), topology)
	fmt.Println(x.rows["even"].sum, x.rows["odd"].sum, err)
	// Output: 30 25 <nil>
}
