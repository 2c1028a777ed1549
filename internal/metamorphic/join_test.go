package metamorphic

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func parse(s string) (r rec, err error) {
	err = json.Unmarshal([]byte(s), &r)
	return r, err
}

// join emits every pair of a record of one input and one of the other with its key.
type join struct {
	key  keyBy
	maps bool // keep records in maps, else in lists
}

func (w join) String() string {
	return fmt.Sprint("join by ", []string(w.key), map[bool]string{true: " in maps"}[w.maps])
}

// pair does not depend on which of the two came first.
func (w join) pair(l, r rec) rec {
	key := w.key.of(l)
	return rec{K: key.K, G: key.G, N: 31*(l.N%10_000) + r.N%10_000, S: fmt.Sprintf("%.6s+%.6s", l.S, r.S), T: max(l.T, r.T)}
}

func (w join) model(ins [][]rec) [][]rec {
	var out []rec
	right := w.key.group(ins[1])
	for key, ls := range w.key.group(ins[0]) {
		for _, l := range ls {
			for _, r := range right[key] {
				out = append(out, w.pair(l, r))
			}
		}
	}
	return [][]rec{out}
}

func (w join) instance(p part) any {
	return &joiner{keyedPart: keyedPart{part: p, key: w.key}, work: w}
}

type joiner struct {
	keyedPart
	work  join
	lists [2]*txn.List[rec]
	maps  [2]*txn.Map[rec, int64]
}

func (b *joiner) Open(ctx *txn.Context, s *txn.State) error {
	b.open(ctx, s)
	for i, side := range []string{"left", "right"} {
		if b.work.maps {
			b.maps[i] = txn.NewMap(s, side, recCodec(), txn.Int64Codec())
		} else {
			b.lists[i] = txn.NewList(s, side, recCodec())
		}
	}
	return nil
}

func (b *joiner) Execute(t *tuple.Tuple, out *txn.Collector) error {
	r, _, err := b.take(t)
	if err != nil {
		return err
	}
	side := 0
	if b.subscription(t) == &b.ins[1] {
		side = 1
	}
	if err := b.keep(side, r); err != nil {
		return err
	}
	return b.others(1-side, func(o rec, times int64) {
		pair := b.work.pair(o, r)
		if side == 0 {
			pair = b.work.pair(r, o)
		}
		for range times {
			b.emit(out, 0, pair)
		}
	})
}

func (b *joiner) keep(side int, r rec) error {
	if !b.work.maps {
		return b.lists[side].Append(r)
	}
	n, _, err := b.maps[side].Get(r)
	if err != nil {
		return err
	}
	return b.maps[side].Put(r, n+1)
}

func (b *joiner) others(side int, each func(o rec, times int64)) (err error) {
	if b.work.maps {
		for o, n := range b.maps[side].All(&err) {
			each(o, n)
		}
		return err
	}
	for o := range b.lists[side].All(&err) {
		each(o, 1)
	}
	return err
}

// total adds up the numbers of each key in a state of its own making, and emits the
// sums at the end of the input.
type total struct{ key keyBy }

func (w total) String() string { return fmt.Sprint("total by ", []string(w.key)) }

func (w total) model(ins [][]rec) [][]rec { return sumsOf(w.key, ins) }

func (w total) instance(p part) any { return &totaller{part: p, key: w.key, sums: map[rec]int64{}} }

type totaller struct {
	part
	key  keyBy
	sums map[rec]int64
}

func (b *totaller) Open(ctx *txn.Context) error { b.ctx = ctx; return nil }

func (b *totaller) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, mine, err := b.take(t)
	if !mine || err != nil {
		return err
	}
	b.sums[b.key.of(r)] += r.N
	return nil
}

func (b *totaller) FinishBatch(txn.BatchID, *txn.Collector) (any, error) {
	return maps.Clone(b.sums), b.call("finish")
}

func (b *totaller) Commit(_ context.Context, _ txn.BatchID, state any) ([]byte, error) {
	if err := b.call("commit"); err != nil {
		return nil, err
	}
	var rows []rec
	for key, sum := range state.(map[rec]int64) {
		key.N = sum
		rows = append(rows, key)
	}
	return json.Marshal(rows)
}

// InitState takes the newest handle of every old task, which are all of one batch.
func (b *totaller) InitState(handles []txn.Handle) error {
	clear(b.sums)
	for _, h := range handles {
		if h.Batch != handles[len(handles)-1].Batch {
			continue
		}
		var rows []rec
		if err := json.Unmarshal(h.Data, &rows); err != nil {
			return err
		}
		for _, r := range rows {
			b.sums[b.key.of(r)] += r.N
		}
	}
	return nil
}

func (b *totaller) Rollback(handles []txn.Handle) error { return b.InitState(handles) }

func (b *totaller) AckCommit(context.Context, txn.BatchID, txn.BatchID) error { return b.call("ack") }

// Rescale deals the old tasks to the new ones.
func (b *totaller) Rescale(old [][]txn.Handle, task, tasks int) (mine []txn.Handle, err error) {
	for i, handles := range old {
		if i%tasks == task {
			mine = append(mine, handles...)
		}
	}
	slices.SortStableFunc(mine, func(a, b txn.Handle) int { return int(a.Batch) - int(b.Batch) })
	return mine, nil
}

func (b *totaller) InputEnded(out *txn.Collector) error {
	for key, sum := range b.sums {
		key.N = sum
		b.emit(out, 0, key)
	}
	clear(b.sums)
	return b.call("end")
}
