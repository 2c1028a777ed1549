package metamorphic

import (
	"fmt"
	"slices"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// keyedPart is what keyed bolts are made of.
type keyedPart struct {
	part
	key keyBy
	s   *txn.State
}

func (p *keyedPart) open(ctx *txn.Context, s *txn.State) { p.ctx, p.s = ctx, s }

// implied makes a bolt that takes its key from fields, whatever the grouping is, of one
// that takes it from the grouping.
type implied struct{ fields []string }

func (i implied) KeyFields() []string { return i.fields }

// folding says how a node folds its records.
type folding struct {
	key    keyBy
	kind   foldKind
	ttl    bool
	keyer  bool // its key is implied
	frames bool // take whole frames
}

func (f folding) String() string {
	return fmt.Sprint(f.kind.name, " by ", []string(f.key), map[bool]string{true: " ttl"}[f.ttl],
		map[bool]string{true: " in frames"}[f.frames], map[bool]string{true: " implied"}[f.keyer])
}

func (f folding) options() []txn.StateOption {
	if f.ttl {
		return []txn.StateOption{txn.WithTTL(never)}
	}
	return nil
}

// folder is the common part of bolts that fold.
type folder struct {
	keyedPart
	how  folding
	fold fold
}

func newFolder(p part, how folding) folder {
	return folder{keyedPart: keyedPart{part: p, key: how.key}, how: how, fold: how.kind.make()}
}

func (f *folder) Open(ctx *txn.Context, s *txn.State) error {
	f.open(ctx, s)
	f.fold.register(s, f.how.options())
	return nil
}

func (f *folder) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, _, err := f.take(t)
	if err != nil {
		return err
	}
	return f.fold.add(r)
}

// executeFrame folds a whole frame.
func (f *folder) executeFrame(b *txn.KeyedBatch) error {
	if a, ok := f.fold.(*aggregateFold); ok && f.bad == nil {
		if err := f.check(rec{}); err != nil {
			return err
		}
		return a.a.AddEach(b, func(row []tuple.Value) int64 { return read(row).N })
	}
	for i := range b.Len() {
		r := read(b.Row(i))
		if err := f.check(r); err != nil {
			return err
		}
		if err := b.Select(i); err != nil {
			return err
		}
		if err := f.fold.add(r); err != nil {
			return err
		}
	}
	return nil
}

// tally folds records and emits, at the end of a batch, what the changed keys come to
// now, or by how much they have changed.
type tally struct {
	folding
	by class // newest or deltas
}

func (w tally) String() string {
	return fmt.Sprint("tally ", w.folding, map[class]string{newest: " newest", deltas: " deltas"}[w.by])
}

func (w tally) model(ins [][]rec) [][]rec {
	var out []rec
	for key, rs := range w.key.group(slices.Concat(ins...)) {
		key.N, _ = w.kind.model(rs)
		out = append(out, key)
	}
	return [][]rec{out}
}

func (w tally) instance(p part) any {
	b := tallier{folder: newFolder(p, w.folding), by: w.by}
	switch {
	case w.keyer:
		return &struct {
			*tallier
			implied
		}{&b, implied{w.key}}
	case w.frames:
		return &frameTallier{&b}
	}
	return &b
}

type tallier struct {
	folder
	by   class
	sent *txn.Value[int64]
}

func (b *tallier) Open(ctx *txn.Context, s *txn.State) error {
	if b.by == deltas {
		b.sent = txn.NewValue(s, "sent", txn.Int64Codec())
	}
	return b.folder.Open(ctx, s)
}

func (b *tallier) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		if err := b.finish(b.key.read(changed.Key()), out); err != nil {
			return err
		}
	}
	return b.call("finish")
}

func (b *tallier) finish(key rec, out *txn.Collector) error {
	v, err := b.fold.value()
	if err != nil {
		return err
	}
	key.N = v
	if b.by == deltas {
		sent, _, err := b.sent.Get()
		if err != nil {
			return err
		}
		key.N = v - sent
		if err := b.sent.Set(v); err != nil {
			return err
		}
	}
	b.emit(out, 0, key)
	return nil
}

type frameTallier struct{ *tallier }

func (b *frameTallier) ExecuteKeyed(f *txn.KeyedBatch, _ *txn.Collector) error {
	return b.executeFrame(f)
}

// distinct emits each key when it comes for the first time.
type distinct struct{ key keyBy }

func (w distinct) String() string { return fmt.Sprint("distinct ", []string(w.key)) }

func (w distinct) model(ins [][]rec) [][]rec {
	var out []rec
	for key := range w.key.group(slices.Concat(ins...)) {
		key.N = 1
		out = append(out, key)
	}
	return [][]rec{out}
}

func (w distinct) instance(p part) any {
	return &distincter{keyedPart: keyedPart{part: p, key: w.key}}
}

type distincter struct {
	keyedPart
	seen *txn.Value[string]
}

func (b *distincter) Open(ctx *txn.Context, s *txn.State) error {
	b.open(ctx, s)
	b.seen = txn.NewValue(s, "seen", txn.StringCodec())
	return nil
}

