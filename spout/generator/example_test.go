package generator_test

import (
	"context"
	"fmt"

	"github.com/isobar-io/isobar/bolt"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func ExampleNew() {
	b := engine.NewTopologyBuilder()
	b.SetSpout("squares", func() txn.Spout {
		return generator.New(generator.Options{
			Fields: tuple.Fields{"n", "square"},
			Tuples: 4,
			Emit:   func(i uint64, out *txn.Collector) { out.Emit2(tuple.Uint64(i), tuple.Uint64(i*i)) },
		})
	}, 1)
	b.SetBolt("print", func() txn.Bolt {
		return bolt.Func(nil, func(t *tuple.Tuple, _ *txn.Collector) error {
			fmt.Println(t.Values())
			return nil
		})
	}, 1).GlobalGrouping("squares")
	t, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := engine.Run(context.Background(), t); err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0 0]
	// [1 1]
	// [2 4]
	// [3 9]
}
