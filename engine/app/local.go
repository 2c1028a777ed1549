package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/internal/atomicfile"
)

// Local keeps everything of a run in a data folder, which it locks:
//
//	DATA/lock                          held while the process runs; names its pid
//	DATA/checkpoints/TOPOLOGY/…        the checkpoint store, unless checkpoint.store is set
//	DATA/ran/TOPOLOGY                  notes that there are checkpoints, so that they are missed
//	DATA/local/GENERATION/TASK/…       live state, rebuilt from the checkpoint at every start
//
// It refuses a run whose topology.blobstore.map names files that are not in the working
// folder: nobody but the supervisors of a cluster fetches them.
func Local(dir string) engine.Option {
	return engine.WithStorage(func(ctx context.Context, o engine.Opening) (engine.Storage, error) {
		if err := checkBlobs(o.Config.Blobs()); err != nil {
			return engine.Storage{}, err
		}
		place, err := storage.Find(o.Config, dir)
		if err != nil {
			return engine.Storage{}, err
		}
		unlock, err := filestore.LockFolder(dir)
		if err != nil {
			return engine.Storage{}, err
		}
		store, err := place.Open(ctx, o.Topology, o.Hook)
		if err == nil {
			err = remember(ctx, dir, o, store)
		}
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

func checkBlobs(blobs []config.Blob) error {
	var errs []error
	for _, b := range blobs {
		_, err := os.Stat(b.LocalName)
		if errors.Is(err, os.ErrNotExist) {
			err = errors.New("the working folder has no such file or folder")
		}
		if err != nil {
			unpacked := ""
			if b.Uncompress {
				unpacked = ", unpacked"
			}
			errs = append(errs, fmt.Errorf("%s: blob %q as %q: %w: a cluster would fetch it, here it must be put there before the start%s",
				config.KeyBlobs, b.Key, b.LocalName, err, unpacked))
		}
	}
	return errors.Join(errs...)
}

// remember keeps a data folder whose checkpoints were taken away from starting from
// nothing: it notes in DATA/ran/TOPOLOGY that there is a head, and refuses to go on
// without one if that was noted.
func remember(ctx context.Context, dir string, o engine.Opening, store checkpoint.Store) error {
	note := filepath.Join(dir, "ran", o.Topology)
	noted, noteErr := os.ReadFile(note)
	_, _, err := store.ReadHead(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // it is not known whether there is one
	case err == nil:
		if string(noted) == fmt.Sprintln(store) {
			return nil
		}
		err := os.MkdirAll(filepath.Dir(note), 0o777)
		if err == nil {
			err = atomicfile.Write(note, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, store)
				return err
			})
		}
		if err != nil { // a full disk: no reason not to go on
			o.Logger.Warn("cannot note that there are checkpoints, will try at the next start", "err", err)
		}
		return nil
	case !errors.Is(err, checkpoint.ErrNotFound):
		return nil // the run says what is wrong
	case errors.Is(noteErr, os.ErrNotExist):
		return nil
	}
	return fmt.Errorf("topology %q has run in data folder %s with its checkpoints in %s, and there is no head in %s that says which are committed: put them back, or remove %s to start from nothing",
		o.Topology, dir, strings.TrimSpace(string(noted)), store, note)
}
