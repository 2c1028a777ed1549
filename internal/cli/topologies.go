package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

func newTopologies(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the topologies of a cluster.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				all, err := request[[]cluster.Summary](ctx, c, cluster.VerbList, nil)
				if err != nil {
					return err
				}
				slices.SortFunc(all, func(a, b cluster.Summary) int { return strings.Compare(a.Name, b.Name) })
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), all)
				}
				return printTopologies(cmd.OutOrStdout(), all)
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

// How wide columns of names may become, so that all of a list fits.
const (
	nameColumns  = 20
	ownerColumns = 10
)

func printTopologies(w io.Writer, all []cluster.Summary) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No topologies running.")
		return err
	}
	const fixed = len("    Num_tasks  Num_workers  Uptime_secs    ")
	name, status, owner := len("Topology_name"), len("Status"), len("Owner")
	for _, s := range all {
		name = max(name, min(utf8.RuneCountInString(s.Name), nameColumns))
		status = max(status, len(s.Status))
		owner = max(owner, min(utf8.RuneCountInString(s.Owner), ownerColumns))
	}
	t := newTable(w)
	t.row("Topology_name", "Status", "Num_tasks", "Num_workers", "Uptime_secs", "Topology_Id", "Owner")
	for _, s := range all {
		t.row(clip(s.Name, name), string(s.Status), fmt.Sprint(s.Tasks), fmt.Sprint(s.Workers), fmt.Sprint(s.UptimeSecs),
			clipFront(s.ID, columns-fixed-name-status-owner), clip(s.Owner, owner))
	}
	return t.end()
}

// clipFront shortens a text to its last n characters, of which the first says so.
func clipFront(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "…" + string(r[len(r)-n+1:])
}

func newStatus(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show how a topology is: its checkpoints, components and processes.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				is, err := detail(ctx, c, args[0])
				if err != nil {
					return err
				}
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), is)
				}
				return printStatus(cmd.OutOrStdout(), is)
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func printStatus(w io.Writer, d cluster.Detail) error {
	p := printer{w: w}
	t, run := d.Topology, d.Run
	p.line("Topology %s is %s", t.Name, t.Status)
	p.line("%sid %s, owner %s, submitted %s UTC", indent, t.ID, t.Owner, moment(t.Launched.UnixMilli()))
	p.line("%s%s", indent, versionOf(d))
	if run != nil {
		p.line("%s%s", indent, runOf(d))
	}
	for _, why := range reasons(d) {
		for i, line := range wrap(why, columns-2*len(indent)) {
			p.line("%s%s%s", indent, strings.Repeat(indent, min(i, 1)), line)
		}
	}
	if p.err != nil {
		return p.err
	}
	tab := newTable(w)
	if run != nil {
		tab.regions(run.Regions)
		tab.components(run.Components)
	}
	tab.processes(d)
	return tab.end()
}

func versionOf(d cluster.Detail) string {
	v := d.Topology.Version
	tasks := 0
	for _, c := range v.Components {
		tasks += c.Tasks
	}
	connected := 0
	if d.Run != nil && d.Run.Epoch == v.Epoch {
		connected = len(d.Run.Workers)
	}
	text := fmt.Sprintf("epoch %d, program %.12s, %d tasks, %d of %d workers", v.Epoch, v.Binary.SHA256, tasks, connected, v.Workers)
	if d.Topology.Step != "" {
		text += ", step " + string(d.Topology.Step)
	}
	return text
}

// runOf says how the run is, as far as its topology master has told.
func runOf(d cluster.Detail) string {
	r := d.Run
	text := fmt.Sprintf("%s, up %s, %d checkpoints, %d restarts, heard of %.1f s ago",
		r.Phase, time.Duration(r.UptimeSecs)*time.Second, r.Committed, r.Restarts, d.RunAgeSecs)
	if r.Epoch != d.Topology.Version.Epoch {
		text = fmt.Sprintf("epoch %d was last: %s", r.Epoch, text)
	}
	return text
}

