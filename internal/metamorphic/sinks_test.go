package metamorphic

import (
	"context"
	"fmt"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// rows is a sink that shows every record once.
type rows struct{ kind string }

// rowsKinds are the ways in which rows are written.
var rowsKinds = []string{"two phases", "staged", "ordered"}

func (w rows) String() string { return "rows " + w.kind }

func (w rows) model([][]rec) [][]rec { return nil }

func (w rows) instance(p part) any {
	c := collecting{part: p}
	switch w.kind {
	case "staged":
		return &stagedRows{collecting: c}
	case "ordered":
		return &orderedRows{collecting: c}
	}
	return &twoPhaseRows{collecting: c}
}

// collecting gathers the rows of a batch.
type collecting struct {
	part
	open []rec
}

func (c *collecting) Open(ctx *txn.Context) error { c.ctx = ctx; return nil }

// collect reads a record, also from the failed stream of another node.
func (c *collecting) collect(t *tuple.Tuple) (r rec, mine bool, err error) {
	if len(c.ins) > 0 {
		return c.take(t)
	}
	vals, ok := t.ByName("values").Any().([]tuple.Value)
	if !ok {
		return rec{}, false, fmt.Errorf("the failed stream brings %s", t)
	}
	return read(vals), true, c.check(rec{})
}

func (c *collecting) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, mine, err := c.collect(t)
	if mine && err == nil {
		c.open = append(c.open, r)
	}
	return err
}

func (c *collecting) finish() []rec {
	rs := c.open
	c.open = nil
	return rs
}

type twoPhaseRows struct{ collecting }

func (b *twoPhaseRows) Finish(txn.TransactionID) (any, error) {
	if rs := b.finish(); len(rs) > 0 {
		return rs, b.call("finish")
	}
	return nil, b.call("finish")
}

func (b *twoPhaseRows) Prepare(_ context.Context, id txn.TransactionID, output any) ([]byte, error) {
	if err := b.call("commit"); err != nil {
		return nil, err
	}
	return []byte(id.String()), b.w.prepare(b.l, id, output.([]rec))
}

func (b *twoPhaseRows) Publish(_ context.Context, id txn.TransactionID, data []byte) error {
	if string(data) != id.String() {
		return fmt.Errorf("transaction %s comes with the data of %s", id, data)
	}
	if err := b.call("ack"); err != nil {
		return err
	}
	return b.w.publish(b.l, id)
}

// Discard follows a rollback as well, after which what was gathered is void.
func (b *twoPhaseRows) Discard(_ context.Context, void func(txn.TransactionID) bool) error {
	b.open = nil
	return b.w.discard(b.l, void)
}

type stagedRows struct {
	collecting
	txn.Stage
}

func (b *stagedRows) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	r, mine, err := b.collect(t)
	if mine && err == nil {
		b.Add([]byte(r.String()))
	}
	return err
}

func (b *stagedRows) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	if err := b.call("ack"); err != nil {
		return err
	}
	var rs []rec
	for _, text := range records {
		r, err := parse(string(text))
		if err != nil {
			return txn.Fatal(err)
		}
		rs = append(rs, r)
	}
	return b.w.publishStaged(b.l, id, rs)
}

// orderedRows replaces what it has written for a batch when the batch comes again.
type orderedRows struct{ collecting }

func (b *orderedRows) CommitsInOrder() {}

func (b *orderedRows) place() place { return place{b.id, b.ctx.TaskIndex} }

func (b *orderedRows) InitState(handles []txn.Handle) error {
	b.open = nil
	var restored txn.BatchID
	if len(handles) > 0 {
		restored = handles[len(handles)-1].Batch
	}
	return b.w.fence(b.l, b.place(), b.ctx.Generation, restored)
}

func (b *orderedRows) Rollback(handles []txn.Handle) error { return b.InitState(handles) }

func (b *orderedRows) FinishBatch(txn.BatchID, *txn.Collector) (any, error) {
	return written{b.ctx.Generation, b.finish()}, b.call("finish")
}

// written is what a batch leaves to its Commit, with the generation that made it.
type written struct {
	generation txn.Generation
	rows       []rec
}

func (b *orderedRows) Commit(_ context.Context, n txn.BatchID, state any) ([]byte, error) {
	if err := b.call("commit"); err != nil {
		return nil, err
	}
	s := state.(written)
	return nil, b.w.write(b.l, b.place(), s.generation, n, s.rows)
}

func (b *orderedRows) AckCommit(context.Context, txn.BatchID, txn.BatchID) error {
	return b.call("ack")
}

// board is a sink that shows what each key comes to.
type board struct{ folding }

func (w board) String() string { return fmt.Sprint("board of ", w.folding) }

func (w board) model([][]rec) [][]rec { return nil }

// outcome is what a board shows of records.
func (w board) outcome(rs []rec) outcome {
	o := outcome{}
	for key, rs := range w.key.group(rs) {
		_, texts := w.kind.model(rs)
		for _, text := range texts {
			o[boardLine(key, text)]++
		}
	}
	return o
}

func boardLine(key rec, text string) string { return fmt.Sprintf("%q %d: %s", key.K, key.G, text) }

func (w board) instance(p part) any {
	b := &publisher{folder: newFolder(p, w.folding)}
	switch {
	case w.keyer:
		return &struct {
			*publisher
			implied
		}{b, implied{w.key}}
	case w.frames:
		return &framePublisher{b}
	}
	return b
}

type publisher struct{ folder }

func (b *publisher) Publish(_ context.Context, n txn.BatchID, view txn.View, last bool) error {
	if err := b.call("ack"); err != nil {
		return err
	}
	if !last && n%5 == 3 {
		return txn.ErrPostponed
	}
	lines := map[int][]string{}
	err := b.fold.scan(view, func(key []tuple.Value, text string) error {
		g := b.w.groupOf(key)
		lines[g] = append(lines[g], boardLine(b.key.read(key), text))
		return nil
	})
	if err != nil {
		return err
	}
	from, to := tuple.GroupRange(b.ctx.TaskIndex, b.w.groups, b.ctx.TaskCount)
	return b.w.show(b.l, b.id, n, from, to, lines)
}

type framePublisher struct{ *publisher }

func (b *framePublisher) ExecuteKeyed(f *txn.KeyedBatch, _ *txn.Collector) error {
	return b.executeFrame(f)
}

// want returns what a sink is to show.
func (n *node) want() outcome {
	var all []rec
	for i := range n.ins {
		good, _ := n.input(i)
		all = append(all, good...)
	}
	if n.of != nil {
		for i := range n.of.ins {
			_, bad := n.of.input(i)
			all = append(all, bad...)
		}
	}
	if w, ok := n.work.(board); ok {
		return w.outcome(all)
	}
	return outcomeOf(all)
}

// isSink reports whether a node shows something.
func (n *node) isSink() bool { return len(n.outs) == 0 }
