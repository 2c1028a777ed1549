package spouttest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// pile is an input in memory that grows.
type pile struct{ parts map[txn.PartitionID]int }

func (p *pile) grow(_ testing.TB, step int) int {
	p.parts[txn.PartitionID(fmt.Sprint("old", step%2))] += 10
	if step%2 == 1 {
		p.parts[txn.PartitionID(fmt.Sprint("new", step))] += 5
		return 15
	}
	return 10
}

// tap reads a pile. Its fields break it.
type tap struct {
	finishes, skipsNew, restarts, rereads, late bool

	pile  *pile
	parts []txn.PartitionID // as first listed
	at    map[txn.PartitionID]int
	moved map[txn.PartitionID]bool
}

func (s *tap) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("tuple") }

func (s *tap) Partitions(context.Context) ([]txn.PartitionID, error) {
	if s.skipsNew && s.parts != nil {
		return s.parts, nil
	}
	var ids []txn.PartitionID
	for p := range s.pile.parts {
		ids = append(ids, p)
	}
	s.parts = ids
	return ids, nil
}

func (s *tap) Seek(p txn.PartitionID, pos []byte) error {
	if s.at == nil {
		s.at, s.moved = map[txn.PartitionID]int{}, map[txn.PartitionID]bool{}
	}
	s.at[p], _ = strconv.Atoi(string(pos))
	if s.late && pos == nil {
		s.at[p] = s.pile.parts[p] / 2
	}
	return nil
}

func (s *tap) NextTuple(out *txn.Collector) (txn.Status, error) {
	for p, at := range s.at {
		if at < s.pile.parts[p] {
			out.Emit1(tuple.String(fmt.Sprint(p, ".", at)))
			s.at[p]++
			s.moved[p] = true
			return txn.Emitted, nil
		}
		if s.rereads && at > 0 && at%20 == 0 {
			s.at[p] = 0
		}
	}
	if s.finishes {
		return txn.Finished, nil
	}
	return txn.Idle, nil
}

func (s *tap) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	var moved []txn.Position
	for p := range s.moved {
		at := s.at[p]
		if s.restarts {
			at = at / 10 * 10
		}
		moved = append(moved, txn.Position{Partition: p, Data: []byte(strconv.Itoa(at))})
	}
	clear(s.moved)
	return moved, nil
}

func openPile(broken tap) func(testing.TB) Growing {
	return func(testing.TB) Growing {
		p := &pile{parts: map[txn.PartitionID]int{}}
		return Growing{
			Open: func() txn.Spout { s := broken; s.pile = p; return &s },
			Grow: p.grow,
		}
	}
}

func TestGoodGrowingSpoutPasses(t *testing.T) { RunGrowing(t, openPile(tap{})) }

func TestEachBrokenPromiseOfAGrowingSpoutIsFound(t *testing.T) {
	for _, tc := range []struct {
		flaw string
		tap  tap
		by   string
	}{
		{"finishes", tap{finishes: true}, "Uninterrupted"},
		{"does not find new partitions", tap{skipsNew: true}, "Uninterrupted"},
		{"goes back to the last whole ten", tap{restarts: true}, "Interrupted"},
		{"begins again when there is nothing new", tap{rereads: true}, "Uninterrupted"},
		{"skips what was there before it looked", tap{late: true}, "Down"},
	} {
		var found []string
		for _, c := range growingChecks {
			r := &recorder{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(r, openPile(tc.tap))
			}()
			<-done
			if r.failed {
				found = append(found, c.name)
			}
		}
		if !slices.Contains(found, tc.by) {
			t.Errorf("that a spout %s is found by %q, not by %s", tc.flaw, found, tc.by)
		}
	}
}
