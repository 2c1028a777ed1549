package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

// sample is what a topology master has told at one moment.
type sample struct {
	at     time.Time // of the clock here
	detail cluster.Detail
}

// pace is how fast a component is, as --json prints it.
type pace struct {
	Component string `json:"component"`
	Tasks     int    `json:"tasks"`
	Emitted   uint64 `json:"emitted"` // of this run
	Executed  uint64 `json:"executed"`
	EmittedS  perSec `json:"emittedPerSec"`
	ExecutedS perSec `json:"executedPerSec"`
}

// perSec is a number of tuples a second, below 0 if it is not known yet.
type perSec float64

// MarshalJSON implements json.Marshaler: what is not known is null.
func (n perSec) MarshalJSON() ([]byte, error) {
	if n < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// String shows it as a column does.
func (n perSec) String() string {
	switch {
	case n < 0:
		return "-"
	case n < 10:
		return fmt.Sprintf("%.1f", float64(n))
	}
	return app.Count(uint64(n + 0.5))
}

// report is what a look has found out, as --json prints it.
type report struct {
	Time        time.Time      `json:"time"`
	Topology    string         `json:"topology"`
	Status      cluster.Status `json:"status"`
	Phase       cluster.Phase  `json:"phase,omitempty"`
	Workers     int            `json:"workers"`
	Checkpoints int            `json:"checkpoints"`
	Restarts    int            `json:"restarts"`
	AgeSecs     float64        `json:"ageSecs"` // of what the topology master has told
	Components  []pace         `json:"components"`
}

func newMonitor(d dial) *cobra.Command {
	r := reach{dial: d}
	var every, count int
	var components []string
	cmd := &cobra.Command{
		Use:   "monitor NAME",
		Short: "Show how fast the components of a topology are, again and again.",
		Long: "Show how fast the components of a topology are, again and again, until interrupted or until the\n" +
			"topology has ended. On a terminal the table is drawn anew; elsewhere lines follow each other.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 1 || count < 0 {
				return usageError{fmt.Errorf("--interval %d, --count %d: the interval must be 1 second or more, the count 0 or more", every, count)}
			}
			m := &monitor{name: args[0], only: components, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), asJSON: r.asJSON}
			file, isFile := cmd.OutOrStdout().(*os.File)
			m.terminal = isFile && term.IsTerminal(int(file.Fd()))
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				return unlessInterrupted(ctx, m.run(ctx, c, time.Duration(every)*time.Second, count))
			})
		},
	}
	cmd.Flags().IntVarP(&every, "interval", "i", 4, "look each `SECS`")
	cmd.Flags().IntVar(&count, "count", 0, "end after `N` reports; 0: do not")
	cmd.Flags().StringArrayVarP(&components, "component", "m", nil, "show only this `COMPONENT` (repeatable)")
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print a line of JSON for each report")
	return cmd
}

// monitor shows reports of a topology.
type monitor struct {
	name     string
	only     []string
	out      io.Writer
	errOut   io.Writer
	asJSON   bool
	terminal bool

	last  *sample
	paces []pace
	drawn int // lines of the table on the terminal
	begun bool
}

