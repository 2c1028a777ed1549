package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

func newSupervisors(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "supervisors",
		Short: "List the supervisors of a cluster, and what is wrong with them.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				all, err := request[[]cluster.Supervisor](ctx, c, cluster.VerbSupervisors, nil)
				if err != nil {
					return err
				}
				slices.SortFunc(all, func(a, b cluster.Supervisor) int { return strings.Compare(a.ID, b.ID) })
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), all)
				}
				return printSupervisors(cmd.OutOrStdout(), all)
			})
		},
	}
	r.addFlagsJSON(cmd)
	cmd.AddCommand(newForget(d))
	return cmd
}

func newForget(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "forget SUPERVISOR",
		Short: "Forget a supervisor that has died and will not come back.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Call(ctx, cluster.VerbForget, cluster.Named{Name: args[0]}, nil); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Forgot supervisor: %s\n", args[0])
				return err
			})
		},
	}
	r.addFlags(cmd)
	return cmd
}

func printSupervisors(w io.Writer, all []cluster.Supervisor) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No supervisors: start 'isobar supervisor' on each machine that is to run topologies.")
		return err
	}
	t := newTable(w)
	t.row("SUPERVISOR", "HOST", "SLOTS", "USED", "CPU", "MEMORY", "VERSION", "STARTED (UTC)", "NOTES")
	for _, s := range all {
		var notes []string
		if s.Unhealthy != "" {
			notes = append(notes, oneLine(s.Unhealthy))
		}
		for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
			notes = append(notes, name+"="+s.Labels[name])
		}
		t.row(clip(s.ID, nameColumns), clip(s.Host, nameColumns), fmt.Sprint(len(s.Ports)), fmt.Sprint(len(s.Used)),
			fmt.Sprintf("%d%%", s.CPU), fmt.Sprintf("%d MB", s.MemoryMB), s.Version, moment(s.Started.UnixMilli()), strings.Join(notes, "; "))
	}
	return t.end()
}

func newHealth(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Show how a cluster is; the exit code is 1 if it has problems.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				h, err := request[cluster.Health](ctx, c, cluster.VerbHealth, nil)
				if err != nil {
					return err
				}
				if r.asJSON {
					err = printJSON(cmd.OutOrStdout(), h)
				} else {
					err = printHealth(cmd.OutOrStdout(), h)
				}
				if err == nil && len(h.Problems) > 0 {
					err = errors.New("the cluster has problems")
				}
				return err
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func printHealth(w io.Writer, h cluster.Health) error {
	p := printer{w: w}
	p.line("Nimbus %s leads. Supervisors: %d. Slots used: %d of %d. Topologies: %d.", h.Leader, h.Supervisors, h.UsedSlots, h.Slots, h.Topologies)
	if len(h.Problems) == 0 {
		p.line("No problems.")
	}
	for _, problem := range h.Problems {
		for i, line := range wrap(problem, columns-len(indent)) {
			p.line("%s%s", []string{"  - ", indent}[min(i, 1)], line)
		}
	}
	return p.err
}
