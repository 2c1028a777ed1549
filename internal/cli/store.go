package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/engine/config"
)

// folders of the data folder and of a topology's store.
const (
	checkpointsFolder = "checkpoints"
	headFile          = "head"
)

// archive is the store of one topology, opened to look at.
type archive struct {
	topology string
	store    checkpoint.Store
	head     *checkpoint.Head
}

// openArchives opens the stores of the topology of that name, or of all topologies,
// below what arg names: a data folder, a folder of checkpoints, or its URL.
func openArchives(ctx context.Context, arg, topology string) ([]archive, error) {
	dir, names, err := topologies(arg)
	if err != nil {
		return nil, err
	}
	if topology != "" {
		if !slices.Contains(names, topology) {
			return nil, fmt.Errorf("%s holds no checkpoints of topology %q, only of %s", dir, topology, strings.Join(names, ", "))
		}
		names = []string{topology}
	}
	var archives []archive
	for _, name := range names {
		a, err := openArchive(ctx, filepath.Join(dir, name), name)
		if err != nil {
			return nil, err
		}
		archives = append(archives, a)
	}
	return archives, nil
}

// openOne opens the store of the one topology that is meant.
func openOne(ctx context.Context, arg, topology string) (archive, error) {
	archives, err := openArchives(ctx, arg, topology)
	if err != nil {
		return archive{}, err
	}
	if len(archives) > 1 {
		var names []string
		for _, a := range archives {
			names = append(names, a.topology)
		}
		return archive{}, fmt.Errorf("%s holds the checkpoints of several topologies, name one: %s", arg, strings.Join(names, ", "))
	}
	return archives[0], nil
}

// topologies returns the folder of checkpoints and the topologies that have a head.
func topologies(arg string) (dir string, names []string, err error) {
	dir = arg
	if strings.Contains(arg, "://") {
		if dir, err = config.StoreFolder(arg); err != nil {
			return "", nil, err
		}
	} else if info, err := os.Stat(filepath.Join(arg, checkpointsFolder)); err == nil && info.IsDir() {
		dir = filepath.Join(arg, checkpointsFolder)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, fmt.Errorf("looking for checkpoints: %w", err)
	}
	for _, e := range entries {
		_, err := os.Stat(filepath.Join(dir, e.Name(), headFile))
		if err == nil && e.IsDir() {
			names = append(names, e.Name())
		} else if err != nil && e.IsDir() && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("looking for checkpoints: %w", err)
		}
	}
	if len(names) == 0 {
		return "", nil, fmt.Errorf("no checkpoints in %s: name a data folder, or its folder %q, which holds TOPOLOGY/%s",
			dir, checkpointsFolder, headFile)
	}
	return dir, names, nil
}

func openArchive(ctx context.Context, dir, topology string) (archive, error) {
	s, err := filestore.Open(dir)
	if err != nil {
		return archive{}, err
	}
	data, _, err := s.ReadHead(ctx)
	if err != nil {
		return archive{}, fmt.Errorf("reading the head of topology %q: %w", topology, err)
	}
	h, err := checkpoint.DecodeHead(filepath.Join(dir, headFile), data)
	if err != nil {
		return archive{}, err
	}
	return archive{topology, s, h}, nil
}

// entry is one checkpoint that the head names.
type entry struct {
	ref     checkpoint.Ref
	region  string // empty if only pinned
	current bool
	pinned  bool
}

// entries returns the checkpoints that can be gone back to: by region, oldest first,
// and then those that are only pinned.
func (a archive) entries() []entry {
	var all []entry
	named := map[string]int{} // index in all, by manifest
	for _, region := range slices.Sorted(maps.Keys(a.head.Regions)) {
		retained := a.head.Regions[region].Retained
		for i, ref := range retained {
			named[ref.Manifest] = len(all)
			all = append(all, entry{ref: ref, region: region, current: i == len(retained)-1})
		}
	}
	for _, p := range a.head.Pins {
		if i, ok := named[p.Manifest]; ok {
			all[i].pinned = true
			continue
		}
		all = append(all, entry{ref: p.Ref, region: p.Region, pinned: true})
	}
	return all
}

// marks says in words what is special about a checkpoint.
func (e entry) marks() string {
	var marks []string
	for _, m := range []struct {
		is   bool
		word string
	}{{e.current, "current"}, {e.pinned, "pinned"}, {e.ref.Ended, "all input ended"}} {
		if m.is {
			marks = append(marks, m.word)
		}
	}
	return strings.Join(marks, ", ")
}
