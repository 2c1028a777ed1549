package metamorphic

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// source reads a fixed list of records, in partitions that are ordered by event time.
type source struct{ parts [][]rec }

func (s source) String() string {
	var sizes []int
	for _, p := range s.parts {
		sizes = append(sizes, len(p))
	}
	return fmt.Sprintf("source %v", sizes)
}

func (s source) model([][]rec) [][]rec { return [][]rec{slices.Concat(s.parts...)} }

func (s source) instance(p part) any {
	return &spout{part: p, parts: s.parts, pace: pace{1, 1000}, at: map[int]int{}, moved: map[int]bool{}}
}

// pace says how many records a spout emits at a time, and after how many times it is
// idle, so that time can pass.
type pace struct{ burst, turns int }

type spout struct {
	part
	parts [][]rec
	pace  pace
	own   []int
	at    map[int]int
	moved map[int]bool
	calls int
}

func (s *spout) Open(ctx *txn.Context) error { s.ctx = ctx; return nil }

func (s *spout) Partitions(context.Context) (ids []txn.PartitionID, err error) {
	for i := range s.parts {
		ids = append(ids, txn.PartitionID(strconv.Itoa(i)))
	}
	return ids, s.call("partitions")
}

func (s *spout) Seek(p txn.PartitionID, pos []byte) error {
	i, err := strconv.Atoi(string(p))
	if err != nil {
		return err
	}
	s.own = append(s.own, i)
	if pos != nil {
		s.at[i] = int(binary.BigEndian.Uint64(pos))
	}
	return nil
}

func (s *spout) NextTuple(out *txn.Collector) (txn.Status, error) {
	if err := s.call("next"); err != nil {
		return 0, err
	}
	s.calls++
	if s.calls%s.pace.turns == 0 {
		return txn.Idle, nil
	}
	left := slices.DeleteFunc(slices.Clone(s.own), func(i int) bool { return s.at[i] == len(s.parts[i]) })
	if len(left) == 0 {
		return txn.Finished, nil
	}
	i := left[s.calls%len(left)]
	for range min(s.pace.burst, len(s.parts[i])-s.at[i]) {
		s.l.moment("record")
		r := s.parts[i][s.at[i]]
		s.emit(out, 0, r)
		if r.hash()%100 == 0 {
			s.ctx.RequestCheckpoint()
		}
		s.at[i]++
		s.moved[i] = true
	}
	s.tellTime(out)
	return txn.Emitted, nil
}

// tellTime tells the event time of the next record of all partitions.
func (s *spout) tellTime(out *txn.Collector) {
	next, found := int64(0), false
	for _, i := range s.own {
		if s.at[i] < len(s.parts[i]) {
			if t := s.parts[i][s.at[i]].T; !found || t < next {
				next, found = t, true
			}
		}
	}
	if found && s.outs[0].shape.width == whole {
		out.EmitWatermark(at(next))
	}
}

func (s *spout) FinishBatch(txn.BatchID) (ps []txn.Position, err error) {
	for _, i := range slices.Sorted(maps.Keys(s.moved)) {
		ps = append(ps, txn.Position{
			Partition: txn.PartitionID(strconv.Itoa(i)),
			Data:      binary.BigEndian.AppendUint64(nil, uint64(s.at[i])),
		})
	}
	clear(s.moved)
	return ps, s.call("finish")
}

// recode is a bolt without state that makes some records of each.
type recode struct {
	kind   string
	frames bool // take whole frames
}

func (w recode) String() string {
	return fmt.Sprint(w.kind, map[bool]string{true: " in frames"}[w.frames])
}

// recodeKinds are what a recode can do with a record.
var recodeKinds = []string{"pass", "filter", "rekey", "copies", "add"}

func (w recode) each(r rec) []rec {
	h := r.hash()
	switch w.kind {
	case "filter":
		if h%3 == 0 {
			return nil
		}
	case "rekey":
		r.K, r.G = keys[h%uint64(len(keys))], int64(h>>8%5)
	case "copies":
		var rs []rec
		for i := range h % 4 {
			c := r
			c.S = fmt.Sprint(r.S, "#", i)
			rs = append(rs, c)
		}
		return rs
	case "add":
		r.N = r.N%100_000*3 + 1
	}
	return []rec{r}
}

func (w recode) model(ins [][]rec) [][]rec {
	var rs []rec
	for _, in := range ins {
		for _, r := range in {
			rs = append(rs, w.each(r)...)
		}
	}
	return [][]rec{rs}
}

func (w recode) instance(p part) any {
	b := &recoder{part: p, work: w}
	if w.frames {
		return &frameRecoder{b}
	}
	return b
}

type recoder struct {
	part
	work recode
}

func (b *recoder) Open(ctx *txn.Context) error { b.ctx = ctx; return nil }

func (b *recoder) Execute(t *tuple.Tuple, out *txn.Collector) error {
	r, mine, err := b.take(t)
	if !mine || err != nil {
		return err
	}
	for _, r := range b.work.each(r) {
		b.emit(out, 0, r)
	}
	return nil
}

type frameRecoder struct{ *recoder }

func (b *frameRecoder) ExecuteBatch(f *tuple.Frame, out *txn.Collector) error {
	var t tuple.Tuple
	for i := range f.Len() {
		t.At(f, i)
		if err := b.Execute(&t, out); err != nil {
			return err
		}
	}
	return nil
}

// fork emits records on one of two streams, or on both.
type fork struct{}

func (fork) String() string { return "fork" }

func (fork) sides(r rec) (left, right bool) {
	h := r.hash()
	return h%2 == 0 || h%5 == 0, h%2 == 1 || h%5 == 0
}

func (w fork) model(ins [][]rec) [][]rec {
	outs := make([][]rec, 2)
	for _, r := range slices.Concat(ins...) {
		left, right := w.sides(r)
		if left {
			outs[0] = append(outs[0], r)
		}
		if right {
			outs[1] = append(outs[1], r)
		}
	}
	return outs
}

func (w fork) instance(p part) any { return &forker{recoder{part: p}} }

type forker struct{ recoder }

func (b *forker) Execute(t *tuple.Tuple, out *txn.Collector) error {
	r, mine, err := b.take(t)
	if !mine || err != nil {
		return err
	}
	left, right := fork{}.sides(r)
	if left {
		b.emit(out, 0, r)
	}
	if right {
		b.emit(out, 1, r)
	}
	return nil
}
