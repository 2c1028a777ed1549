// Package cli holds the commands of the isobar program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

// columns is the width that text output keeps to.
const columns = 100

// Run runs the command that args say and returns the exit code of the process.
func Run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(ctx, client.Connect, args, out, errOut)
}

// run is Run until ctx ends, with clusters that d connects to.
func run(ctx context.Context, d dial, args []string, out, errOut io.Writer) int {
	understood := false
	root := newRoot(d)
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err, understood)
	switch code {
	case exitOK, exitDifferent:
		return code
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	fmt.Fprintf(errOut, "isobar: %v\n", err)
	if code == exitUsage {
		fmt.Fprintf(errOut, "See %s --help.\n", cmd.CommandPath())
	}
	return code
}

func newRoot(d dial) *cobra.Command {
	root := group("isobar", "An exactly-once stream engine for Go: clusters, checkpoints, state and configuration.")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.HiddenDefaultCmd = true
	checkpoints := group("checkpoint", "Look into, verify, keep, copy and compare the checkpoints of topologies.")
	checkpoints.AddCommand(newList(), newShow(), newVerify(), newPin(), newUnpin(), newPrune(), newDiff(), newExport(), newCopy())
	states := group("state", "Read the keyed state of a checkpoint, without the topology's code.")
	states.AddCommand(newStateList(), newStateGet(), newStateScan(), newStateCount(), newStateExport())
	transactions := group("txn", "Go back to an earlier checkpoint.")
	transactions.AddCommand(newRollback(d))
	configuration := newConfig()
	configuration.AddCommand(newConfigGet(d))
	section(root, "Topologies in a cluster:",
		newTopologies(d), newStatus(d), newGetErrors(d), newMonitor(d), newLogs(d), newSetLogLevel(d),
		newKill(d), newActivate(d), newDeactivate(d), newRebalance(d), newUploadCredentials(d))
	section(root, "Checkpoints:", checkpoints, states, transactions, newSavepoint(d))
	section(root, "Clusters:", newSupervisors(d), newHealth(d), newBlobs(d), newDev(), newNATS(), newNimbus(), newSupervisor())
	root.AddCommand(configuration, newVersion())
	explain(root)
	return root
}

// explain has a command, and those below it, say what they take when they are given something else.
func explain(cmd *cobra.Command) {
	if !cmd.HasSubCommands() && cmd.Args != nil {
		fits := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if fits(cmd, args) == nil {
				return nil
			}
			_, takes, _ := strings.Cut(cmd.Use, " ")
			switch takes {
			case "":
				takes = "no arguments"
			case "NAME":
				takes = "the name of a topology"
			}
			given := "none is given"
			if len(args) > 0 {
				given = fmt.Sprintf("given is %q", args)
			}
			return fmt.Errorf("%s takes %s: %s", cmd.Name(), takes, given)
		}
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		var wrong *pflag.InvalidValueError
		if !errors.As(err, &wrong) {
			return err
		}
		what := map[string]string{"int": "a number", "int64": "a number", "uint64": "a number", "bool": "true or false", "duration": "a duration, as in 1m30s"}[wrong.GetFlag().Value.Type()]
		if what == "" {
			return err
		}
		return fmt.Errorf("--%s %s: it must be %s", wrong.GetFlag().Name, wrong.GetValue(), what)
	})
	for _, below := range cmd.Commands() {
		explain(below)
	}
}

// section adds commands under a title of their own.
func section(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

// group returns a command that only has commands below it.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "isobar %s%s (%s, %s/%s)\n",
				engine.Version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// revision returns the commit that the program was built from, if it is known.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "+" + s.Value[:12]
		}
	}
	return ""
}
