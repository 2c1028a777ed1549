package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/config"
)

const storeHelp = `
STORE is a data folder, its folder of checkpoints, or the file:// or s3:// URL of one.
TOPOLOGY may be left out if there is only one.`

// location says how stores are reached: the flags that all commands about them have.
type location struct {
	file        string
	assignments []string
}

func (l *location) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.file, "config", "", "a YAML `FILE` of configuration, for the keys of S3")
	cmd.Flags().StringArrayVarP(&l.assignments, "set", "c", nil, "a configuration assignment, `KEY=VALUE` (repeatable)")
}

func (l *location) place(arg string) (storage.Place, error) {
	conf, err := config.Read(l.file, l.assignments)
	if err != nil {
		return nil, err
	}
	return storage.Named(arg, conf)
}

// archive is the store of one topology, and its head as it was read.
type archive struct {
	topology string
	place    storage.Place
	store    checkpoint.Store
	head     *checkpoint.Head
	unseen   error // why there is no store, only a head
}

// openAll opens the stores of the topology of that name, or of all topologies, to look at.
func (l *location) openAll(ctx context.Context, arg, topology string) ([]*archive, error) {
	place, err := l.place(arg)
	if err != nil {
		return nil, err
	}
	names, err := place.Topologies(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("no checkpoints in %s: name a data folder, or its folder \"checkpoints\", which has a folder with a head for each topology", place)
	case topology != "" && !slices.Contains(names, topology):
		return nil, fmt.Errorf("%s holds no checkpoints of topology %q, only of %s", place, topology, strings.Join(names, ", "))
	case topology != "":
		names = []string{topology}
	}
	var archives []*archive
	for _, name := range names {
		a, err := openArchive(ctx, place, name)
		if err != nil {
			return nil, errors.Join(err, closeAll(archives))
		}
		archives = append(archives, a)
	}
	return archives, nil
}

func closeAll(archives []*archive) error {
	var errs []error
	for _, a := range archives {
		errs = append(errs, a.store.Close())
	}
	return errors.Join(errs...)
}

