package damage

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// The topology reads sales, keeps accounts of every kind of state, and has a sink of
// every kind:
//
//	sales ─┬─ account ─┬─ shown     keyed, publishes its state
//	       │           └─ reminded  staged, of timers
//	       └─ sold                  two-phase
const topologyName = "sales"

// sale is one tuple of the input.
type sale struct{ who, what string }

// input returns two partitions of n sales each. A customer is in one of them only, so
// that there is an order to what the customer buys.
func input(n int) [][]sale {
	parts := make([][]sale, 2)
	for p := range parts {
		for i := range n {
			parts[p] = append(parts[p], sale{fmt.Sprintf("c%d.%d", p, i%7), fmt.Sprintf("item-%d", i*i%11)})
		}
	}
	return parts
}

// sales is a spout with positions; it emits perBatch tuples of each partition in a
// batch, if that is not 0.
type sales struct {
	parts    [][]sale
	perBatch int
	ctx      *txn.Context
	at       map[int]int
	begun    map[int]int // at the beginning of the batch
}

func (s *sales) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("who", "what") }

func (s *sales) Open(ctx *txn.Context) error {
	s.ctx, s.at, s.begun = ctx, map[int]int{}, map[int]int{}
	return nil
}

func (s *sales) Partitions(context.Context) (ids []txn.PartitionID, err error) {
	for i := range s.parts {
		ids = append(ids, txn.PartitionID(fmt.Sprint(i)))
	}
	return ids, nil
}

func (s *sales) Seek(p txn.PartitionID, pos []byte) error {
	var i, at int
	if _, err := fmt.Sscan(string(p), &i); err != nil {
		return err
	}
	if pos != nil {
		at = int(binary.BigEndian.Uint64(pos))
	}
	s.at[i], s.begun[i] = at, at
	return nil
}

func (s *sales) NextTuple(out *txn.Collector) (txn.Status, error) {
	status := txn.Finished
	for i, at := range s.at {
		switch {
		case at == len(s.parts[i]):
			continue
		case s.perBatch > 0 && at == s.begun[i]+s.perBatch:
			status = txn.Idle
			continue
		}
		v := s.parts[i][at]
		out.Emit2(tuple.String(v.who), tuple.String(v.what))
		s.at[i]++
		return txn.Emitted, nil
	}
	return status, nil
}

func (s *sales) FinishBatch(txn.BatchID) (ps []txn.Position, err error) {
	for i, at := range s.at {
		if at == s.begun[i] {
			continue
		}
		s.begun[i] = at
		ps = append(ps, txn.Position{Partition: txn.PartitionID(fmt.Sprint(i)), Data: binary.BigEndian.AppendUint64(nil, uint64(at))})
	}
	s.ctx.Wake()
	return ps, nil
}

// account keeps a value, an aggregate, a map, a list and timers for each customer.
type account struct {
	total  *txn.Aggregate[int64]
	last   *txn.Value[string]
	items  *txn.Map[string, int64]
	visits *txn.List[string]
	timers *txn.Timers
}

const reminders = "reminders"

func (a *account) DeclareOutputFields(d *txn.OutputDeclarer) {
	d.Declare("who", "row")
	d.DeclareStream(reminders, "text")
}

func (a *account) Open(_ *txn.Context, s *txn.State) error {
	a.total = txn.NewAggregate(s, "total", txn.Sum())
	a.last = txn.NewValue(s, "last", txn.StringCodec())
	a.items = txn.NewMap(s, "items", txn.StringCodec(), txn.Int64Codec())
	a.visits = txn.NewList(s, "visits", txn.StringCodec())
	a.timers = s.Timers()
	return nil
}

func (a *account) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	what := strings.Clone(t.Str(1))
	n, _, err := a.items.Get(what)
	if err != nil {
		return err
	}
	if err := a.items.Put(what, n+1); err != nil {
		return err
	}
	if n == 0 { // all of them fire when the input has ended
		a.timers.SetEvent(time.Unix(1_800_000_000, 0), what)
	}
	if err := a.visits.Append(what); err != nil {
		return err
	}
	if err := a.last.Set(what); err != nil {
		return err
	}
	return a.total.Add(1)
}

func (a *account) OnTimer(timer txn.Timer, out *txn.Collector) error {
	n, _, err := a.items.Get(timer.Name)
	if err != nil {
		return err
	}
	out.EmitTo(reminders, tuple.String(fmt.Sprintf("%s %d", timer.Name, n)))
	return nil
}

func (a *account) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		total, _, err := a.total.Get()
		if err != nil {
			return err
		}
		last, _, err := a.last.Get()
		if err != nil {
			return err
		}
		row := fmt.Sprint(total, " ", last)
		for item, n := range a.items.All(&err) {
			row += fmt.Sprint(" ", item, ":", n)
		}
		if err != nil {
			return err
		}
		for v := range a.visits.All(&err) {
			row += " " + v
		}
		if err != nil {
			return err
		}
		out.Emit2(changed.Key()[0], tuple.String(row))
	}
	return nil
}

// expected returns what the sinks must have got of an input.
func expected(parts [][]sale) *outside {
	o := newOutside()
	type customer struct {
		total  int
		last   string
		items  map[string]int
		visits []string
	}
	customers := map[string]*customer{}
	for _, part := range parts {
		for _, s := range part {
			c := customers[s.who]
			if c == nil {
				c = &customer{items: map[string]int{}}
				customers[s.who] = c
			}
			c.total++
			c.last = s.what
			c.items[s.what]++
			c.visits = append(c.visits, s.what)
			o.sold = append(o.sold, s.who+" "+s.what)
		}
	}
	for who, c := range customers {
		row := fmt.Sprint(c.total, " ", c.last)
		for _, item := range sortedKeys(c.items) {
			row += fmt.Sprint(" ", item, ":", c.items[item])
			o.reminded = append(o.reminded, fmt.Sprintf("%s %d", item, c.items[item]))
		}
		o.shown[who] = row + " " + strings.Join(c.visits, " ")
	}
	slices.Sort(o.sold)
	slices.Sort(o.reminded)
	return o
}

// build returns the topology; its sinks write to o.
func build(t testing.TB, parts [][]sale, perBatch int, o *outside) *engine.Topology {
	t.Helper()
	b := engine.NewTopologyBuilder()
	b.SetSpout("sales", func() txn.Spout { return &sales{parts: parts, perBatch: perBatch} }, 1)
	b.SetBolt("account", func() txn.Bolt { return &account{} }, 2).FieldsGrouping("sales", "who")
	b.SetBolt("shown", func() txn.Bolt { return &shown{o: o} }, 1).GlobalGrouping("account")
	b.SetBolt("reminded", func() txn.Bolt { return &reminded{o: o} }, 1).Grouping("account", reminders, engine.Global())
	b.SetBolt("sold", func() txn.Bolt { return &sold{o: o} }, 2).ShuffleGrouping("sales")
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func configured(t testing.TB, kv map[string]any) engine.Option {
	t.Helper()
	all := map[string]any{
		"topology.debug.poison.frames": true, "transaction.schedule.batch.delay.ms": 1,
		"topology.key.groups": 16, "topology.restart.max": 3,
	}
	for k, v := range kv {
		all[k] = v
	}
	v, err := config.Of(all)
	if err != nil {
		t.Fatal(err)
	}
	return engine.WithConfig(v)
}