// run shows a report each interval: count of them, or until the topology has ended. The
// first look shows nothing, there is nothing yet to compare it with.
func (m *monitor) run(ctx context.Context, c *client.Client, every time.Duration, count int) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		d, err := detail(ctx, c, m.name)
		switch {
		case err != nil && n > 0 && over(ctx, c, m.name):
			return sayOver(m.errOut, m.name)
		case err != nil:
			return err
		}
		if err := m.check(d); err != nil {
			return err
		}
		age := time.Duration(d.RunAgeSecs * float64(time.Second))
		m.see(sample{time.Now().Add(-age), d})
		ended := d.Topology.Status == cluster.Finished || d.Topology.Status == cluster.Failed
		if n > 0 || ended {
			if err := m.show(m.report(d, time.Now())); err != nil {
				return err
			}
		}
		switch {
		case d.Topology.Status == cluster.Failed:
			return fmt.Errorf("topology %s has failed: %s", m.name, d.Topology.Error)
		case ended, count > 0 && n == count:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// check refuses components that are not there.
func (m *monitor) check(d cluster.Detail) error {
	for _, id := range m.only {
		all := d.Topology.Version.Components
		if !slices.ContainsFunc(all, func(c cluster.ComponentSpec) bool { return c.ID == id }) {
			var names []string
			for _, c := range all {
				names = append(names, c.ID)
			}
			return fmt.Errorf("topology %s has no component %q, it has %s", m.name, id, strings.Join(names, ", "))
		}
	}
	return nil
}

// see takes in a sample. One that says nothing new changes nothing.
func (m *monitor) see(s sample) {
	run := s.detail.Run
	if run == nil || m.last != nil && sameRun(m.last.detail.Run, run) && m.last.detail.Run.Beat == run.Beat {
		return
	}
	m.paces = paces(m.last, s)
	m.last = &s
}

func sameRun(a, b *cluster.RunStatus) bool {
	return a.Epoch == b.Epoch && a.Incarnation == b.Incarnation
}

// paces compares two samples. Counts of another run, or counts that went back, cannot be
// compared.
func paces(before *sample, now sample) []pace {
	all := []pace{}
	for _, c := range now.detail.Run.Components {
		p := pace{Component: c.ID, Tasks: c.Tasks, Emitted: c.Emitted, Executed: c.Executed, EmittedS: -1, ExecutedS: -1}
		if before != nil && sameRun(before.detail.Run, now.detail.Run) {
			secs := now.at.Sub(before.at).Seconds()
			old := before.detail.Run.Components
			i := slices.IndexFunc(old, func(o cluster.ComponentCounts) bool { return o.ID == c.ID })
			if i >= 0 && secs > 0 && old[i].Emitted <= c.Emitted && old[i].Executed <= c.Executed {
				p.EmittedS = perSec(float64(c.Emitted-old[i].Emitted) / secs)
				p.ExecutedS = perSec(float64(c.Executed-old[i].Executed) / secs)
			}
		}
		all = append(all, p)
	}
	return all
}

func (m *monitor) report(d cluster.Detail, now time.Time) report {
	r := report{Time: now.UTC().Round(time.Millisecond), Topology: m.name, Status: d.Topology.Status, AgeSecs: d.RunAgeSecs, Components: []pace{}}
	if run := d.Run; run != nil {
		r.Phase, r.Workers, r.Checkpoints, r.Restarts = run.Phase, len(run.Workers), run.Committed, run.Restarts
	}
	for _, p := range m.paces {
		if len(m.only) == 0 || slices.Contains(m.only, p.Component) {
			r.Components = append(r.Components, p)
		}
	}
	return r
}

func (m *monitor) show(r report) error {
	switch {
	case m.asJSON:
		return json.NewEncoder(m.out).Encode(r)
	case m.terminal:
		return m.redraw(r)
	}
	return m.append(r)
}

// redraw draws the table over the one before.
func (m *monitor) redraw(r report) error {
	var text bytes.Buffer
	if m.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\x1b[J", m.drawn)
	}
	t := newTable(&text)
	t.row(fmt.Sprintf("Topology %s is %s %s: %d workers, %d checkpoints, %d restarts, heard of %.1f s ago",
		clip(r.Topology, nameColumns), r.Status, r.Phase, r.Workers, r.Checkpoints, r.Restarts, r.AgeSecs))
	t.row("COMPONENT", "TASKS", "EMITTED/S", "EXECUTED/S", "EMITTED", "EXECUTED")
	for _, p := range r.Components {
		t.row(clip(p.Component, 2*nameColumns), fmt.Sprint(p.Tasks), p.EmittedS.String(), p.ExecutedS.String(), app.Count(p.Emitted), app.Count(p.Executed))
	}
	if err := t.end(); err != nil {
		return err
	}
	m.drawn = bytes.Count(text.Bytes(), []byte("\n"))
	_, err := m.out.Write(text.Bytes())
	return err
}

// append adds lines of columns that are always the same.
func (m *monitor) append(r report) error {
	p := printer{w: m.out}
	const format = "%-19s  %-20s  %5s  %13s  %13s  %11s"
	if !m.begun {
		m.begun = true
		p.line(format, "TIME (UTC)", "COMPONENT", "TASKS", "EMITTED/S", "EXECUTED/S", "CHECKPOINTS")
	}
	for _, c := range r.Components {
		p.line(format, moment(r.Time.UnixMilli()), clip(c.Component, nameColumns), fmt.Sprint(c.Tasks), c.EmittedS, c.ExecutedS, fmt.Sprint(r.Checkpoints))
	}
	if len(r.Components) == 0 {
		p.line("%s  topology %s is %s, and its topology master has told nothing yet", moment(r.Time.UnixMilli()), r.Topology, r.Status)
	}
	return p.err
}