func (b *distincter) Execute(t *tuple.Tuple, out *txn.Collector) error {
	r, _, err := b.take(t)
	if err != nil {
		return err
	}
	if _, seen, err := b.seen.Get(); seen || err != nil {
		return err
	}
	if err := b.seen.Set("yes"); err != nil {
		return err
	}
	key := b.key.of(r)
	key.N = 1
	b.emit(out, 0, key)
	return nil
}

// window adds up numbers in windows of event time and emits each sum when the window
// has ended.
type window struct {
	key  keyBy
	size int64
}

func (w window) String() string { return fmt.Sprint("window of ", w.size, " by ", []string(w.key)) }

func (w window) end(r rec) int64 { return (r.T/w.size + 1) * w.size }

func (w window) model(ins [][]rec) [][]rec {
	var out []rec
	for key, rs := range w.key.group(slices.Concat(ins...)) {
		sums := map[int64]int64{}
		for _, r := range rs {
			sums[w.end(r)] += r.N
		}
		for end, sum := range sums {
			out = append(out, rec{K: key.K, G: key.G, N: sum, S: "w", T: end})
		}
	}
	return [][]rec{out}
}

func (w window) instance(p part) any {
	return &windower{keyedPart: keyedPart{part: p, key: w.key}, work: w}
}

type windower struct {
	keyedPart
	work   window
	sums   *txn.Map[int64, int64]
	timers *txn.Timers
}

func (b *windower) Open(ctx *txn.Context, s *txn.State) error {
	b.open(ctx, s)
	b.sums = txn.NewMap(s, "sums", txn.OrderedInt64Codec(), txn.Int64Codec())
	b.timers = s.Timers()
	return nil
}

func (b *windower) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, _, err := b.take(t)
	if err != nil {
		return err
	}
	end := b.work.end(r)
	sum, _, err := b.sums.Get(end)
	if err != nil {
		return err
	}
	// The key does not come with the timer.
	b.timers.SetEvent(at(end), b.key.of(r).String())
	return b.sums.Put(end, sum+r.N)
}

func (b *windower) OnTimer(t txn.Timer, out *txn.Collector) error {
	if err := b.call("timer"); err != nil {
		return err
	}
	end := t.At.UnixMilli()
	sum, ok, err := b.sums.Get(end)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("timer %s fires at %d and there is no window", t.Name, end)
	}
	r, err := parse(t.Name)
	if err != nil {
		return err
	}
	r.N, r.S, r.T = sum, "w", end
	b.emit(out, 0, r)
	return b.sums.Delete(end)
}

// buffer holds sums back for a while by the clock, or until the end of the input.
type buffer struct {
	key   keyBy
	delay time.Duration
}

func (w buffer) String() string { return fmt.Sprint("buffer for ", w.delay, " by ", []string(w.key)) }

func (w buffer) model(ins [][]rec) [][]rec { return sumsOf(w.key, ins) }

func sumsOf(by keyBy, ins [][]rec) [][]rec {
	var out []rec
	for key, rs := range by.group(slices.Concat(ins...)) {
		key.N = sumOf(rs)
		out = append(out, key)
	}
	return [][]rec{out}
}

func (w buffer) instance(p part) any {
	return &bufferer{keyedPart: keyedPart{part: p, key: w.key}, delay: w.delay}
}

type bufferer struct {
	keyedPart
	delay  time.Duration
	held   *txn.Value[int64]
	timers *txn.Timers
}

func (b *bufferer) Open(ctx *txn.Context, s *txn.State) error {
	b.open(ctx, s)
	b.held = txn.NewValue(s, "held", heavy())
	b.timers = s.Timers()
	return nil
}

func (b *bufferer) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, _, err := b.take(t)
	if err != nil {
		return err
	}
	sum, held, err := b.held.Get()
	if err != nil {
		return err
	}
	if !held {
		b.timers.SetProcessing(time.Now().Add(b.delay), b.key.of(r).String())
	}
	return b.held.Set(sum + r.N)
}

func (b *bufferer) OnTimer(t txn.Timer, out *txn.Collector) error {
	if err := b.call("timer"); err != nil {
		return err
	}
	key, err := parse(t.Name)
	if err != nil {
		return err
	}
	return b.release(key, out)
}

// release emits what is held of the current key.
func (b *bufferer) release(key rec, out *txn.Collector) error {
	sum, held, err := b.held.Get()
	if err != nil || !held {
		return err
	}
	key.N = sum
	b.emit(out, 0, key)
	return b.held.Delete()
}

func (b *bufferer) InputEnded(out *txn.Collector) error {
	var held []rec
	err := b.held.ScanPrefix(nil, func(key []tuple.Value, _ int64) error {
		held = append(held, b.key.read(key))
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range held {
		if err := b.s.SetKey(b.key.values(key)...); err != nil {
			return err
		}
		if err := b.release(key, out); err != nil {
			return err
		}
	}
	return b.call("end")
}
