package txn_test

import (
	"fmt"
	"time"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// exampleClock is the processing time of the examples.
var exampleClock = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// exampleState is what the engine passes to Open, without checkpoints.
func exampleState() *txn.State {
	return txn.NewState(txn.StateConfig{
		Component: "example", Groups: 1, To: 1, Backend: nothing{}, Volatile: true,
		Now: func() int64 { return exampleClock.UnixMilli() },
	})
}

// nothing is a txn.Backend that holds nothing.
type nothing struct{}

func (nothing) Get([]byte) ([]byte, txn.BatchID, error) { return nil, 0, nil }
func (nothing) Empty() bool                             { return true }

func (nothing) Range(_, _ []byte, _ func(_, _ []byte) error) error { return nil }

// check stands for the returns of errors that a bolt would have.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func ExampleValue() {
	s := exampleState()
	last := txn.NewValue(s, "last", txn.StringCodec())

	// The engine makes the key of each tuple the current one.
	check(s.SetKey(tuple.String("ann")))
	check(last.Set("/cart"))

	page, ok, err := last.Get()
	fmt.Println(page, ok, err)
	// Output: /cart true <nil>
}

// A state keyed by country and city is read by country.
func ExampleValue_ScanPrefix() {
	s := exampleState()
	people := txn.NewValue(s, "people", txn.Int64Codec())
	for _, c := range []struct {
		country, city string
		n             int64
	}{{"fr", "Lyon", 5}, {"de", "Bonn", 3}, {"fr", "Nice", 4}} {
		check(s.SetKey(tuple.String(c.country), tuple.String(c.city)))
		check(people.Set(c.n))
	}

	check(people.ScanPrefix([]tuple.Value{tuple.String("fr")}, func(key []tuple.Value, n int64) error {
		fmt.Println(key[1].Str(), n)
		return nil
	}))
	// Output:
	// Lyon 5
	// Nice 4
}

func ExampleAggregate() {
	s := exampleState()
	total := txn.NewAggregate(s, "total", txn.Sum())

	check(s.SetKey(tuple.String("ann")))
	check(total.Add(3))
	check(total.Add(4))

	fmt.Println(total.Get())
	// Output: 7 true <nil>
}

func ExampleMap() {
	s := exampleState()
	cart := txn.NewMap(s, "cart", txn.StringCodec(), txn.Int64Codec())

	check(s.SetKey(tuple.String("ann")))
	check(cart.Put("pears", 2))
	check(cart.Put("apples", 5))
	check(cart.Put("figs", 1))
	check(cart.Delete("figs"))

	var err error
	for fruit, n := range cart.All(&err) {
		fmt.Println(fruit, n)
	}
	check(err)
	// Output:
	// apples 5
	// pears 2
}

func ExampleList() {
	s := exampleState()
	visits := txn.NewList(s, "visits", txn.StringCodec())

	check(s.SetKey(tuple.String("ann")))
	check(visits.Append("/", "/cart"))
	check(visits.Append("/pay"))

	var err error
	for page := range visits.All(&err) {
		fmt.Println(page)
	}
	check(err)
	// Output:
	// /
	// /cart
	// /pay
}

func ExampleWithTTL() {
	s := exampleState()
	session := txn.NewValue(s, "session", txn.StringCodec(), txn.WithTTL(30*time.Minute))

	check(s.SetKey(tuple.String("ann")))
	check(session.Set("s-17"))

	for range 2 {
		exampleClock = exampleClock.Add(20 * time.Minute)
		_, ok, err := session.Get()
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

// silence tells of users of whom nothing has come for ten minutes.
type silence struct {
	last   *txn.Value[int64] // when the user was last seen
	timers *txn.Timers
}

const patience = 10 * time.Minute

func (b *silence) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("silentSince") }

func (b *silence) Open(_ *txn.Context, s *txn.State) error {
	b.last = txn.NewValue(s, "last", txn.Int64Codec())
	b.timers = s.Timers()
	return nil
}

func (b *silence) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	seen := time.UnixMilli(t.Int64(1))
	b.timers.SetEvent(seen.Add(patience), "silent")
	return b.last.Set(seen.UnixMilli())
}

func (b *silence) OnTimer(t txn.Timer, out *txn.Collector) error {
	last, _, err := b.last.Get()
	if err != nil {
		return err
	}
	if since := time.UnixMilli(last); !t.At.Before(since.Add(patience)) { // else a later timer is set
		out.Emit1(tuple.Time(since))
	}
	return nil
}

func ExampleTimerBolt() {
	var bolt txn.TimerBolt = &silence{}

	// What follows is what the engine does.
	s := exampleState()
	check(bolt.Open(nil, s))
	var declared txn.OutputDeclarer
	bolt.(txn.Declarer).DeclareOutputFields(&declared)
	streams, _ := declared.Streams()
	out := txn.NewTestCollector(streams, func(_ string, vals []tuple.Value) {
		fmt.Println("silent since", vals[0].Time().UTC().Format(time.TimeOnly))
	})
	clicks := &tuple.Stream{Component: "clicks", ID: tuple.DefaultStream, Fields: tuple.Fields{"user", "at"}}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, minute := range []time.Duration{0, 7} {
		check(s.SetKey(tuple.String("ann")))
		check(bolt.Execute(tuple.New(clicks, tuple.String("ann"), tuple.Int64(noon.Add(minute*time.Minute).UnixMilli())), out))
	}
	for _, minute := range []time.Duration{12, 20} { // watermarks
		_, err := s.Timers().FireEvent(noon.Add(minute*time.Minute).UnixMilli(), func(t txn.Timer) error { return bolt.OnTimer(t, out) })
		check(err)
	}
	// Output: silent since 12:07:00
}
