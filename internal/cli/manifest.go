package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/isobar-io/isobar/checkpoint"
)

// indent stands before what belongs to a task.
const indent = "    "

// printManifest prints what a checkpoint holds, task by task.
func printManifest(w io.Writer, e entry, m *checkpoint.Manifest) error {
	p := printer{w: w}
	title := fmt.Sprintf("Checkpoint %s of topology %s", e.ref, m.Topology)
	if marks := e.marks(); marks != "" {
		title += " (" + marks + ")"
	}
	p.line("%s", title)
	p.line("%staken %s UTC by isobar %s, run %s", indent, moment(m.UnixMilli), m.Engine, m.RunID)
	p.line("%s%d key groups, graph %s", indent, m.KeyGroups, m.Graph)
	p.line("%s%s, %d bytes", indent, e.ref.Manifest, e.ref.Size)
	p.line("Region %s", m.Region)
	for _, id := range slices.Sorted(maps.Keys(m.Components)) {
		c := m.Components[id]
		kind := ""
		if c.Keyed {
			kind = ", keyed"
		}
		p.line("%s%s: tasks %d%s", indent, id, c.Parallelism, kind)
	}
	tasks := slices.SortedFunc(slices.Values(m.Tasks), func(a, b checkpoint.TaskSnapshot) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Index, b.Index))
	})
	for _, t := range tasks {
		p.task(t)
	}
	return p.err
}

// printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, clip(fmt.Sprintf(format, args...), columns))
	}
}

func (p *printer) task(t checkpoint.TaskSnapshot) {
	finished := ""
	if t.Finished {
		finished = ", all input read"
	}
	p.line("Task %s/%d%s", t.Component, t.Index, finished)
	for _, pos := range t.Positions {
		p.line("%sposition %s: %s", indent, printable([]byte(pos.Partition)), printable(pos.Data))
	}
	for _, s := range t.States {
		p.line("%sstate %s: %s of %s, version %d", indent, s.Name, s.Kind, s.Codec, s.Version)
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
		p.line("%stransaction %d.%d: %s", indent, h.Generation, h.Batch, printable(h.Data))
	}
}

// printable shows bytes as text where they are that, else in hexadecimal.
func printable(b []byte) string {
	if len(b) == 0 {
		return "empty"
	}
	if utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return string(b)
	}
	return fmt.Sprintf("%d bytes %x", len(b), b[:min(len(b), columns)])
}
