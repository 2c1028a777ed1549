package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

// latestErrors are the last errors of a topology, as --json prints them.
type latestErrors struct {
	Topology   string                         `json:"topology"`
	Error      string                         `json:"error,omitempty"` // why it has failed
	Components map[string]cluster.ErrorReport `json:"components"`
}

func newGetErrors(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "get-errors NAME",
		Short: "Show the latest error of each component of a topology.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				is, err := detail(ctx, c, args[0])
				if err != nil {
					return err
				}
				latest := latestOf(is)
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), latest)
				}
				return latest.print(cmd.OutOrStdout())
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func latestOf(d cluster.Detail) latestErrors {
	l := latestErrors{Topology: d.Topology.Name, Error: d.Topology.Error, Components: map[string]cluster.ErrorReport{}}
	if d.Run == nil {
		return l
	}
	l.Error = cmp.Or(l.Error, d.Run.Error)
	for _, e := range d.Run.Errors {
		if before, ok := l.Components[e.Component]; !ok || !e.Time.Before(before.Time) {
			l.Components[e.Component] = e
		}
	}
	return l
}

func (l latestErrors) print(w io.Writer) error {
	p := printer{w: w}
	if l.Error == "" && len(l.Components) == 0 {
		p.line("Topology %s has no errors.", l.Topology)
	}
	say := func(head, text string) {
		p.line("%s", head)
		for _, line := range wrap(text, columns-len(indent)) {
			p.line("%s%s", indent, line)
		}
	}
	if l.Error != "" {
		say("Topology "+l.Topology, l.Error)
	}
	for _, id := range slices.Sorted(maps.Keys(l.Components)) {
		e := l.Components[id]
		say(fmt.Sprintf("%s, task %d, %s UTC", id, e.Task, moment(e.Time.UnixMilli())), e.Error)
	}
	return p.err
}
