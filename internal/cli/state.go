package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/checkpoint/inspect"
)

const stateHelp = storeHelp + `
A KEY is a text; with --key-hex its bytes; with --key-json an array of its values, as ["a",7].`

// stateFlags say which state of which checkpoint is meant, and which of its keys.
type stateFlags struct {
	location
	checkpoint, component, state string
	keyHex, keyJSON              bool
	prefix                       string
	limit                        int
	expired, asJSON              bool
}

func (f *stateFlags) add(cmd *cobra.Command) {
	f.addFlags(cmd)
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "", "a `CHECKPOINT`, GENERATION.BATCH or a savepoint, instead of the current one")
	cmd.Flags().StringVar(&f.component, "component", "", "the `COMPONENT`; may be left out if only one has keyed state")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

func (f *stateFlags) addState(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVar(&f.state, "state", "", "the `STATE`; may be left out if the component has only one")
	cmd.Flags().BoolVar(&f.expired, "expired", false, "also what had expired when the checkpoint was taken")
	cmd.Flags().BoolVar(&f.keyHex, "key-hex", false, "KEY is the bytes of a text, in hexadecimal")
	cmd.Flags().BoolVar(&f.keyJSON, "key-json", false, "KEY is a JSON array of values")
}

func (f *stateFlags) addPrefix(cmd *cobra.Command) {
	f.addState(cmd)
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only keys whose first value begins with this text; with --key-json only those\nwhose first values are these")
}

// keys returns the keys that --prefix means.
func (f *stateFlags) keys() (p inspect.Prefix, err error) {
	if f.prefix == "" {
		return p, nil
	}
	vals, err := parseText(f.prefix, f.keyHex, f.keyJSON)
	if err != nil {
		return p, err
	}
	if f.keyJSON {
		p.Values = vals
	} else {
		p.Text, _ = vals[0].Text()
	}
	return p, nil
}

// checkpoints calls do with the checkpoints that are meant.
func (f *stateFlags) checkpoints(cmd *cobra.Command, store, topology string, do func([]*inspect.Checkpoint) error) error {
	return f.with(cmd, store, topology, func(a *archive) error {
		chosen, err := a.choose(f.checkpoint)
		if err != nil {
			return err
		}
		var all []*inspect.Checkpoint
		for _, e := range chosen {
			m, err := a.manifest(cmd.Context(), e.ref)
			if err != nil {
				return err
			}
			c, err := inspect.New(a.store, m)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		return do(all)
	})
}

// one calls do with the state that is meant.
func (f *stateFlags) one(cmd *cobra.Command, store, topology string, do func(*inspect.State) error) error {
	return f.checkpoints(cmd, store, topology, func(all []*inspect.Checkpoint) error {
		component, of := f.component, (*inspect.Checkpoint)(nil)
		var keyed []string
		for _, c := range all {
			states, err := c.States()
			if err != nil {
				return err
			}
			for _, s := range states {
				if !slices.Contains(keyed, s.Component) {
					keyed = append(keyed, s.Component)
				}
				if component == "" || component == s.Component {
					of = c
				}
			}
		}
		switch {
		case len(keyed) == 0:
			return errors.New("the checkpoint holds no keyed state")
		case component == "" && len(keyed) > 1:
			return usageError{fmt.Errorf("several components have keyed state, name one with --component: %s", strings.Join(keyed, ", "))}
		case component == "":
			component = keyed[0]
		case of == nil:
			return fmt.Errorf("component %q has no keyed state in the checkpoint, only %s", component, strings.Join(keyed, ", "))
		}
		s, err := of.State(component, f.state)
		if err != nil {
			return err
		}
		s.Expired = f.expired
		return do(s)
	})
}

// under calls do with the state that is meant and the keys of it that are.
func (f *stateFlags) under(cmd *cobra.Command, args []string, do func(*inspect.State, inspect.Prefix) error) error {
	store, topology, _, err := storeArgs(args, 0)
	if err != nil {
		return err
	}
	prefix, err := f.keys()
	if err != nil {
		return err
	}
	return f.one(cmd, store, topology, func(s *inspect.State) error { return do(s, prefix) })
}

// listedState is a line of state list, as --json prints it.
type listedState struct {
	Checkpoint string          `json:"checkpoint"`
	Component  string          `json:"component"`
	State      string          `json:"state"`
	Kind       string          `json:"kind"`
	Codec      string          `json:"codec"`
	Version    uint8           `json:"version"`
	Counts     *inspect.Counts `json:"counts,omitempty"`

	count string
}

func newStateList() *cobra.Command {
	var f stateFlags
	var count bool
	cmd := &cobra.Command{
		Use:   "list STORE [TOPOLOGY]",
		Short: "List the states that a checkpoint holds.",
		Long:  "List the states that a checkpoint holds." + storeHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, topology, _, err := storeArgs(args, 0)
			if err != nil {
				return err
			}
			return f.checkpoints(cmd, store, topology, func(all []*inspect.Checkpoint) error {
				found := []listedState{}
				for _, c := range all {
					states, err := c.States()
					if err != nil {
						return err
					}
					for _, s := range states {
						if f.component != "" && s.Component != f.component {
							continue
						}
						l := listedState{Checkpoint: fmt.Sprintf("%d.%d", c.Manifest.Generation, c.Manifest.Batch), Component: s.Component,
							State: s.Meta.Name, Kind: s.Meta.Kind, Codec: s.Meta.Codec, Version: s.Meta.Version}
						if count {
							n, err := s.Count(cmd.Context(), inspect.Prefix{})
							if err != nil {
								return err
							}
							l.Counts, l.count = &n, sayCounts(s, n)
						}
						found = append(found, l)
					}
				}
				if f.asJSON {
					return printJSON(cmd.OutOrStdout(), found)
				}
				return printStates(cmd, found)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&count, "count", false, "count the keys of each state, which reads all of them")
	return cmd
}

func printStates(cmd *cobra.Command, found []listedState) error {
	t := newTable(cmd.OutOrStdout())
	t.row("CHECKPOINT", "COMPONENT", "STATE", "KIND", "CODEC", "COUNT")
	for _, l := range found {
		t.row(l.Checkpoint, clip(l.Component, 16), clip(l.State, 26), l.Kind, clip(l.Codec, 16), l.count)
	}
	return t.end()
}

func newStateGet() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "get STORE [TOPOLOGY] KEY",
		Short: "Print what a state holds for a key.",
		Long: "Print what a state holds for a key: its value, the entries of its map, the elements of its\n" +
			"list, or its timers. It reads a few small parts of the files." + stateHelp,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			topology := ""
			if len(args) == 3 {
				topology = args[1]
			}
			key, err := parseText(args[len(args)-1], f.keyHex, f.keyJSON)
			if err != nil {
				return err
			}
			return f.one(cmd, args[0], topology, func(s *inspect.State) error {
				out, n := f.writer(cmd, s), 0
				err := s.Get(cmd.Context(), key, func(e *inspect.Entry) error { n++; return out(e) })
				if err == nil && n == 0 {
					err = fmt.Errorf("state %q of component %q holds nothing for key %s", s.Meta.Name, s.Component, args[len(args)-1])
				}
				return err
			})
		},
	}
	f.addState(cmd)
	return cmd
}

