package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/inspect"
	"github.com/isobar-io/isobar/txn"
)

// difference is what two checkpoints do not have alike, as --json prints it.
type difference struct {
	From         string        `json:"from"`
	To           string        `json:"to"`
	States       []stateDiff   `json:"states"`
	Positions    []moved       `json:"positions"`
	Transactions []transaction `json:"transactions"`
}

type stateDiff struct {
	Component string      `json:"component"`
	State     string      `json:"state"`
	Added     int64       `json:"added"`
	Removed   int64       `json:"removed"`
	Changed   int64       `json:"changed"`
	Keys      []keyChange `json:"keys,omitempty"`
}

type keyChange struct {
	Before *exported `json:"before,omitempty"`
	After  *exported `json:"after,omitempty"`
}

// moved is a position that is not the same; nil stands for none.
type moved struct {
	Component string          `json:"component"`
	Partition txn.PartitionID `json:"partition"`
	From      []byte          `json:"from"`
	To        []byte          `json:"to"`
}

// transaction is one that only one of two checkpoints lists.
type transaction struct {
	Component  string                `json:"component"`
	Task       int                   `json:"task"`
	Generation checkpoint.Generation `json:"generation"`
	Batch      checkpoint.BatchID    `json:"batch"`
	Data       []byte                `json:"data"`
	In         string                `json:"in"` // the checkpoint that lists it
}