func openArchive(ctx context.Context, place storage.Place, topology string) (*archive, error) {
	s, err := place.Look(ctx, topology)
	if err != nil {
		return nil, err
	}
	a := &archive{topology: topology, place: place, store: s}
	if a.head, err = a.readHead(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return a, nil
}

func (a *archive) readHead(ctx context.Context) (*checkpoint.Head, error) {
	data, _, err := a.store.ReadHead(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the head of topology %q: %w", a.topology, err)
	}
	return checkpoint.DecodeHead(strings.TrimSuffix(a.place.String(), "/")+"/"+a.topology+"/"+checkpoint.HeadName(a.store), data)
}

// with opens the one topology that is meant and calls do.
func (l *location) with(cmd *cobra.Command, arg, topology string, do func(a *archive) error) error {
	archives, err := l.openAll(cmd.Context(), arg, topology)
	if err != nil {
		return err
	}
	if len(archives) > 1 {
		var names []string
		for _, a := range archives {
			names = append(names, a.topology)
		}
		err = fmt.Errorf("%s holds the checkpoints of several topologies, name one: %s", arg, strings.Join(names, ", "))
	} else if err = do(archives[0]); errors.Is(err, checkpoint.ErrNotFound) {
		if gone := archives[0].gone(cmd.Context()); len(gone) > 0 {
			err = fmt.Errorf("%w: the topology runs and has let go of %s meanwhile: pin a checkpoint before you read it", err, names(gone))
		}
	}
	return errors.Join(err, closeAll(archives))
}

// gone returns the checkpoints that the head has ceased to keep since it was read: what
// they name may be deleted. It returns none if that is not known.
func (a *archive) gone(ctx context.Context) []entry {
	now, err := a.readHead(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(a.entries(), func(e entry) bool { return keeps(now, e.ref) })
}

func keeps(h *checkpoint.Head, ref checkpoint.Ref) bool {
	_, kept, ok := h.Find(ref.Generation, ref.Batch)
	return ok && kept.Manifest == ref.Manifest
}

// entry is one checkpoint that the head keeps.
type entry struct {
	ref    checkpoint.Ref
	region string
	status string   // current, retained, superseded, or pinned if it is nothing else
	pins   []string // the names of its pins, empty for those without
	// unsettled: what it lists may be lost; see checkpoint.RegionHead.
	unsettled bool
}

// entries returns the checkpoints that can be gone back to, by region and age.
func (a *archive) entries() []entry {
	var all []entry
	regions := slices.Collect(maps.Keys(a.head.Regions))
	for _, p := range a.head.Pins {
		if !slices.Contains(regions, p.Region) {
			regions = append(regions, p.Region)
		}
	}
	slices.Sort(regions)
	for _, region := range regions {
		r := a.head.Regions[region]
		kept := a.head.Kept(region)
		slices.SortStableFunc(kept, func(x, y checkpoint.Ref) int {
			return cmp.Or(cmp.Compare(x.Generation, y.Generation), cmp.Compare(x.Batch, y.Batch))
		})
		for _, ref := range kept {
			same := func(other checkpoint.Ref) bool { return other.Manifest == ref.Manifest }
			e := entry{ref: ref, region: region, status: "pinned", unsettled: r.LeavesBehind(ref)}
			switch {
			case r.Current() != nil && same(*r.Current()):
				e.status = "current"
			case slices.ContainsFunc(r.Retained, same):
				e.status = "retained"
			case slices.ContainsFunc(r.Superseded, same):
				e.status = "superseded"
			}
			for _, p := range a.head.Pins {
				if p.Region == region && same(p.Ref) {
					e.pins = append(e.pins, p.Name)
				}
			}
			all = append(all, e)
		}
	}
	return all
}

// marks says in words what is special about a checkpoint.
func (e entry) marks() string {
	marks := []string{e.status}
	if e.unsettled {
		marks = append(marks, "unsettled")
	}
	for _, name := range e.pins {
		switch {
		case name != "":
			marks = append(marks, fmt.Sprintf("savepoint %q", name))
		case e.status != "pinned":
			marks = append(marks, "pinned")
		}
	}
	if e.ref.Ended {
		marks = append(marks, "all input ended")
	}
	return strings.Join(marks, ", ")
}

// isCheckpoint reports whether an argument is the name of a checkpoint, GENERATION.BATCH.
func isCheckpoint(arg string) bool {
	_, _, err := checkpoint.ParseRef(arg)
	return err == nil
}

// choose returns the checkpoint of a name, GENERATION.BATCH or that of a savepoint, or
// the current ones.
func (a *archive) choose(name string) ([]entry, error) {
	all := a.entries()
	chosen := slices.DeleteFunc(slices.Clone(all), func(e entry) bool {
		if name == "" {
			return e.status != "current"
		}
		return e.ref.String() != name && !slices.Contains(e.pins, name)
	})
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("topology %q has committed no checkpoint yet", a.topology)
	case len(chosen) == 0 && name == "":
		return nil, fmt.Errorf("topology %q has no current checkpoint: it goes on from the beginning; there are %s", a.topology, names(all))
	case len(chosen) == 0:
		return nil, fmt.Errorf("topology %q has no checkpoint %q, there are %s", a.topology, name, names(all))
	}
	return chosen, nil
}

// chooseOne is choose where several regions are too many.
func (a *archive) chooseOne(name string) (entry, error) {
	chosen, err := a.choose(name)
	if err != nil {
		return entry{}, err
	}
	if len(chosen) > 1 {
		return entry{}, fmt.Errorf("topology %q has several regions, name a checkpoint: %s", a.topology, names(chosen))
	}
	return chosen[0], nil
}

func names(entries []entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.ref.String())
		for _, name := range e.pins {
			if name != "" {
				all = append(all, strconv.Quote(name))
			}
		}
	}
	return strings.Join(all, ", ")
}

func (a *archive) manifest(ctx context.Context, ref checkpoint.Ref) (*checkpoint.Manifest, error) {
	if a.unseen != nil {
		return nil, a.unseen
	}
	m, err := checkpoint.ReadManifest(ctx, a.store, ref)
	if err != nil {
		return nil, fmt.Errorf("topology %q: %w", a.topology, err)
	}
	return m, nil
}

// storeArgs takes STORE [TOPOLOGY] and then some names of checkpoints, which look
// different from topologies only if they are GENERATION.BATCH.
func storeArgs(args []string, checkpoints int) (store, topology string, rest []string, err error) {
	store, rest = args[0], args[1:]
	if len(rest) > checkpoints || len(rest) > 0 && len(rest) <= checkpoints && !isCheckpoint(rest[0]) {
		topology, rest = rest[0], rest[1:]
	}
	if len(rest) > checkpoints {
		return "", "", nil, usageError{fmt.Errorf("too many arguments: %s", strings.Join(args, " "))}
	}
	return store, topology, rest, nil
}
