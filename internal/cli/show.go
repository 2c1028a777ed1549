package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
)

func newShow() *cobra.Command {
	var asJSON bool
	var with extras
	var l location
	cmd := &cobra.Command{
		Use:   "show STORE [TOPOLOGY] [CHECKPOINT]",
		Short: "Show what a checkpoint holds: positions, state files, open transactions.",
		Long: "Show what a checkpoint holds: positions, state files, open transactions. CHECKPOINT is\n" +
			"GENERATION.BATCH or, after TOPOLOGY, the name of a savepoint; without it, it is the current\n" +
			"one of each region." + storeHelp,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, topology, rest, err := storeArgs(args, 1)
			if err != nil {
				return err
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				chosen, err := a.choose(optional(rest))
				if err != nil {
					return err
				}
				manifests := make([]*checkpoint.Manifest, len(chosen))
				for i, e := range chosen {
					if manifests[i], err = a.manifest(cmd.Context(), e.ref); err != nil {
						return err
					}
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), manifests)
				}
				for i, m := range manifests {
					if err := a.show(cmd, chosen[i], m, with); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the manifests as JSON")
	cmd.Flags().BoolVar(&with.count, "count", false, "count the keys of each state, which reads all of them")
	cmd.Flags().BoolVar(&with.shared, "shared", false, "also how much of it the checkpoints before and after name too")
	l.addFlags(cmd)
	return cmd
}

// extras are what show reads only if it is asked to.
type extras struct{ count, shared bool }

// optional returns the first of at most one argument.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// show prints what a checkpoint holds, task by task.
func (a *archive) show(cmd *cobra.Command, e entry, m *checkpoint.Manifest, with extras) error {
	p := printer{w: cmd.OutOrStdout()}
	p.line("Checkpoint %s of topology %s (%s)", e.ref, m.Topology, e.marks())
	p.line("%staken %s UTC by isobar %s, run %s", indent, moment(m.UnixMilli), m.Engine, m.RunID)
	p.took(m)
	p.line("%s%d key groups, graph %s", indent, m.KeyGroups, m.Graph)
	p.line("%s%s, %d bytes", indent, e.ref.Manifest, e.ref.Size)
	files := filesOf(m)
	var shared string
	var unknown error
	if with.shared {
		shared, unknown = a.shared(cmd, e, files)
	}
	p.line("%s%d files, %s%s", indent, len(files), bytesOf(total(files, nil)), shared)
	p.line("Region %s", m.Region)
	for _, id := range slices.Sorted(maps.Keys(m.Components)) {
		c := m.Components[id]
		kind := ""
		if c.Keyed {
			kind = ", keyed"
		}
		p.line("%s%s: tasks %d%s", indent, id, c.Parallelism, kind)
	}
	if err := a.showStates(cmd, &p, m, with.count); err != nil {
		return err
	}
	tasks := slices.SortedFunc(slices.Values(m.Tasks), func(a, b checkpoint.TaskSnapshot) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Index, b.Index))
	})
	for _, t := range tasks {
		p.task(t)
	}
	return errors.Join(p.err, unknown)
}

// shared says how much of the files the kept checkpoint before and the one after name
// too. It says it of those that can be read, also if it returns an error.
func (a *archive) shared(cmd *cobra.Command, e entry, files map[string]int64) (text string, err error) {
	own := slices.DeleteFunc(a.entries(), func(other entry) bool { return other.region != e.region })
	at := slices.IndexFunc(own, func(other entry) bool { return other.ref == e.ref })
	for _, i := range []int{at - 1, at + 1} {
		if i < 0 || i >= len(own) {
			continue
		}
		m, failed := a.manifest(cmd.Context(), own[i].ref)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("what is shared with checkpoint %s is not known: %w", own[i].ref, failed))
			continue
		}
		text += fmt.Sprintf(", %s shared with %s", size(total(files, nil)-total(files, filesOf(m))), own[i].ref)
	}
	return text, err
}

// showStates prints the keyed states of all components.
func (a *archive) showStates(cmd *cobra.Command, p *printer, m *checkpoint.Manifest, count bool) error {
	c, err := inspect.New(a.store, m)
	var states []*inspect.State
	if err == nil {
		states, err = c.States()
	}
	if err != nil && !count { // the rest can be shown
		p.line("States: %v", err)
		return nil
	}
	for _, s := range states {
		text := fmt.Sprintf("State %s of %s: %s of %s, version %d", s.Meta.Name, s.Component, s.Meta.Kind, s.Meta.Codec, s.Meta.Version)
		if count {
			n, err := s.Count(cmd.Context(), inspect.Prefix{})
			if err != nil {
				return err
			}
			text += ", " + sayCounts(s, n)
		}
		p.line("%s", text)
	}
	return err
}

// sayCounts says how much a state holds.
func sayCounts(s *inspect.State, n inspect.Counts) string {
	switch s.Kind() {
	case "timer":
		return fmt.Sprintf("%d timers", n.Entries)
	case "map", "list":
		return fmt.Sprintf("%d keys, %d entries", n.Keys, n.Entries)
	}
	return fmt.Sprintf("%d keys", n.Keys)
}

// indent stands before what belongs to a task.
const indent = "    "

func (p *printer) task(t checkpoint.TaskSnapshot) {
	finished := ""
	if t.Finished {
		finished = ", all input read"
	}
	p.line("Task %s/%d%s", t.Component, t.Index, finished)
	p.line("%stook %s", indent, tookOf(t.Took))
	for _, pos := range t.Positions {
		p.line("%sposition %s: %s", indent, printable([]byte(pos.Partition)), printable(pos.Data))
	}
	for _, f := range t.Files {
		kind := "delta"
		if f.Base {
			kind = "base"
		}
		p.line("%s%s %d.%d, key groups %d-%d, %d bytes", indent, kind, f.Generation, f.Batch, f.GroupFrom, f.GroupTo-1, f.Size)
		p.line("%s%s%s", indent, indent, f.Name)
	}
	for _, h := range t.Handles {
		p.line("%stransaction %d.%d: %s", indent, h.Generation, h.Batch, handleOf(h.Data))
	}
}