// writer returns a function that prints an entry as a line of text or of JSON.
func (f *stateFlags) writer(cmd *cobra.Command, s *inspect.State) func(e *inspect.Entry) error {
	p := printer{w: cmd.OutOrStdout()}
	return func(e *inspect.Entry) error {
		x, err := export(s, e)
		if err != nil {
			return err
		}
		if f.asJSON {
			out := newLines(p.w)
			return errors.Join(out.enc.Encode(x), out.w.Flush())
		}
		p.line("%s", x.line())
		return p.err
	}
}

func newStateScan() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "scan STORE [TOPOLOGY]",
		Short: "Print the keys of a state and what it holds for them.",
		Long: "Print the keys of a state and what it holds for them, ordered by key group and key. Without\n" +
			"--limit it prints the first 100 entries; with --limit 0 all of them." + stateHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.under(cmd, args, func(s *inspect.State, prefix inspect.Prefix) error {
				err := s.Scan(cmd.Context(), prefix, limited(f.limit, f.writer(cmd, s)))
				if errors.Is(err, errEnough) {
					return nil
				}
				return err
			})
		},
	}
	f.addPrefix(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 100, "print at most so many entries; 0 for all")
	return cmd
}

func newStateCount() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "count STORE [TOPOLOGY]",
		Short: "Count the keys of a state.",
		Long:  "Count the keys of a state and their entries. It reads all of them." + stateHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.under(cmd, args, func(s *inspect.State, prefix inspect.Prefix) error {
				n, err := s.Count(cmd.Context(), prefix)
				if err != nil {
					return err
				}
				if f.asJSON {
					return printJSON(cmd.OutOrStdout(), n)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), sayCounts(s, n))
				return err
			})
		},
	}
	f.addPrefix(cmd)
	return cmd
}

func newStateExport() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "export STORE [TOPOLOGY]",
		Short: "Print all entries of a state as JSON lines.",
		Long:  "Print all entries of a state as JSON lines: component, state, key and value." + stateHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.under(cmd, args, func(s *inspect.State, prefix inspect.Prefix) error {
				out := newLines(cmd.OutOrStdout())
				return errors.Join(exportState(cmd, s, prefix, f.limit, out), out.w.Flush())
			})
		},
	}
	f.addPrefix(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 0, "print at most so many entries; 0 for all")
	return cmd
}
