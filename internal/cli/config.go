package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/config"
)

func newConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "config [KEY]",
		Short: "Print the configuration keys, their defaults and what they mean.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys := config.Keys()
			if len(args) > 0 {
				k, err := config.Lookup(args[0])
				if err != nil {
					return err
				}
				keys = []config.Key{k}
			}
			for _, k := range keys {
				if err := printKey(cmd.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		},
	}
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
