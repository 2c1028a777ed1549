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
	Processes  []processEnd                   `json:"processes"` // that did not end in order
}

// processEnd is how a process has ended last, which was started again.
type processEnd struct {
	Process    string `json:"process"` // master or worker, and where
	Supervisor string `json:"supervisor"`
	Restarts   int    `json:"restarts"`
	End        string `json:"end"`
}

func newGetErrors(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "get-errors NAME",
		Short: "Show the latest error of each component, and how processes have crashed.",
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
	l := latestErrors{Topology: d.Topology.Name, Error: d.Topology.Error, Components: map[string]cluster.ErrorReport{}, Processes: []processEnd{}}
	for _, p := range d.Processes {
		if p.Restarts > 0 && p.Exit != "" && p.Epoch == d.Topology.Version.Epoch {
			name := string(p.Role)
			if p.Role == cluster.RoleWorker {
				name = fmt.Sprintf("worker %d", p.Port)
			}
			l.Processes = append(l.Processes, processEnd{name, p.Supervisor, p.Restarts, oneLine(p.Exit)})
		}
	}
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
	if l.Error == "" && len(l.Components)+len(l.Processes) == 0 {
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
	for _, e := range l.Processes {
		say(fmt.Sprintf("%s on supervisor %s, started again %d times; see: isobar logs %s", e.Process, clip(e.Supervisor, nameColumns), e.Restarts, l.Topology), "it ended last with: "+e.End)
	}
	return p.err
}
