package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
)

// writing opens the store to be written to.
func (a *archive) writing(ctx context.Context, do func(s checkpoint.Store) error) error {
	s, err := a.place.Open(ctx, a.topology, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// operator returns a mark that no other change of a head has.
func operator() string { return "operator-" + rand.Text() }

// edited is what a change of the head has done, as --json prints it.
type edited struct {
	Topology string           `json:"topology"`
	Dropped  []string         `json:"dropped"` // checkpoints that are not kept any more
	Freed    int64            `json:"freedBytes"`
	Pins     []checkpoint.Pin `json:"pins"`
	DryRun   bool             `json:"dryRun,omitempty"`
}

func newPin() *cobra.Command {
	var name string
	var asJSON bool
	var l location
	cmd := &cobra.Command{
		Use:   "pin STORE [TOPOLOGY] GENERATION.BATCH",
		Short: "Keep a checkpoint until it is unpinned.",
		Long: "Keep a checkpoint until it is unpinned, whatever becomes of the retained ones. With --name it\n" +
			"is a savepoint. The topology may be running." + storeHelp,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.editing(cmd, args, asJSON, func(g checkpoint.Generation, n checkpoint.BatchID) checkpoint.Edit {
				return checkpoint.PinEdit(g, n, name)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of the savepoint")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

func newUnpin() *cobra.Command {
	var name string
	var asJSON bool
	var l location
	cmd := &cobra.Command{
		Use:   "unpin STORE [TOPOLOGY] GENERATION.BATCH | --name NAME",
		Short: "Take back the pins of a checkpoint, or a savepoint.",
		Long: "Take back the pins of a checkpoint, or a savepoint. If nothing else keeps the checkpoint, what\n" +
			"only it names is deleted. The topology may be running." + storeHelp,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				return l.editing(cmd, args, asJSON, func(g checkpoint.Generation, n checkpoint.BatchID) checkpoint.Edit {
					return checkpoint.UnpinEdit(g, n, "")
				})
			}
			store, topology, _, err := storeArgs(args, 0)
			if err != nil {
				return err
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				return a.change(cmd, asJSON, checkpoint.UnpinEdit(0, 0, name))
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of the savepoint")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

// editing makes an edit that is about one checkpoint.
func (l *location) editing(cmd *cobra.Command, args []string, asJSON bool, of func(checkpoint.Generation, checkpoint.BatchID) checkpoint.Edit) error {
	store, topology, rest, err := storeArgs(args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return usageError{errors.New("which checkpoint? name it as GENERATION.BATCH")}
	}
	g, n, err := checkpoint.ParseRef(rest[0])
	if err != nil {
		return usageError{err}
	}
	return l.with(cmd, store, topology, func(a *archive) error { return a.change(cmd, asJSON, of(g, n)) })
}

func newPrune() *cobra.Command {
	var keep int
	var dryRun, asJSON bool
	var l location
	cmd := &cobra.Command{
		Use:   "prune STORE [TOPOLOGY]",
		Short: "Let go of superseded checkpoints, and of all but the newest ones.",
		Long: "Let go of the checkpoints that a rollback has undone and, with --keep, of all but the newest\n" +
			"retained ones of each region; delete what only they name. Pinned ones stay. The topology may\n" +
			"be running." + storeHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("keep") && keep < 1 {
				return usageError{fmt.Errorf("--keep %d: at least 1 checkpoint must be kept", keep)}
			}
			store, topology, _, err := storeArgs(args, 0)
			if err != nil {
				return err
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				if dryRun {
					return a.tryPrune(cmd, keep, asJSON)
				}
				return a.change(cmd, asJSON, checkpoint.PruneEdit(keep))
			})
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many retained checkpoints to keep of each region; without it all")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be let go of")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

// tryPrune says what prune would do, and changes nothing.
func (a *archive) tryPrune(cmd *cobra.Command, keep int, asJSON bool) error {
	after := a.head.Clone()
	dropped, err := checkpoint.PruneEdit(keep)(after)
	if err != nil {
		return err
	}
	garbage, err := a.garbage(cmd.Context(), dropped, after)
	if err != nil {
		return err
	}
	return a.printEdited(cmd.OutOrStdout(), asJSON, dropped, garbage, after, true)
}

// change edits the head, deletes what is not kept any more, and says what has happened.
func (a *archive) change(cmd *cobra.Command, asJSON bool, e checkpoint.Edit) error {
	return a.writing(cmd.Context(), func(s checkpoint.Store) error {
		dropped, _, after, err := checkpoint.EditHead(cmd.Context(), s, operator(), e)
		if err != nil {
			return err
		}
		all, err := a.garbage(cmd.Context(), dropped, after)
		if err == nil {
			err = sweep(cmd.Context(), s, all)
		}
		if err != nil {
			err = fmt.Errorf("topology %q: the checkpoints are let go of, but not all is deleted: %w", a.topology, err)
		}
		return errors.Join(a.printEdited(cmd.OutOrStdout(), asJSON, dropped, all, after, false), err)
	})
}

// garbage is what only one dropped checkpoint names, or it and later ones: the order of
// deletion.
type garbage struct {
	ref   checkpoint.Ref
	files map[string]int64
}

// garbage returns what nothing that head keeps names any more. All that is kept must be
// readable, or nothing can be known to be free (invariant I8). A dropped checkpoint that
// cannot be read is left alone: the objects are found as orphans later.
func (a *archive) garbage(ctx context.Context, dropped []checkpoint.Ref, head *checkpoint.Head) ([]garbage, error) {
	if len(dropped) == 0 {
		return nil, nil
	}
	kept, err := a.keptBy(ctx, head)
	if err != nil {
		return nil, err
	}
	var all []garbage
	counted := map[string]bool{}
	for _, ref := range dropped {
		m, err := a.manifest(ctx, ref)
		if errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrNewer) {
			continue
		}
		if err != nil {
			return nil, err
		}
		g := garbage{ref, map[string]int64{}}
		sizes := filesOf(m)
		for _, name := range checkpoint.Deletable([]*checkpoint.Manifest{m}, kept) {
			if !counted[name] {
				counted[name] = true
				g.files[name] = sizes[name]
			}
		}
		all = append(all, g)
	}
	return all, nil
}

// keptBy reads all manifests that head keeps, or a later one if the topology has moved it
// on and deleted some of them since.
func (a *archive) keptBy(ctx context.Context, head *checkpoint.Head) ([]*checkpoint.Manifest, error) {
	var kept []*checkpoint.Manifest
	for region := range head.Regions {
		for _, ref := range head.Kept(region) {
			m, err := a.manifest(ctx, ref)
			if errors.Is(err, checkpoint.ErrNotFound) {
				if now, err := a.readHead(ctx); err == nil && !keeps(now, ref) {
					return a.keptBy(ctx, now)
				}
			}
			if err != nil {
				return nil, fmt.Errorf("nothing can be deleted while a checkpoint that is kept cannot be read: %w", err)
			}
			kept = append(kept, m)
		}
	}
	return kept, nil
}

// sweep deletes what the head has ceased to keep: the files of all dropped checkpoints
// first and their manifests last, so that a crash in between leaves something to go by.
// The head is durable by now and names none of it, nor will it: what a running task may
// still list is in a checkpoint that is kept, or newer.
func sweep(ctx context.Context, s checkpoint.Store, all []garbage) error {
	for _, g := range all {
		for _, name := range slices.Sorted(maps.Keys(g.files)) {
			if err := s.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	for _, g := range all {
		if err := s.Delete(ctx, g.ref.Manifest); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) printEdited(w io.Writer, asJSON bool, dropped []checkpoint.Ref, all []garbage, after *checkpoint.Head, dryRun bool) error {
	out := edited{Topology: a.topology, Dropped: []string{}, Pins: append([]checkpoint.Pin{}, after.Pins...), DryRun: dryRun}
	for _, ref := range dropped {
		out.Dropped = append(out.Dropped, ref.String())
	}
	slices.Sort(out.Dropped)
	for _, g := range all {
		out.Freed += g.ref.Size + total(g.files, nil)
	}
	if asJSON {
		return printJSON(w, out)
	}
	p := printer{w: w}
	verb := "Let go of"
	if dryRun {
		verb = "Would let go of"
	}
	for _, ref := range dropped {
		p.line("%s checkpoint %s, taken %s UTC", verb, ref, moment(ref.UnixMilli))
	}
	if len(dropped) > 0 {
		p.line("%s %s", map[bool]string{false: "Freed", true: "It would free"}[dryRun], bytesOf(out.Freed))
	} else {
		p.line("Nothing is let go of.")
	}
	for _, pin := range after.Pins {
		name := ""
		if pin.Name != "" {
			name = fmt.Sprintf(" as savepoint %q", pin.Name)
		}
		p.line("Pinned: checkpoint %s of region %s%s", pin.Ref, pin.Region, name)
	}
	return p.err
}
