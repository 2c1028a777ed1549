package damage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// outside is the world behind the sinks. It outlives runs, and what is damaged is
// never in it.
type outside struct {
	mu       sync.Mutex
	shown    map[string]string // rows by customer
	prepared map[txn.TransactionID][]string
	done     map[txn.TransactionID]bool
	sold     []string
	markers  map[string]txn.TransactionID // by component and task
	reminded []string

	trouble func() error // if set, is asked before each sale that is sold
}

func newOutside() *outside {
	return &outside{
		shown:    map[string]string{},
		prepared: map[txn.TransactionID][]string{},
		done:     map[txn.TransactionID]bool{},
		markers:  map[string]txn.TransactionID{},
	}
}

func (o *outside) clone() *outside {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &outside{
		shown:    maps.Clone(o.shown),
		prepared: maps.Clone(o.prepared),
		done:     maps.Clone(o.done),
		sold:     slices.Clone(o.sold),
		markers:  maps.Clone(o.markers),
		reminded: slices.Clone(o.reminded),
	}
}

// differs says in which way the output is another than want's.
func (o *outside) differs(want *outside) error {
	got := o.clone()
	slices.Sort(got.sold)
	slices.Sort(got.reminded)
	switch {
	case !maps.Equal(got.shown, want.shown):
		return fmt.Errorf("shown are %v, want %v", got.shown, want.shown)
	case !slices.Equal(got.sold, want.sold):
		return fmt.Errorf("%d sales came out, want %d, each once", len(got.sold), len(want.sold))
	case !slices.Equal(got.reminded, want.reminded):
		return fmt.Errorf("%d reminders came out, want %d, each once: %q, %q", len(got.reminded), len(want.reminded), got.reminded, want.reminded)
	case len(got.prepared) > 0:
		return fmt.Errorf("%d transactions are neither published nor discarded", len(got.prepared))
	}
	return nil
}

// same reports whether nothing was published between two moments.
func (o *outside) same(before *outside) bool {
	now := o.clone()
	return maps.Equal(now.shown, before.shown) && slices.Equal(now.sold, before.sold) && slices.Equal(now.reminded, before.reminded)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// shown keeps the latest row of each customer and publishes all of them.
type shown struct {
	row *txn.Value[string]
	o   *outside
}

func (s *shown) KeyFields() []string { return []string{"who"} }

func (s *shown) Open(_ *txn.Context, st *txn.State) error {
	s.row = txn.NewValue(st, "row", txn.StringCodec())
	return nil
}

func (s *shown) Execute(t *tuple.Tuple, _ *txn.Collector) error { return s.row.Set(t.Str(1)) }

func (s *shown) Publish(_ context.Context, _ txn.BatchID, view txn.View, _ bool) error {
	rows := map[string]string{}
	err := s.row.Scan(view, func(key []tuple.Value, row string) error {
		rows[key[0].Str()] = row
		return nil
	})
	if err != nil {
		return err
	}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.shown = rows
	return nil
}

// sold prepares and publishes the sales of each batch.
type sold struct {
	o    *outside
	open []string
}

func (s *sold) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if s.o.trouble != nil {
		if err := s.o.trouble(); err != nil {
			return err
		}
	}
	s.open = append(s.open, t.Str(0)+" "+t.Str(1))
	return nil
}

func (s *sold) Finish(txn.TransactionID) (any, error) {
	if len(s.open) == 0 {
		return nil, nil
	}
	out := s.open
	s.open = nil
	return out, nil
}

func (s *sold) Prepare(_ context.Context, id txn.TransactionID, output any) ([]byte, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.prepared[id] = output.([]string)
	return nil, nil
}

func (s *sold) Publish(_ context.Context, id txn.TransactionID, _ []byte) error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.done[id] {
		return nil
	}
	rows, ok := s.o.prepared[id]
	if !ok {
		return txn.Fatal(fmt.Errorf("transaction %s is not prepared", id))
	}
	delete(s.o.prepared, id)
	s.o.done[id] = true
	s.o.sold = append(s.o.sold, rows...)
	return nil
}

func (s *sold) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	s.open = nil
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	maps.DeleteFunc(s.o.prepared, func(id txn.TransactionID, _ []string) bool { return void(id) })
	return nil
}

// reminded stages reminders in the checkpoint.
type reminded struct {
	txn.Stage
	o *outside
}

func (r *reminded) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r.Add([]byte(t.Str(0)))
	return nil
}

func (r *reminded) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	name := fmt.Sprint(id.Component, "/", id.Task)
	last := r.o.markers[name]
	if last.Run == id.Run && cmp.Or(cmp.Compare(last.Generation, id.Generation), cmp.Compare(last.Batch, id.Batch)) >= 0 {
		return nil
	}
	r.o.markers[name] = id
	for _, rec := range records {
		r.o.reminded = append(r.o.reminded, string(rec))
	}
	return nil
}

func TestTheTopologyByItself(t *testing.T) {
	parts := input(150)
	o := newOutside()
	if _, err := run(t, t.TempDir(), parts, o); err != nil {
		t.Fatal(err)
	}
	if err := o.differs(expected(parts)); err != nil {
		t.Error(err)
	}
}
