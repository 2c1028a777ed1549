package cli

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
)

// waiting is --wait: how many seconds spouts are stopped before a topology is.
type waiting int

const waitHelp = "stop the spouts `SECS` before, so that what is under way is processed (default topology.message.timeout.secs"

// addFlag adds the flag; the default may be another one if so is said.
func (w *waiting) addFlag(cmd *cobra.Command, unless string) {
	cmd.Flags().IntVarP((*int)(w), "wait", "w", 0, waitHelp+unless+")")
}

// of returns the seconds, -1 if none were given.
func (w waiting) of(cmd *cobra.Command) (int, error) {
	switch {
	case !cmd.Flags().Changed("wait"):
		return -1, nil
	case w < 0:
		return 0, usageError{fmt.Errorf("--wait %d: it must be a number of seconds, 0 for none", w)}
	}
	return int(w), nil
}

func newKill(d dial) *cobra.Command {
	r := reach{dial: d}
	var wait waiting
	var noCheckpoint bool
	cmd := &cobra.Command{
		Use:   "kill NAME",
		Short: "End a topology after a last checkpoint.",
		Long: "End a topology. Its spouts stop at once; after the wait it takes a last checkpoint, its processes\n" +
			"end, and its name is free. Its checkpoints stay where they are. With --no-checkpoint it ends at once.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			secs, err := wait.of(cmd)
			if err != nil {
				return err
			}
			ask := cluster.Kill{Name: args[0], WaitSecs: secs, NoCheckpoint: noCheckpoint}
			return r.change(cmd, cluster.VerbKill, ask, changed{args[0], cluster.Killed}, "Killed topology: %s")
		},
	}
	wait.addFlag(cmd, "; 0 with --no-checkpoint")
	cmd.Flags().BoolVar(&noCheckpoint, "no-checkpoint", false, "take no last checkpoint: what was processed since the one before is processed again")
	r.addFlagsJSON(cmd)
	return cmd
}

func newActivate(d dial) *cobra.Command {
	return newToggle(d, "activate NAME", "Let the spouts of a topology emit again.",
		cluster.VerbActivate, cluster.Active, "Activated topology: %s")
}

func newDeactivate(d dial) *cobra.Command {
	return newToggle(d, "deactivate NAME", "Stop the spouts of a topology; what is under way is processed.",
		cluster.VerbDeactivate, cluster.Inactive, "Deactivated topology: %s")
}

func newToggle(d dial, use, short, verb string, to cluster.Status, text string) *cobra.Command {
	r := reach{dial: d}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.change(cmd, verb, cluster.Named{Name: args[0]}, changed{args[0], to}, text)
		},
	}
	r.addFlagsJSON(cmd)
	return cmd
}

func newRebalance(d dial) *cobra.Command {
	r := reach{dial: d}
	var wait waiting
	var workers int
	var tasks, assignments []string
	cmd := &cobra.Command{
		Use:   "rebalance NAME",
		Short: "Spread a topology anew, over other workers or with other numbers of tasks.",
		Long: "Spread a topology anew. It stops after a last checkpoint and goes on from that one with the\n" +
			"workers, tasks and configuration that are given; without any it is only scheduled anew. If it\n" +
			"does not commit then, it goes back to what it was.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := cluster.Rebalance{Name: args[0], Workers: workers}
			var err error
			if ask.WaitSecs, err = wait.of(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("workers") && workers < 1 {
				return usageError{fmt.Errorf("--workers %d: at least 1 is needed", workers)}
			}
			if ask.Tasks, err = tasksOf(tasks); err != nil {
				return err
			}
			conf, err := config.ParseAssignments(assignments)
			if err != nil {
				return usageError{err}
			}
			ask.Config = maps.Collect(conf.Set())
			return r.change(cmd, cluster.VerbRebalance, ask, changed{args[0], cluster.Rebalancing}, "Topology %s is rebalancing")
		},
	}
	wait.addFlag(cmd, "")
	cmd.Flags().IntVarP(&workers, "workers", "n", 0, "run it in `N` workers")
	cmd.Flags().StringArrayVarP(&tasks, "executors", "e", nil, "give a component another number of tasks, `COMPONENT=TASKS` (repeatable)")
	cmd.Flags().StringArrayVarP(&assignments, "set", "c", nil, "set configuration, `KEY=VALUE` (repeatable)")
	r.addFlagsJSON(cmd)
	return cmd
}

// tasksOf reads COMPONENT=TASKS, each component once.
func tasksOf(given []string) (map[string]int, error) {
	tasks := map[string]int{}
	var errs []error
	for _, text := range given {
		i := strings.LastIndexByte(text, '=')
		n, err := strconv.Atoi(text[i+1:])
		component := text[:max(i, 0)]
		_, twice := tasks[component]
		switch {
		case component == "" || err != nil || n < 1:
			errs = append(errs, fmt.Errorf("--executors %s: it must be COMPONENT=TASKS, with 1 task or more", text))
		case twice:
			errs = append(errs, fmt.Errorf("--executors %s: there are tasks for %s before it", text, component))
		default:
			tasks[component] = n
		}
	}
	if len(errs) > 0 {
		return nil, usageError{errors.Join(errs...)}
	}
	return tasks, nil
}
