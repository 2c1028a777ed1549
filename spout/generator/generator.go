// Package generator holds a spout that makes its tuples itself, from a function of
// their index, so that they can be made again: for tests, examples and measurements.
package generator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Endless is the number of tuples of a spout that never finishes.
const Endless = math.MaxUint64

// indexesPerCall is how many indexes NextTuple goes through at most, so that a
// barrier need not wait long.
const indexesPerCall = 64

// Options describe what a [Spout] emits.
type Options struct {
	// Fields are those of the default stream. Required.
	Fields tuple.Fields
	// Tuples is how many indexes there are, or [Endless].
	Tuples uint64
	// Emit emits what belongs to an index, below Tuples: as a rule one tuple, on the
	// default stream. Required. It must emit the same for the same index each time,
	// and may be called by several tasks at once.
	Emit func(index uint64, out *txn.Collector)
	// Partitions is how many parts the input has, which tasks share; 0 means 1. The
	// index i belongs to part i modulo Partitions. Fixed as long as positions are kept.
	Partitions int
	// Rate is how many indexes a second all parts together go through, evenly; 0
	// means as many as possible. What could not be emitted in time is not made up for
	// after a restart.
	Rate float64
}

// Spout emits generated tuples. See [New].
type Spout struct {
	opts Options
	now  func() time.Time

	parts []*part
	turn  int // the part that comes next
}

// part is one partition that belongs to the task: the indexes that leave the
// remainder first.
type part struct {
	id    txn.PartitionID
	first uint64
	next  uint64 // how many of its indexes were emitted
	moved bool

	began     time.Time // when the rate began to count, for
	beganWith uint64    // this value of next
}

// New returns a spout that emits what o says. Mistakes in o are errors of Open.
func New(o Options) *Spout {
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	return &Spout{opts: o, now: time.Now}
}

// DeclareOutputFields declares the fields of the options.
func (s *Spout) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare(s.opts.Fields...) }

// Open checks the options.
func (s *Spout) Open(*txn.Context) error {
	var errs []error
	if len(s.opts.Fields) == 0 {
		errs = append(errs, errors.New("it has no fields"))
	}
	if s.opts.Emit == nil {
		errs = append(errs, errors.New("it has no Emit function"))
	}
	if s.opts.Partitions < 0 {
		errs = append(errs, fmt.Errorf("it has %d partitions, at least 1 is needed", s.opts.Partitions))
	}
	if !(s.opts.Rate >= 0) || math.IsInf(s.opts.Rate, 1) {
		errs = append(errs, fmt.Errorf("its rate is %v, it must be 0 or a finite number above", s.opts.Rate))
	}
	if err := errors.Join(errs...); err != nil {
		return txn.Fatal(fmt.Errorf("generator: %w", err))
	}
	return nil
}

// A partition is named by its number and how many there are: "2/8". A position is
// how many indexes of its partition were emitted, as 8 bytes, big endian.

// Partitions returns the partitions.
func (s *Spout) Partitions(context.Context) ([]txn.PartitionID, error) {
	var ids []txn.PartitionID
	for i := range s.opts.Partitions {
		ids = append(ids, txn.PartitionID(fmt.Sprintf("%d/%d", i, s.opts.Partitions)))
	}
	return ids, nil
}

// Seek goes to a position of a partition.
func (s *Spout) Seek(p txn.PartitionID, pos []byte) error {
	var first uint64
	of := 0
	if _, err := fmt.Sscanf(string(p), "%d/%d", &first, &of); err != nil || of < 1 || first >= uint64(of) {
		return txn.Fatal(fmt.Errorf("generator: %q is no partition: it must be like \"0/%d\"", p, s.opts.Partitions))
	}
	if of != s.opts.Partitions {
		return txn.Fatal(fmt.Errorf("generator: partition %q is of %d, but now there are %d: their number is fixed as long as positions are kept", p, of, s.opts.Partitions))
	}
	in := &part{id: p, first: first}
	if pos != nil {
		if len(pos) != 8 {
			return txn.Fatal(fmt.Errorf("generator: the position of partition %q has %d bytes, 8 are expected", p, len(pos)))
		}
		in.next = binary.BigEndian.Uint64(pos)
		if in.next > s.count(in) {
			return txn.Fatal(fmt.Errorf("generator: partition %q has been read up to its index %d, but now it has only %d", p, in.next, s.count(in)))
		}
	}
	for i, old := range s.parts {
		if old.id == p {
			s.parts[i] = in
			return nil
		}
	}
	s.parts = append(s.parts, in)
	return nil
}

// count returns how many indexes a part has.
func (s *Spout) count(p *part) uint64 {
	if s.opts.Tuples <= p.first {
		return 0
	}
	return (s.opts.Tuples-p.first-1)/uint64(s.opts.Partitions) + 1
}

// NextTuple emits the tuples of some indexes, of one part after the other.
func (s *Spout) NextTuple(out *txn.Collector) (txn.Status, error) {
	status := txn.Finished
	for range s.parts {
		p := s.parts[s.turn%len(s.parts)]
		s.turn++
		left := s.count(p) - p.next
		if left == 0 {
			continue
		}
		n := min(left, indexesPerCall, s.due(p))
		if n == 0 {
			status = txn.Idle
			continue
		}
		for range n {
			s.opts.Emit(p.first+p.next*uint64(s.opts.Partitions), out)
			p.next++
		}
		p.moved = true
		return txn.Emitted, nil
	}
	return status, nil
}

// due returns how many indexes the rate lets a part go through now.
func (s *Spout) due(p *part) uint64 {
	if s.opts.Rate == 0 {
		return indexesPerCall
	}
	now := s.now()
	if p.began.IsZero() {
		p.began, p.beganWith = now, p.next
	}
	allowed := now.Sub(p.began).Seconds() * s.opts.Rate / float64(s.opts.Partitions)
	return uint64(allowed) + 1 - min(uint64(allowed)+1, p.next-p.beganWith)
}

// FinishBatch returns the positions of the parts that moved.
func (s *Spout) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	var moved []txn.Position
	for _, p := range s.parts {
		if p.moved {
			p.moved = false
			moved = append(moved, txn.Position{Partition: p.id, Data: binary.BigEndian.AppendUint64(nil, p.next)})
		}
	}
	return moved, nil
}
