package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/config"
)

// uploaded names the credentials that a topology has now, as --json prints it.
type uploaded struct {
	Topology string   `json:"topology"`
	Keys     []string `json:"keys"`
}

func newUploadCredentials(d dial) *cobra.Command {
	r := reach{dial: d}
	var file string
	cmd := &cobra.Command{
		Use:   "upload-credentials NAME [KEY=VALUE...]",
		Short: "Give a topology secrets, in the place of those that it has.",
		Long: "Give a topology secrets, in the place of those that it has. Arguments can be seen by others on\n" +
			"this machine while the command runs; a file cannot.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := secretsOf(cmd.InOrStdin(), file, args[1:])
			if err != nil {
				return err
			}
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				ask := cluster.SetCredentials{Name: args[0], Values: values}
				if err := c.Call(ctx, cluster.VerbCredentials, ask, nil); err != nil {
					return err
				}
				done := uploaded{args[0], slices.Sorted(maps.Keys(values))}
				return r.say(cmd, done, "Uploaded credentials of topology %s: %s", done.Topology, strings.Join(done.Keys, ", "))
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read KEY=VALUE lines from a `FILE`, - for standard input")
	r.addFlagsJSON(cmd)
	return cmd
}

// secretsOf reads KEY=VALUE from a file and from arguments, which count more.
func secretsOf(in io.Reader, file string, args []string) (cluster.Credentials, error) {
	given, values := cluster.Credentials{}, cluster.Credentials{}
	for i, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if err := addSecret(given, fmt.Sprintf("credential %d", i+1), key, value, ok); err != nil {
			return nil, err
		}
	}
	if file != "" {
		r, err := openInput(in, file)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		lines := bufio.NewScanner(r)
		for n := 1; lines.Scan(); n++ {
			line := strings.TrimSpace(lines.Text())
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			if err := addSecret(values, fmt.Sprintf("%s, line %d", file, n), strings.TrimSpace(key), strings.TrimSpace(value), ok); err != nil {
				return nil, err
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read credentials from %s: %w", file, err)
		}
	}
	maps.Copy(values, given)
	if len(values) == 0 {
		return nil, usageError{errors.New("no credentials: give them as KEY=VALUE, or in a --file")}
	}
	return values, nil
}

// addSecret adds what was KEY=VALUE, if ok. An error says only where it is: what is there may
// be a secret.
func addSecret(all cluster.Credentials, place, key, value string, ok bool) error {
	if _, twice := all[key]; !ok || key == "" || twice {
		return usageError{fmt.Errorf("%s: it must be KEY=VALUE, each key once", place)}
	}
	if !utf8.ValidString(key) || !utf8.ValidString(value) {
		return usageError{fmt.Errorf("%s: it is not UTF-8 and would arrive changed; give it in base64, or the like", place)}
	}
	all[key] = value
	return nil
}

// openInput opens a file, or standard input if its name is "-".
func openInput(in io.Reader, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(in), nil
	}
	return os.Open(file)
}

func newConfigGet(d dial) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   "get [KEY]",
		Short: "Print a value of a cluster's configuration, or all of it.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				all, err := request[map[string]any](ctx, c, cluster.VerbConfig, nil)
				if err != nil {
					return err
				}
				names := slices.Sorted(maps.Keys(all))
				if key := optional(args); key != "" {
					if _, ok := all[key]; !ok {
						hint := "'isobar config get' shows all"
						if near, ok := config.Near(key, names); ok {
							hint = "did you mean " + near + "?"
						}
						return fmt.Errorf("the cluster has no configuration key %q, %s", key, hint)
					}
					names = []string{key}
					all = map[string]any{key: all[key]}
				}
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), all)
				}
				for _, name := range names {
					if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %v\n", name, all[name]); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}
