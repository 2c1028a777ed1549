// Package topn holds a bolt that keeps a ranking: the items with the highest scores,
// of all or for each key.
package topn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Options describe a ranking. N, Item and Score are required.
type Options struct {
	// N is how many items a ranking has at most.
	N int
	// Item is the field that names what is ranked. It may hold anything that can be a
	// key.
	Item string
	// Score is the field, a number, by which it is ranked.
	Score string
	// Key are the fields that have a ranking of their own for each combination of
	// values; none makes one ranking of all.
	Key []string
}

// Bolt keeps rankings. See [New].
type Bolt struct {
	opts   Options
	tops   *txn.Value[[]entry]
	fields map[*tuple.Stream][2]int // positions of item and score

	scratch []byte
}

// entry is a ranked item.
type entry struct {
	item  []byte // as tuple.AppendKey encodes it
	score tuple.Value
}

// New returns a bolt that keeps the N items with the highest scores. A tuple gives an
// item a score; a later one of the same item replaces it, up or down. Of equal scores
// the item that comes first as a key ranks first. At the end of each batch, every
// ranking that got a tuple which changed it is emitted as a whole, best first:
//
//	the fields of Key, "rank" from 1, the item, the score
//
// An item that is pushed out of a ranking is forgotten until its next tuple. So the
// ranking is exact as long as no score goes down, as with counts.
//
// Give the bolt FieldsGrouping on Key; without Key, GlobalGrouping and a single task.
func New(o Options) *Bolt { return &Bolt{opts: o, fields: map[*tuple.Stream][2]int{}} }

// DeclareOutputFields declares the fields of Key, "rank", Item and Score.
func (b *Bolt) DeclareOutputFields(d *txn.OutputDeclarer) {
	d.Declare(slices.Concat(b.opts.Key, []string{"rank", b.opts.Item, b.opts.Score})...)
}

// KeyFields returns Key.
func (b *Bolt) KeyFields() []string { return append([]string{}, b.opts.Key...) }

// Open checks the options.
func (b *Bolt) Open(ctx *txn.Context, s *txn.State) error {
	var errs []error
	if b.opts.N < 1 {
		errs = append(errs, fmt.Errorf("it ranks %d items, at least 1 is needed", b.opts.N))
	}
	if b.opts.Item == "" || b.opts.Score == "" {
		errs = append(errs, errors.New("it needs the names of the fields Item and Score"))
	}
	if len(b.opts.Key) == 0 && ctx.TaskCount > 1 {
		errs = append(errs, fmt.Errorf("it has %d tasks, but one ranking of all needs exactly 1", ctx.TaskCount))
	}
	if err := errors.Join(errs...); err != nil {
		return txn.Fatal(fmt.Errorf("ranking %q: %w", ctx.Component, err))
	}
	b.tops = txn.NewValue(s, "top", codec())
	return nil
}

// Execute gives an item its score.
func (b *Bolt) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	at, ok := b.fields[t.Stream()]
	if !ok {
		at = [2]int{t.Stream().Fields.Index(b.opts.Item), t.Stream().Fields.Index(b.opts.Score)}
		if at[0] < 0 || at[1] < 0 {
			return fmt.Errorf("stream %q of %q has fields %q, a ranking of %q by %q needs those", t.Stream().ID,
				t.Stream().Component, []string(t.Stream().Fields), b.opts.Item, b.opts.Score)
		}
		b.fields[t.Stream()] = at
	}
	item, err := tuple.AppendKey(b.scratch[:0], t.Value(at[0]))
	if err != nil {
		return fmt.Errorf("item %s: %w", t.Value(at[0]), err)
	}
	b.scratch = item
	score := t.Value(at[1])
	if !isNumber(score) {
		return fmt.Errorf("score %s of item %s is not a number", score, t.Value(at[0]))
	}
	top, _, err := b.tops.Get()
	if err != nil {
		return err
	}
	if top, changed := rank(top, entry{item, score}, b.opts.N); changed {
		return b.tops.Set(top)
	}
	return nil
}

