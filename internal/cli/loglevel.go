package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

// rootLogger names everything that has no level of its own.
const rootLogger = "ROOT"

// logLevels are changes of log levels, as --json prints them.
type logLevels struct {
	Topology string                   `json:"topology"`
	Set      map[string]cluster.Level `json:"set"`
	Removed  []string                 `json:"removed"`
}

func newSetLogLevel(d dial) *cobra.Command {
	r := reach{dial: d}
	var set, remove []string
	cmd := &cobra.Command{
		Use:   "set-log-level NAME -l COMPONENT=LEVEL[:SECS]... | -r COMPONENT...",
		Short: "Set log levels of a running topology, for a time or until they are removed.",
		Long: "Set log levels of a running topology, for a time or until they are removed. COMPONENT is a\n" +
			"component, or ROOT for all that have no level of their own. LEVEL is debug, info, warn or error.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			levels, err := levelsOf(set, time.Now())
			if err != nil {
				return err
			}
			if len(set)+len(remove) == 0 {
				return usageError{errors.New("nothing to change: say -l COMPONENT=LEVEL[:SECS] or -r COMPONENT")}
			}
			ask := cluster.SetLogLevel{Name: args[0], Levels: levels}
			for _, name := range remove {
				ask.Remove = append(ask.Remove, loggerOf(name))
			}
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Call(ctx, cluster.VerbLogLevel, ask, nil); err != nil {
					return err
				}
				if r.asJSON {
					return printJSON(cmd.OutOrStdout(), logLevels{args[0], levels, append([]string{}, ask.Remove...)})
				}
				p := printer{w: cmd.OutOrStdout()}
				for _, name := range slices.Sorted(maps.Keys(levels)) {
					p.line("Log level of %s in topology %s: %s", shownLogger(name), args[0], shownLevel(levels[name]))
				}
				for _, name := range ask.Remove {
					p.line("Log level of %s in topology %s: as before", shownLogger(name), args[0])
				}
				return p.err
			})
		},
	}
	cmd.Flags().StringArrayVarP(&set, "level", "l", nil, "set a level, `COMPONENT=LEVEL[:SECS]` (repeatable)")
	cmd.Flags().StringArrayVarP(&remove, "remove", "r", nil, "take back the level of a `COMPONENT` (repeatable)")
	r.addFlagsJSON(cmd)
	return cmd
}

// loggerOf returns the name by which a cluster knows a component, "" for all.
func loggerOf(name string) string {
	if name == rootLogger {
		return ""
	}
	return name
}

func shownLogger(name string) string {
	if name == "" {
		return rootLogger
	}
	return name
}

func shownLevel(l cluster.Level) string {
	if l.Until.IsZero() {
		return l.Level
	}
	return fmt.Sprintf("%s until %s UTC", l.Level, moment(l.Until.UnixMilli()))
}

// levelsOf reads COMPONENT=LEVEL[:SECS], each component once.
func levelsOf(set []string, now time.Time) (map[string]cluster.Level, error) {
	levels := map[string]cluster.Level{}
	for _, text := range set {
		i := strings.LastIndexByte(text, '=')
		level, secs, limited := strings.Cut(text[i+1:], ":")
		level = strings.ToLower(level)
		n, err := 0, error(nil)
		if limited {
			n, err = strconv.Atoi(secs)
		}
		if i < 0 || err != nil || limited && n < 1 || !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
			return nil, usageError{fmt.Errorf("--level %s: it must be COMPONENT=LEVEL or COMPONENT=LEVEL:SECS, and the level debug, info, warn or error", text)}
		}
		name := loggerOf(text[:i])
		if _, twice := levels[name]; twice {
			return nil, usageError{fmt.Errorf("--level %s: there is a level of %s before it", text, shownLogger(name))}
		}
		l := cluster.Level{Level: level}
		if limited {
			l.Until = now.Add(time.Duration(n) * time.Second).UTC().Round(time.Millisecond)
		}
		levels[name] = l
	}
	return levels, nil
}
