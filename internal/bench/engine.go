package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
)

// runTopology runs a topology as a program would: checkpoints in a folder and state
// in Pebble, both removed afterwards.
func runTopology(ctx context.Context, m mode, t *engine.Topology, opts ...engine.Option) error {
	conf, err := m.config()
	if err != nil {
		return err
	}
	return inFolder(func(dir string) error {
		store, err := filestore.Open(filepath.Join(dir, "checkpoints"))
		if err != nil {
			return err
		}
		state := pebblestate.New(pebblestate.Options{Dir: filepath.Join(dir, "local"), Store: store})
		opts = append(opts, engine.WithConfig(conf), engine.WithStore(store, state))
		if m.workers > 1 {
			err = runOnWorkers(ctx, m.workers, t, opts...)
		} else {
			_, err = engine.Run(ctx, t, opts...)
		}
		return errors.Join(err, state.Close(), store.Close())
	})
}

// inFolder lets fn use a new folder, which is removed afterwards.
func inFolder(fn func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "isobar-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return fn(dir)
}