func newDiff() *cobra.Command {
	var asJSON, keys bool
	var l location
	cmd := &cobra.Command{
		Use:   "diff STORE [TOPOLOGY] CHECKPOINT CHECKPOINT",
		Short: "Compare two checkpoints: keys, positions, transactions.",
		Long: "Compare two checkpoints of a region: how many keys of each state were added, removed and\n" +
			"changed, which positions have moved, and which transactions only one of them lists. The exit\n" +
			"code is 4 if there are differences. Names of savepoints need TOPOLOGY before them." + storeHelp,
		Args: cobra.RangeArgs(3, 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, topology, rest, err := storeArgs(args, 2)
			if err == nil && len(rest) != 2 {
				err = usageError{errors.New("name two checkpoints as GENERATION.BATCH")}
			}
			if err != nil {
				return err
			}
			return l.with(cmd, store, topology, func(a *archive) error {
				d, err := a.diff(cmd, rest[0], rest[1], keys)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), d)
				} else {
					err = d.print(cmd.OutOrStdout())
				}
				if err == nil && len(d.States)+len(d.Positions)+len(d.Transactions) > 0 {
					err = errDifferent
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "name the keys and their values, not only how many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	l.addFlags(cmd)
	return cmd
}

func (a *archive) diff(cmd *cobra.Command, from, to string, keys bool) (*difference, error) {
	var manifests [2]*checkpoint.Manifest
	var opened [2]*inspect.Checkpoint
	var entries [2]entry
	for i, name := range []string{from, to} {
		e, err := a.chooseOne(name)
		if err != nil {
			return nil, err
		}
		if manifests[i], err = a.manifest(cmd.Context(), e.ref); err != nil {
			return nil, err
		}
		if opened[i], err = inspect.New(a.store, manifests[i]); err != nil {
			return nil, err
		}
		entries[i] = e
	}
	if entries[0].region != entries[1].region {
		return nil, fmt.Errorf("checkpoint %s is of region %q, %s of %q: they have nothing in common",
			entries[0].ref, entries[0].region, entries[1].ref, entries[1].region)
	}
	d := &difference{
		From: entries[0].ref.String(), To: entries[1].ref.String(), States: []stateDiff{},
		Positions:    movedPositions(manifests[0], manifests[1]),
		Transactions: append(unlisted(manifests[0], manifests[1]), unlisted(manifests[1], manifests[0])...),
	}
	return d, d.diffStates(cmd, opened, keys)
}

func (d *difference) diffStates(cmd *cobra.Command, opened [2]*inspect.Checkpoint, keys bool) error {
	return inspect.Diff(cmd.Context(), opened[0], opened[1], func(c inspect.Change) error {
		component, state := c.Of.Component, c.Of.Meta.Name
		last := len(d.States) - 1
		if last < 0 || d.States[last].Component != component || d.States[last].State != state {
			d.States = append(d.States, stateDiff{Component: component, State: state})
			last++
		}
		s := &d.States[last]
		switch {
		case c.Before == nil:
			s.Added++
		case c.After == nil:
			s.Removed++
		default:
			s.Changed++
		}
		if !keys {
			return nil
		}
		var change keyChange
		for e, to := range map[*inspect.Entry]**exported{c.Before: &change.Before, c.After: &change.After} {
			if e == nil {
				continue
			}
			x, err := export(c.Of, e)
			if err != nil {
				return err
			}
			*to = x.clone()
		}
		s.Keys = append(s.Keys, change)
		return nil
	})
}

// movedPositions returns the partitions that were not read equally far.
func movedPositions(a, b *checkpoint.Manifest) []moved {
	type at struct {
		component string
		partition txn.PartitionID
	}
	positions := func(m *checkpoint.Manifest) map[at][]byte {
		all := map[at][]byte{}
		for _, t := range m.Tasks {
			for _, p := range t.Positions {
				all[at{t.Component, p.Partition}] = p.Data
			}
		}
		return all
	}
	before, after := positions(a), positions(b)
	all := maps.Clone(before)
	maps.Copy(all, after)
	out := []moved{}
	for at := range all {
		if !bytes.Equal(before[at], after[at]) {
			out = append(out, moved{at.component, at.partition, before[at], after[at]})
		}
	}
	slices.SortFunc(out, func(x, y moved) int {
		return bytes.Compare([]byte(x.Component+"\x00"+string(x.Partition)), []byte(y.Component+"\x00"+string(y.Partition)))
	})
	return out
}

// unlisted returns the transactions of a that b does not list.
func unlisted(a, b *checkpoint.Manifest) []transaction {
	out := []transaction{}
	for _, t := range a.Tasks {
		for _, h := range t.Handles {
			if len(h.Data) == 0 {
				continue // a batch without output
			}
			listed := slices.ContainsFunc(b.Tasks, func(u checkpoint.TaskSnapshot) bool {
				return u.Component == t.Component && slices.ContainsFunc(u.Handles, func(g txn.Handle) bool {
					return g.Batch == h.Batch && g.Generation == h.Generation && bytes.Equal(g.Data, h.Data)
				})
			})
			if !listed {
				out = append(out, transaction{t.Component, t.Index, h.Generation, h.Batch, h.Data,
					fmt.Sprintf("%d.%d", a.Generation, a.Batch)})
			}
		}
	}
	return out
}

func (d *difference) print(w io.Writer) error {
	p := printer{w: w}
	for _, s := range d.States {
		p.line("State %s of %s: %d added, %d removed, %d changed", s.State, s.Component, s.Added, s.Removed, s.Changed)
		for _, k := range s.Keys {
			switch {
			case k.Before == nil:
				p.line("%s+ %s", indent, k.After.line())
			case k.After == nil:
				p.line("%s- %s", indent, k.Before.line())
			default:
				p.line("%s  %s, was %s", indent, k.After.line(), k.Before.value())
			}
		}
	}
	for _, m := range d.Positions {
		p.line("Position of %s in %s: from %s to %s", m.Component, printable([]byte(m.Partition)), position(m.From), position(m.To))
	}
	for _, t := range d.Transactions {
		p.line("Transaction %d.%d of %s/%d only in %s: %s", t.Generation, t.Batch, t.Component, t.Task, t.In, handleOf(t.Data))
	}
	if len(d.States)+len(d.Positions)+len(d.Transactions) == 0 {
		p.line("Checkpoints %s and %s hold the same.", d.From, d.To)
	}
	return p.err
}

// position shows a position, which may be none.
func position(b []byte) string {
	if len(b) == 0 {
		return "none"
	}
	return printable(b)
}
