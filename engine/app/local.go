package app

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
)

// Local keeps everything of a run in a data folder, which it locks:
//
//	DATA/lock                          held while the process runs; names its pid
//	DATA/checkpoints/TOPOLOGY/…        the checkpoint store, unless checkpoint.store is set
//	DATA/local/GENERATION/TASK/…       live state, rebuilt from the checkpoint at every start
func Local(dir string) engine.Option {
	return engine.WithStorage(func(_ context.Context, o engine.Opening) (engine.Storage, error) {
		root, err := storeFolder(dir, o.Config.String("checkpoint.store"))
		if err != nil {
			return engine.Storage{}, err
		}
		unlock, err := filestore.LockFolder(dir)
		if err != nil {
			return engine.Storage{}, err
		}
		store, err := filestore.Open(filepath.Join(root, o.Topology), filestore.WithHook(o.Hook))
		if err != nil {
			return engine.Storage{}, errors.Join(err, unlock())
		}
		state := pebblestate.New(pebblestate.Options{
			Dir:    filepath.Join(dir, "local"),
			Store:  store,
			Logger: o.Logger,
		})
		return engine.Storage{
			Store: store,
			State: state,
			Close: func() error { return errors.Join(state.Close(), store.Close(), unlock()) },
		}, nil
	})
}

// storeFolder returns the folder that checkpoint.store names.
func storeFolder(data, url string) (string, error) {
	if url == "" {
		return filepath.Join(data, "checkpoints"), nil
	}
	return config.StoreFolder(url)
}
