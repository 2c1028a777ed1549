package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/txn"
)

// runEngine runs the topology as a program would: checkpoints in a folder and state
// in Pebble, both removed afterwards.
func (m mode) runEngine(ctx context.Context, w workload, s shape, counted []paddedCounter) (err error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("lines", func() txn.Spout { return &lineSpout{lines: w.lines} }, s.spouts)
	b.SetBolt("split", func() txn.Bolt { return splitBolt{} }, s.splits).ShuffleGrouping("lines")
	b.SetBolt("count", func() txn.Bolt { return &countBolt{told: counted} }, s.counts).FieldsGrouping("split", "word")
	topology, err := b.Build()
	if err != nil {
		return err
	}
	values := map[string]any{
		"transaction.topology":          m.intervalMS > 0,
		"transaction.exactly.once.mode": m.name == "exactly-once",
	}
	if m.intervalMS > 0 {
		values["transaction.schedule.batch.delay.ms"] = m.intervalMS
	}
	conf, err := config.Of(values)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "isobar-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := filestore.Open(filepath.Join(dir, "checkpoints"))
	if err != nil {
		return err
	}
	state := pebblestate.New(pebblestate.Options{Dir: filepath.Join(dir, "local"), Store: store})
	_, err = engine.Run(ctx, topology, engine.WithConfig(conf), engine.WithStore(store, state))
	return errors.Join(err, state.Close(), store.Close())
}