// reasons are what is the matter with a topology, if something is.
func reasons(d cluster.Detail) (all []string) {
	if d.Topology.Error != "" {
		all = append(all, "error: "+d.Topology.Error)
	}
	if d.Run != nil && d.Run.Error != "" && d.Run.Error != d.Topology.Error {
		all = append(all, "error of the run: "+d.Run.Error)
	}
	if d.Run != nil && len(d.Run.Unlinked) > 0 {
		all = append(all, "note: "+d.Run.SaysUnlinked())
	}
	for _, c := range d.Conditions {
		all = append(all, "note: "+c)
	}
	if d.Run != nil && len(d.Run.Errors) > 0 {
		all = append(all, "components have reported errors, see: isobar get-errors "+d.Topology.Name)
	}
	return all
}

func (t *table) regions(all []cluster.RegionState) {
	if len(all) == 0 {
		return
	}
	t.row("REGION", "CHECKPOINT", "GENERATION", "STATE", "RESTARTS", "NOTES")
	for _, r := range all {
		state := "restarting"
		if r.Over {
			state = "over"
		}
		switch {
		case r.Running && r.Idle:
			state = "idle"
		case r.Running:
			state = "running"
		}
		last := r.Last
		if last == "" {
			last = "-"
		}
		t.row(clip(r.Name, nameColumns), last, fmt.Sprint(r.Generation), state, fmt.Sprint(r.Restarts), strings.Join(r.Degraded, "; "))
	}
	t.row()
}

func (t *table) components(all []cluster.ComponentCounts) {
	if len(all) == 0 {
		return
	}
	t.row("COMPONENT", "TASKS", "EMITTED", "EXECUTED")
	for _, c := range all {
		t.row(clip(c.ID, 2*nameColumns), fmt.Sprint(c.Tasks), app.Count(c.Emitted), app.Count(c.Executed))
	}
	t.row()
}

// processes shows those that are assigned, and those that run besides.
func (t *table) processes(d cluster.Detail) {
	left := slices.Clone(d.Processes)
	// take returns how the supervisor says that a process of the assignment is.
	take := func(role cluster.Role, slot cluster.Slot) (p cluster.ProcessStatus, ok bool) {
		i := slices.IndexFunc(left, func(p cluster.ProcessStatus) bool {
			return p.Role == role && p.Supervisor == slot.Supervisor && p.Port == slot.Port && p.Epoch == d.Assignment.Version.Epoch
		})
		if i < 0 {
			return p, false
		}
		p = left[i]
		left = slices.Delete(left, i, i+1)
		return p, true
	}
	if d.Assignment == nil && len(left) == 0 {
		return
	}
	t.row("PROCESS", "SUPERVISOR", "PORT", "TASKS", "PID", "STATE", "RESTARTS", "LAST END")
	if a := d.Assignment; a != nil {
		p, ok := take(cluster.RoleMaster, cluster.Slot{Supervisor: a.Master})
		t.process(cluster.RoleMaster, cluster.Slot{Supervisor: a.Master}, "-", stateOf(p, ok), p)
		for _, w := range a.Workers {
			p, ok := take(cluster.RoleWorker, w.Slot)
			state := stateOf(p, ok)
			if d.Run != nil && d.Run.Epoch == a.Version.Epoch && slices.Contains(d.Run.Workers, w.ID()) {
				state = "connected"
			}
			t.process(cluster.RoleWorker, w.Slot, fmt.Sprint(len(w.Tasks)), state, p)
		}
	}
	for _, p := range left {
		t.process(p.Role, cluster.Slot{Supervisor: p.Supervisor, Port: p.Port}, "-", fmt.Sprintf("%s, epoch %d", stateOf(p, true), p.Epoch), p)
	}
}

func stateOf(p cluster.ProcessStatus, known bool) string {
	switch {
	case !known:
		return "not started"
	case p.Running:
		return "running"
	case p.PID == 0 && p.Exit == "":
		return "starting"
	}
	return "ended"
}

func (t *table) process(role cluster.Role, slot cluster.Slot, tasks, state string, p cluster.ProcessStatus) {
	number := func(n int) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	t.row(string(role), clip(slot.Supervisor, nameColumns), number(slot.Port), tasks, number(p.PID), state, fmt.Sprint(p.Restarts), oneLine(p.Exit))
}

// oneLine makes one line of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