// rank returns a ranking with the score of one more item, and whether that changed
// it. It may change top; the bytes of e are copied if they are kept.
func rank(top []entry, e entry, most int) ([]entry, bool) {
	old := slices.IndexFunc(top, func(o entry) bool { return bytes.Equal(o.item, e.item) })
	if old >= 0 {
		if compareScores(top[old].score, e.score) == 0 {
			return top, false
		}
		e.item = top[old].item
		top = slices.Delete(top, old, old+1)
	}
	at, _ := slices.BinarySearchFunc(top, e, compare)
	if at >= most {
		return top, false
	}
	if old < 0 {
		e.item = bytes.Clone(e.item)
	}
	top = slices.Insert(top, at, e)
	return top[:min(len(top), most)], true
}

// compare orders entries as they rank.
func compare(a, b entry) int {
	return cmp.Or(compareScores(b.score, a.score), bytes.Compare(a.item, b.item))
}

func isNumber(v tuple.Value) bool {
	return isInteger(v) || v.Kind() == tuple.KindFloat64 && !math.IsNaN(v.Float64())
}

func isInteger(v tuple.Value) bool {
	return v.Kind() == tuple.KindInt64 || v.Kind() == tuple.KindUint64
}

// compareScores compares numbers: integers exactly, others as floats.
func compareScores(a, b tuple.Value) int {
	switch {
	case !isInteger(a) || !isInteger(b):
		return cmp.Compare(float(a), float(b))
	case negative(a) && negative(b):
		return cmp.Compare(a.Int64(), b.Int64())
	case negative(a):
		return -1
	case negative(b):
		return 1
	}
	return cmp.Compare(a.Uint64(), b.Uint64())
}

func negative(v tuple.Value) bool { return v.Kind() == tuple.KindInt64 && v.Int64() < 0 }

func float(v tuple.Value) float64 {
	switch {
	case !isInteger(v):
		return v.Float64()
	case negative(v):
		return float64(v.Int64())
	}
	return float64(v.Uint64())
}

// FinishBatch emits the rankings that changed.
func (b *Bolt) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		top, _, err := b.tops.Get()
		if err != nil {
			return err
		}
		row := slices.Clone(changed.Key())
		key := len(row)
		for i, e := range top {
			item, err := tuple.DecodeKey(e.item)
			if err != nil {
				return err
			}
			row = append(row[:key], tuple.Int(i+1), item[0], e.score)
			out.Emit(row...)
		}
	}
	return nil
}

// codec encodes a ranking: for each entry the length of the item as a varint, the
// item, and the score as tuple.AppendKey encodes it, which is 9 bytes.
func codec() txn.Codec[[]entry] {
	return txn.Codec[[]entry]{
		Name:    "topn",
		Version: 1,
		Append: func(dst []byte, top []entry) ([]byte, error) {
			var err error
			for _, e := range top {
				dst = append(binary.AppendUvarint(dst, uint64(len(e.item))), e.item...)
				if dst, err = tuple.AppendKey(dst, e.score); err != nil {
					return dst, err
				}
			}
			return dst, nil
		},
		Decode: decode,
		Size: func(top []entry) int {
			size := 0
			for _, e := range top {
				size += 64 + len(e.item)
			}
			return size
		},
		Clone: slices.Clone[[]entry], // what an item refers to never changes
	}
}

const scoreBytes = 9

func decode(b []byte, _ uint8) ([]entry, error) {
	var top []entry
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) || len(b)-w-int(n) < scoreBytes {
			return nil, errors.New("the ranking is cut")
		}
		b = b[w:]
		item, score := b[:n], b[n:n+scoreBytes]
		b = b[n+scoreBytes:]
		vals, err := tuple.DecodeKey(score)
		if err != nil {
			return nil, err
		}
		if len(vals) != 1 || !isNumber(vals[0]) {
			return nil, fmt.Errorf("score %x is not a number", score)
		}
		if key, err := tuple.DecodeKey(item); err != nil || len(key) != 1 {
			return nil, fmt.Errorf("item %x is not one key: %w", item, err)
		}
		top = append(top, entry{bytes.Clone(item), vals[0]})
	}
	return top, nil
}
