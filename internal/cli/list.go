package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

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
	Bytes      int64                 `json:"bytes"`    // of state files and the manifest
	NewBytes   int64                 `json:"newBytes"` // of those that the one before in the list does not name
	Manifest   string                `json:"manifest"`
	Status     string                `json:"status"` // current, retained, superseded, or pinned if nothing else
	Pinned     bool                  `json:"pinned"`
	Savepoints []string              `json:"savepoints,omitempty"`
	Ended      bool                  `json:"ended"`
	Unsettled  bool                  `json:"unsettled"`       // undone before all that it lists was known to be published
	Error      string                `json:"error,omitempty"` // why the manifest cannot be read

	marks string
}

func newList() *cobra.Command {
	var asJSON bool
	var l location
	cmd := &cobra.Command{
		Use:   "list STORE [TOPOLOGY]",
		Short: "List the checkpoints that can be gone back to.",
		Long: "List the checkpoints that can be gone back to, of one topology or of all. NEW is what a\n" +
			"checkpoint takes that the one before it does not." + storeHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			topology := ""
			if len(args) > 1 {
				topology = args[1]
			}
			archives, err := l.openAll(cmd.Context(), args[0], topology)
			if err != nil {
				return err
			}
			lines := []listed{}
			var errs []error
			for _, a := range archives {
				own, err := a.list(cmd)
				lines = append(lines, own...)
				errs = append(errs, err)
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), lines)
			} else {
				err = printList(cmd.OutOrStdout(), archives, lines)
			}
			return errors.Join(append(errs, err, closeAll(archives))...)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

// list returns a line of each checkpoint. They come with an error too: that of manifests
// that cannot be read.
func (a *archive) list(cmd *cobra.Command) (lines []listed, err error) {
	var errs []error
	var before map[string]int64
	region := ""
	for _, e := range a.entries() {
		if e.region != region {
			before, region = nil, e.region
		}
		l := listed{
			Topology: a.topology, RunID: a.head.RunID, Region: e.region,
			Checkpoint: e.ref.String(), Generation: e.ref.Generation, Batch: e.ref.Batch,
			UnixMilli: e.ref.UnixMilli, Manifest: e.ref.Manifest, Bytes: e.ref.Size, NewBytes: e.ref.Size,
			Status: e.status, Pinned: len(e.pins) > 0, Ended: e.ref.Ended, Unsettled: e.unsettled,
			Savepoints: slices.DeleteFunc(slices.Clone(e.pins), func(name string) bool { return name == "" }),
			marks:      e.marks(),
		}
		m, err := a.manifest(cmd.Context(), e.ref)
		if errors.Is(err, checkpoint.ErrNotFound) && slices.ContainsFunc(a.gone(cmd.Context()), func(g entry) bool { return g.ref == e.ref }) {
			continue // the topology runs
		}
		if err != nil {
			l.Error = err.Error()
			l.marks += ", unreadable"
			errs = append(errs, err)
		} else {
			files := filesOf(m)
			l.Tasks = len(m.Tasks)
			l.Bytes += total(files, nil)
			l.NewBytes += total(files, before)
			before = files
		}
		lines = append(lines, l)
	}
	return lines, errors.Join(errs...)
}

// filesOf returns the files that a manifest names, each once, with their sizes.
func filesOf(m *checkpoint.Manifest) map[string]int64 {
	files := map[string]int64{}
	for _, t := range m.Tasks {
		for _, f := range t.Files {
			files[f.Name] = f.Size
		}
	}
	return files
}

// total returns the size of the files that are not among known.
func total(files, known map[string]int64) (n int64) {
	for name, size := range files {
		if _, ok := known[name]; !ok {
			n += size
		}
	}
	return n
}

func printList(w io.Writer, archives []*archive, lines []listed) error {
	t := newTable(w)
	for i, a := range archives {
		if i > 0 {
			t.row()
		}
		t.row(fmt.Sprintf("Topology %s, generation %d, run %s", clip(a.topology, 32), a.head.Generation, clip(a.head.RunID, 32)))
		own := slices.DeleteFunc(slices.Clone(lines), func(l listed) bool { return l.Topology != a.topology })
		if len(own) == 0 {
			t.row("No checkpoint was committed yet.")
			continue
		}
		t.row("CHECKPOINT", "TIME (UTC)", "REGION", "TASKS", "BYTES", "NEW", "NOTES")
		for _, l := range own {
			t.row(l.Checkpoint, moment(l.UnixMilli), clip(l.Region, 16), fmt.Sprint(l.Tasks), size(l.Bytes), size(l.NewBytes), l.marks)
		}
	}
	return t.end()
}

// bytesOf shows a number of bytes in words.
func bytesOf(n int64) string {
	if n < sizeExact {
		return fmt.Sprintf("%d bytes", n)
	}
	return size(n)
}

// sizeExact is from where on sizes are rounded.
const sizeExact = 10_000

// size shows a number of bytes, in a column of a table.
func size(n int64) string {
	if n < sizeExact {
		return fmt.Sprintf("%d", n)
	}
	v, units := float64(n), []string{"kB", "MB", "GB", "TB", "PB", "EB"}
	for v /= 1000; v >= 1000 && len(units) > 1; v /= 1000 {
		units = units[1:]
	}
	return fmt.Sprintf("%.1f %s", v, units[0])
}
