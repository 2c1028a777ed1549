// Package storage finds and opens the stores that checkpoints are kept in, whatever
// their kind: a folder or a bucket.
package storage

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/engine/config"
)

// checkpointsFolder is where a data folder has checkpoints if nothing else is said.
const checkpointsFolder = "checkpoints"

// Place holds the checkpoints of any number of topologies.
type Place interface {
	// Open opens the store of a topology to write to. It makes sure first that the
	// store keeps two writers apart, and creates what is missing. hook, if it is not
	// nil, is called before and after each step that changes the store.
	Open(ctx context.Context, topology string, hook func(step string)) (checkpoint.Store, error)
	// Look opens the store of a topology that is in Topologies, to read. It asks nothing
	// of the store and changes nothing.
	Look(ctx context.Context, topology string) (checkpoint.Store, error)
	// Topologies returns the names of those that have a head here, sorted.
	Topologies(ctx context.Context) ([]string, error)
	// String returns the folder or the URL, for messages.
	String() string
}

// Find returns the place that checkpoint.store and the keys beside it name. Without
// them it is in the data folder.
func Find(conf config.Values, dataDir string) (Place, error) {
	store := conf.String("checkpoint.store")
	if store == "" {
		return folder(filepath.Join(dataDir, checkpointsFolder)), nil
	}
	return located(store, conf)
}

// Named returns the place that a user means with arg: a data folder, its folder of
// checkpoints, or a URL as checkpoint.store has it. The other keys are those of conf.
func Named(arg string, conf config.Values) (Place, error) {
	if strings.Contains(arg, "://") {
		return located(arg, conf)
	}
	if info, err := os.Stat(filepath.Join(arg, checkpointsFolder)); err == nil && info.IsDir() {
		return folder(filepath.Join(arg, checkpointsFolder)), nil
	}
	return folder(arg), nil
}

// OpenStore opens the store of a topology as its configuration says. The caller closes
// it. See [Place].
func OpenStore(ctx context.Context, conf config.Values, dataDir, topology string, hook func(step string)) (checkpoint.Store, error) {
	p, err := Find(conf, dataDir)
	if err != nil {
		return nil, err
	}
	return p.Open(ctx, topology, hook)
}

func located(storeURL string, conf config.Values) (Place, error) {
	if !strings.HasPrefix(storeURL, "s3:") {
		dir, err := config.StoreFolder(storeURL)
		return folder(dir), err
	}
	name, prefix, err := config.StoreBucket(storeURL)
	if err != nil {
		return nil, err
	}
	p, err := s3store.NewPlace(s3store.Options{
		Bucket:    name,
		Prefix:    prefix,
		Endpoint:  conf.String("checkpoint.s3.endpoint"),
		Region:    conf.String("checkpoint.s3.region"),
		PathStyle: conf.Bool("checkpoint.s3.path.style"),
		CAFile:    conf.String("checkpoint.s3.ca.file"),
	})
	return bucket{p}, err
}
