package spouttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// numbers emits the numbers 0 to 9 of partitions a and b. Its fields break it.
type numbers struct {
	late, repeats, silent, noisy, restarts, lenient, greedy bool

	shift int // in the names of the partitions
	order []txn.PartitionID
	at    map[txn.PartitionID]int
	moved map[txn.PartitionID]bool
}

func (n *numbers) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("number") }

func (n *numbers) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{"a", txn.PartitionID(rune('b' + n.shift))}, nil
}

func (n *numbers) Seek(p txn.PartitionID, pos []byte) error {
	if n.at == nil {
		n.at, n.moved = map[txn.PartitionID]int{}, map[txn.PartitionID]bool{}
	}
	at := 0
	if pos != nil {
		if _, err := fmt.Sscanf(string(pos), "at %d", &at); err != nil && !n.lenient {
			return errors.New("not a position")
		}
	}
	n.order = append(n.order, p)
	n.at[p] = at
	if n.greedy {
		n.order = append(n.order, "extra")
	}
	return nil
}

func (n *numbers) NextTuple(out *txn.Collector) (txn.Status, error) {
	for _, p := range n.order {
		if n.at[p] < 10 {
			out.Emit1(tuple.String(fmt.Sprint(p, n.at[p])))
			n.at[p]++
			n.moved[p] = true
			return txn.Emitted, nil
		}
	}
	if n.restarts {
		clear(n.at)
	}
	return txn.Finished, nil
}

func (n *numbers) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	var positions []txn.Position
	for p, at := range n.at {
		if !n.noisy && !n.moved[p] || n.silent {
			continue
		}
		if n.repeats {
			at--
		}
		if n.late {
			at++
		}
		positions = append(positions, txn.Position{Partition: p, Data: fmt.Appendf(nil, "at %d", at)})
	}
	clear(n.moved)
	return positions, nil
}

func TestGoodSpoutPasses(t *testing.T) {
	Run(t, func(testing.TB) txn.Spout { return &numbers{} })
}

// recorder stands in for the test of a broken spout.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(func())            {}
func (r *recorder) Context() context.Context  { return context.Background() }
func (r *recorder) Error(...any)              { r.failed = true }
func (r *recorder) Errorf(string, ...any)     { r.failed = true }
func (r *recorder) Fatal(...any)              { r.failed = true; runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Fatal(f, a) }

func TestEachBrokenPromiseIsFound(t *testing.T) {
	instances := 0
	for name, open := range map[string]func() *numbers{
		"skips a tuple after a restart":    func() *numbers { return &numbers{late: true} },
		"repeats a tuple after a restart":  func() *numbers { return &numbers{repeats: true} },
		"tells no positions":               func() *numbers { return &numbers{silent: true} },
		"tells positions that are at rest": func() *numbers { return &numbers{noisy: true} },
		"begins again after the end":       func() *numbers { return &numbers{restarts: true} },
		"takes anything for a position":    func() *numbers { return &numbers{lenient: true} },
		"reads what it was not given":      func() *numbers { return &numbers{greedy: true} },
		"lists other partitions each time": func() *numbers { instances++; return &numbers{shift: instances % 20} },
	} {
		found := false
		for _, c := range checks {
			r := &recorder{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(suite{func(testing.TB) txn.Spout { return open() }}, r)
			}()
			<-done
			found = found || r.failed
		}
		if !found {
			t.Errorf("a spout that %s passes", name)
		}
	}
}
