package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
)

// verified is what verify says of an object, as --json prints it.
type verified struct {
	Object      string   `json:"object"`
	Bytes       int64    `json:"bytes"`
	Checkpoints []string `json:"checkpoints"`
	Error       string   `json:"error,omitempty"`

	of []checkpoint.Ref
}

func newVerify() *cobra.Command {
	var asJSON, all bool
	var l location
	cmd := &cobra.Command{
		Use:   "verify STORE [TOPOLOGY] [CHECKPOINT]",
		Short: "Read everything that a checkpoint names and say what is damaged or missing.",
		Long: "Read everything that a checkpoint names, without CHECKPOINT the current one of each region,\n" +
			"and say what is damaged or missing: sizes, checksums, whether files are tables of state and\n" +
			"their rows belong to the task. The exit code is 3 if anything is." + storeHelp,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, topology, rest, err := storeArgs(args, 1)
			if err != nil {
				return err
			}
			if all && len(rest) > 0 {
				return usageError{errors.New("--all and a checkpoint exclude each other")}
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				chosen := a.entries()
				if !all || len(chosen) == 0 {
					if chosen, err = a.choose(optional(rest)); err != nil {
						return err
					}
				}
				return a.verify(cmd, chosen, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: every object, and what is wrong with it")
	cmd.Flags().BoolVar(&all, "all", false, "verify every checkpoint that is kept")
	l.addFlags(cmd)
	return cmd
}

func (a *archive) verify(cmd *cobra.Command, chosen []entry, asJSON bool) error {
	var refs []checkpoint.Ref
	for _, e := range chosen {
		refs = append(refs, e.ref)
	}
	found := []verified{}
	err := inspect.Verify(cmd.Context(), a.store, refs, func(f inspect.Finding) {
		v := verified{Object: f.Object, Bytes: f.Size, of: f.Of}
		for _, ref := range f.Of {
			v.Checkpoints = append(v.Checkpoints, ref.String())
		}
		if f.Err != nil {
			v.Error = f.Err.Error()
		}
		found = append(found, v)
	})
	if err != nil {
		return err
	}
	gone, err := a.letGo(cmd, found)
	if err != nil {
		return err
	}
	newest, err := a.checkNewest(cmd)
	if err != nil {
		return err
	}
	if newest != nil {
		found = append(found, verified{Object: "head", Checkpoints: []string{}, Error: newest.Error()})
	}
	bad := slices.DeleteFunc(slices.Clone(found), func(v verified) bool { return v.Error == "" })
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), found)
	} else {
		err = a.printVerified(cmd, chosen, gone, found, bad)
	}
	if len(bad) > 0 {
		err = errors.Join(err, fmt.Errorf("topology %q: %w", a.topology, errDamaged))
	}
	return err
}

// letGo forgets what is wrong with checkpoints that the head does not keep any more: who
// runs the topology may delete them at any time. It returns their names.
func (a *archive) letGo(cmd *cobra.Command, found []verified) (gone []string, err error) {
	head, err := a.readHead(cmd.Context())
	if err != nil {
		return nil, err
	}
	for i, v := range found {
		if v.Error == "" || slices.ContainsFunc(v.of, func(ref checkpoint.Ref) bool { return keeps(head, ref) }) {
			continue
		}
		found[i].Error = ""
		for _, name := range v.Checkpoints {
			if !slices.Contains(gone, name) {
				gone = append(gone, name)
			}
		}
	}
	return gone, nil
}

// checkNewest tells whether an older head was put back. A head that moves meanwhile is
// none.
func (a *archive) checkNewest(cmd *cobra.Command) (old, err error) {
	for {
		head, err := a.readHead(cmd.Context())
		if err != nil {
			return nil, err
		}
		var objects []checkpoint.ObjectInfo
		for o, err := range a.store.List(cmd.Context(), "") {
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
		old := checkpoint.CheckNewest(head, objects)
		now, err := a.readHead(cmd.Context())
		if err != nil {
			return nil, err
		}
		if old == nil || now.Writer == head.Writer {
			return old, nil
		}
	}
}

func (a *archive) printVerified(cmd *cobra.Command, chosen []entry, gone []string, found, bad []verified) error {
	p := printer{w: cmd.OutOrStdout()}
	for _, v := range bad {
		// Whole, however long it is: what is wrong must be known.
		if _, err := fmt.Fprintf(p.w, "BAD %s\n", v.Object); err != nil {
			return err
		}
		for _, line := range wrap(v.Error, columns-len(indent)) {
			p.line("%s%s", indent, line)
		}
		if len(v.Checkpoints) > 0 {
			p.line("%sof checkpoint %s", indent, strings.Join(v.Checkpoints, ", "))
		}
	}
	if len(gone) > 0 {
		p.line("Let go while it was verified: %s", strings.Join(gone, ", "))
	}
	var bytes int64
	for _, v := range found {
		bytes += v.Bytes
	}
	result := "All is right"
	if len(bad) > 0 {
		result = fmt.Sprintf("%d damaged or missing", len(bad))
	}
	p.line("%s: %d objects, %s, of topology %s, checkpoint %s", result, len(found), bytesOf(bytes), a.topology, names(chosen))
	return p.err
}
