package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
)

// folder is a Place on a file system: the path of a folder with one for each topology.
type folder string

func (f folder) String() string { return string(f) }

func (f folder) Open(_ context.Context, topology string, hook func(step string)) (checkpoint.Store, error) {
	if hook == nil {
		hook = func(string) {}
	}
	return filestore.Open(filepath.Join(string(f), topology), filestore.WithHook(hook))
}

func (f folder) Look(_ context.Context, topology string) (checkpoint.Store, error) {
	return filestore.Open(filepath.Join(string(f), topology))
}

func (f folder) Topologies(context.Context) ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		_, err := filestore.HeadFile(filepath.Join(string(f), e.Name()))
		switch {
		case err == nil:
			names = append(names, e.Name())
		case !errors.Is(err, checkpoint.ErrNotFound):
			return nil, fmt.Errorf("look for checkpoints: %w", err)
		}
	}
	return names, nil
}
