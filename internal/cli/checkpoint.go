package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
)

// listed is a line of list, as --json prints it.
type listed struct {
	Topology   string                `json:"topology"`
	RunID      string                `json:"runId"`
	Region     string                `json:"region"`
	Checkpoint string                `json:"checkpoint"` // generation.batch
	Generation checkpoint.Generation `json:"generation"`
	Batch      checkpoint.BatchID    `json:"batch"`
	UnixMilli  int64                 `json:"unixMilli"`
	Tasks      int                   `json:"tasks"`
	Bytes      int64                 `json:"bytes"` // of state files and the manifest
	Manifest   string                `json:"manifest"`
	Current    bool                  `json:"current"`
	Pinned     bool                  `json:"pinned"`
	Ended      bool                  `json:"ended"`
	Error      string                `json:"error,omitempty"` // why the manifest cannot be read

	marks string
}

const storeHelp = `
STORE is a data folder, its folder of checkpoints, or the file:// URL of one.
TOPOLOGY may be left out if there is only one.`

func newList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list STORE [TOPOLOGY]",
		Short: "List the checkpoints that can be gone back to.",
		Long:  "List the checkpoints that can be gone back to, of one topology or of all." + storeHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			archives, err := openArchives(cmd.Context(), args[0], argument(args, 1))
			if err != nil {
				return err
			}
			lines := []listed{}
			var errs []error
			for _, a := range archives {
				for _, e := range a.entries() {
					l, err := a.list(cmd, e)
					lines = append(lines, l)
					errs = append(errs, err)
				}
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), lines)
			} else {
				err = printList(cmd.OutOrStdout(), archives, lines)
			}
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func argument(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// list returns the line of a checkpoint. A line comes with an error too: that of a
// manifest that cannot be read.
func (a archive) list(cmd *cobra.Command, e entry) (listed, error) {
	l := listed{
		Topology: a.topology, RunID: a.head.RunID, Region: e.region,
		Checkpoint: e.ref.String(), Generation: e.ref.Generation, Batch: e.ref.Batch,
		UnixMilli: e.ref.UnixMilli, Manifest: e.ref.Manifest, Bytes: e.ref.Size,
		Current: e.current, Pinned: e.pinned, Ended: e.ref.Ended,
		marks: e.marks(),
	}
	m, err := checkpoint.ReadManifest(cmd.Context(), a.store, e.ref)
	if err != nil {
		l.Error = err.Error()
		l.marks = strings.TrimPrefix(l.marks+", unreadable", ", ")
		return l, fmt.Errorf("topology %q: %w", a.topology, err)
	}
	l.Region, l.Tasks = m.Region, len(m.Tasks)
	seen := map[string]bool{}
	for _, t := range m.Tasks {
		for _, f := range t.Files {
			if !seen[f.Name] {
				seen[f.Name] = true
				l.Bytes += f.Size
			}
		}
	}
	return l, nil
}

func printList(w io.Writer, archives []archive, lines []listed) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, a := range archives {
		if i > 0 {
			fmt.Fprintln(tw)
		}
		fmt.Fprintf(tw, "Topology %s, generation %d, run %s\n", clip(a.topology, 32), a.head.Generation, clip(a.head.RunID, 32))
		own := slices.DeleteFunc(slices.Clone(lines), func(l listed) bool { return l.Topology != a.topology })
		if len(own) == 0 {
			fmt.Fprintln(tw, "No checkpoint was committed yet.")
			continue
		}
		fmt.Fprintln(tw, "CHECKPOINT\tTIME (UTC)\tREGION\tTASKS\tBYTES\tNOTES")
		for _, l := range own {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%s\n", l.Checkpoint, moment(l.UnixMilli), clip(l.Region, 16), l.Tasks, l.Bytes, l.marks)
		}
	}
	return tw.Flush()
}

var checkpointName = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

func newShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show STORE [TOPOLOGY] [GENERATION.BATCH]",
		Short: "Show what a checkpoint holds: positions, state files, open transactions.",
		Long: "Show what a checkpoint holds: positions, state files, open transactions. Without\n" +
			"GENERATION.BATCH it is the current one of each region." + storeHelp,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			topology, name := argument(args, 1), argument(args, 2)
			if len(args) == 2 && checkpointName.MatchString(topology) {
				topology, name = "", topology
			}
			a, err := openOne(cmd.Context(), args[0], topology)
			if err != nil {
				return err
			}
			chosen, err := a.choose(name)
			if err != nil {
				return err
			}
			manifests := make([]*checkpoint.Manifest, len(chosen))
			for i, e := range chosen {
				if manifests[i], err = checkpoint.ReadManifest(cmd.Context(), a.store, e.ref); err != nil {
					return fmt.Errorf("topology %q: %w", a.topology, err)
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), manifests)
			}
			for i, m := range manifests {
				if err := printManifest(cmd.OutOrStdout(), chosen[i], m); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the manifests as JSON")
	return cmd
}

// choose returns the checkpoints of a name, or the current ones.
func (a archive) choose(name string) ([]entry, error) {
	all := a.entries()
	chosen := slices.DeleteFunc(slices.Clone(all), func(e entry) bool {
		return name == "" && !e.current || name != "" && e.ref.String() != name
	})
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("topology %q has committed no checkpoint yet", a.topology)
	case len(chosen) == 0:
		var names []string
		for _, e := range all {
			names = append(names, e.ref.String())
		}
		return nil, fmt.Errorf("topology %q has no checkpoint %q, there are %s", a.topology, name, strings.Join(names, ", "))
	}
	return chosen, nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// moment formats a time in UTC.
func moment(unixMilli int64) string {
	return time.UnixMilli(unixMilli).UTC().Format(time.DateTime)
}

// clip shortens a text to at most n characters, of which the last says so.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
