package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/config"
)

func newConfig() *cobra.Command {
	var file string
	var assignments []string
	var effective bool
	cmd := &cobra.Command{
		Use:   "config [KEY]",
		Short: "Print the configuration keys, their defaults and what they mean.",
		Long: "Print the configuration keys, their defaults and what they mean. With --effective, print\n" +
			"the values that a file and assignments lead to, and where each comes from.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := config.Read(file, assignments)
			if err != nil {
				return err
			}
			keys := config.Keys()
			if len(args) > 0 {
				k, err := config.Lookup(args[0])
				if err != nil {
					return err
				}
				keys = []config.Key{k}
			}
			if effective {
				return printEffective(cmd.OutOrStdout(), values, keys, len(args) == 0)
			}
			for _, k := range keys {
				if err := printKey(cmd.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print values and their origin")
	cmd.Flags().StringVar(&file, "config", "", "a YAML `FILE` of configuration")
	cmd.Flags().StringArrayVarP(&assignments, "set", "c", nil, "an assignment, `KEY=VALUE` (repeatable)")
	return cmd
}

// printEffective prints the values of keys, and of all user keys if asked to.
func printEffective(w io.Writer, v config.Values, keys []config.Key, user bool) error {
	wanted := map[string]bool{}
	for _, k := range keys {
		wanted[k.Name] = true
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for name, value := range v.All() {
		if _, err := config.Lookup(name); wanted[name] || user && err != nil {
			fmt.Fprintf(tw, "%s\t%v\t(%s)\n", name, value, v.Origin(name))
		}
	}
	return tw.Flush()
}

func printKey(w io.Writer, k config.Key) error {
	value := fmt.Sprint(k.Default)
	if value == "" {
		value = "(empty)"
	}
	_, err := fmt.Fprintf(w, "%s = %s\n    (%s, per %s)\n", k.Name, value, k.Range(), k.Scope)
	for _, line := range wrap(strings.ReplaceAll(k.Meaning, "`", ""), columns-4) {
		if err == nil {
			_, err = fmt.Fprintf(w, "    %s\n", line)
		}
	}
	return err
}

// wrap breaks a text between words into lines of at most width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
