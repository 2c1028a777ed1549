package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
)

const (
	// followEvery is how often logs are looked at for more.
	followEvery = time.Second
	// tailBytes is how much of a log is looked at for its last lines.
	tailBytes = 512 << 10
)

// logReader prints logs of a topology's processes.
type logReader struct {
	*client.Client
	name        string
	lines       int // of each log, to begin with; 0: all
	out, errOut io.Writer
	asJSON      bool

	logs   []*processLog
	failed error // to write to out or errOut
}

// processLog is the log of a process.
type processLog struct {
	name string       // master, or SUPERVISOR/PORT
	ask  cluster.Logs // Offset is where it is read next
	old  bool         // it may not be there
	rest []byte       // of a line whose end was not written yet
	err  error        // of the last read
}

// logLine is a line, as --json prints it.
type logLine struct {
	Process string `json:"process"`
	Line    string `json:"line"`
}

func newLogs(d dial) *cobra.Command {
	r := reach{dial: d}
	var follow, master bool
	var worker string
	var lines int
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what the processes of a topology have logged.",
		Long: "Print the last lines of what the processes of a topology have logged: of all of them, each line\n" +
			"after the name of its process, or of one. A process is the master or a worker, SUPERVISOR/PORT.\n" +
			"The last lines are looked for in the last 512 kB of each log.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return usageError{fmt.Errorf("--lines %d: it must be 1 or more, or 0 for all", lines)}
			}
			only, err := onlyLog(args[0], master, worker)
			if err != nil {
				return err
			}
			return r.with(cmd, func(ctx context.Context, c *client.Client) error {
				l := &logReader{Client: c, name: args[0], lines: lines, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), asJSON: r.asJSON, logs: only}
				if follow {
					return l.follow(ctx, len(only) > 0)
				}
				return l.print(ctx)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what they log from now on, until interrupted or the topology was killed")
	cmd.Flags().BoolVar(&master, "master", false, "only the topology master")
	cmd.Flags().StringVar(&worker, "worker", "", "only the worker `SUPERVISOR/PORT`")
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "begin with the last `N` lines of each log; 0: with all of it")
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print a line of JSON for each")
	return cmd
}

// onlyLog returns the log that flags choose, or nothing. That of a master is found where
// the master is.
func onlyLog(name string, master bool, worker string) ([]*processLog, error) {
	switch {
	case master && worker != "":
		return nil, usageError{errors.New("--master and --worker: name one of them, or none for all")}
	case master:
		return []*processLog{masterLog(name, "")}, nil
	case worker == "":
		return nil, nil
	}
	i := strings.LastIndexByte(worker, '/')
	port, err := strconv.Atoi(worker[i+1:])
	if i < 1 || err != nil || port < 1 {
		return nil, usageError{fmt.Errorf("--worker %s: it must be SUPERVISOR/PORT, as 'isobar status' shows them", worker)}
	}
	return []*processLog{workerLog(name, cluster.Slot{Supervisor: worker[:i], Port: port})}, nil
}

func masterLog(topology, supervisor string) *processLog {
	return &processLog{name: string(cluster.RoleMaster), ask: cluster.Logs{Name: topology, Role: cluster.RoleMaster, Slot: cluster.Slot{Supervisor: supervisor}}}
}

func workerLog(topology string, slot cluster.Slot) *processLog {
	return &processLog{name: fmt.Sprintf("%s/%d", slot.Supervisor, slot.Port), ask: cluster.Logs{Name: topology, Role: cluster.RoleWorker, Slot: slot}}
}

// find adds the logs of processes that are not among them yet.
func (l *logReader) find(ctx context.Context) error {
	d, err := detail(ctx, l.Client, l.name)
	if err != nil {
		return err
	}
	var all []*processLog
	if a := d.Assignment; a != nil {
		all = append(all, masterLog(l.name, a.Master))
		for _, w := range a.Workers {
			all = append(all, workerLog(l.name, w.Slot))
		}
	} else if all, err = l.leftBehind(ctx); err != nil {
		return err
	}
	for _, log := range all {
		same := func(other *processLog) bool { return other.ask.Role == log.ask.Role && other.ask.Slot == log.ask.Slot }
		if !slices.ContainsFunc(l.logs, same) {
			l.logs = append(l.logs, log)
		}
	}
	return nil
}

// leftBehind returns all logs that may be there of a topology that runs nowhere any more.
func (l *logReader) leftBehind(ctx context.Context) ([]*processLog, error) {
	supervisors, err := request[[]cluster.Supervisor](ctx, l.Client, cluster.VerbSupervisors, nil)
	if err != nil {
		return nil, err
	}
	var all []*processLog
	for _, s := range supervisors {
		master := masterLog(l.name, s.ID)
		master.name = s.ID + "/" + master.name
		all = append(all, master)
		for _, port := range s.Ports {
			all = append(all, workerLog(l.name, cluster.Slot{Supervisor: s.ID, Port: port}))
		}
	}
	for _, log := range all {
		log.old = true
	}
	return all, nil
}

// print prints what there is.
func (l *logReader) print(ctx context.Context) error {
	if len(l.logs) == 0 {
		if err := l.find(ctx); err != nil {
			return err
		}
	}
	var errs, absent []error
	for _, log := range l.logs {
		err := l.begin(ctx, log)
		if err == nil {
			err = l.more(ctx, log)
		}
		if err == nil && len(log.rest) > 0 {
			l.emit(log, log.rest)
		}
		switch {
		case err != nil && log.old:
			absent = append(absent, err)
		case err != nil:
			errs = append(errs, fmt.Errorf("log of %s: %w", log.name, err))
		}
	}
	switch n := len(l.logs); {
	case n == 0:
		return fmt.Errorf("topology %s has no processes, and there are no supervisors that could have logs of it", l.name)
	case len(absent) == n:
		return fmt.Errorf("topology %s runs nowhere, and no supervisor has logs of it: %w", l.name, absent[n-1])
	}
	return errors.Join(append(errs, l.failed)...)
}

// errOver is returned when the topology is not there any more.
var errOver = errors.New("the topology has ended")

// follow prints what there is and what comes, until ctx ends or the topology is there no
// more. If the logs are not fixed, those of new processes are added.
func (l *logReader) follow(ctx context.Context, fixed bool) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		switch err := l.look(ctx, fixed, first); {
		case errors.Is(err, errOver):
			return errors.Join(sayOver(l.errOut, l.name), l.failed)
		case err != nil:
			return unlessInterrupted(ctx, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look prints what has come of all logs.
func (l *logReader) look(ctx context.Context, fixed, first bool) error {
	if !fixed {
		if err := l.find(ctx); err != nil {
			return l.unlessOver(ctx, err, first)
		}
	}
	for _, log := range l.logs {
		if err := l.step(ctx, log, first); err != nil {
			return err
		}
	}
	return nil
}

// unlessOver returns errOver instead of err if that is because the topology has ended.
func (l *logReader) unlessOver(ctx context.Context, err error, first bool) error {
	if !first && over(ctx, l.Client, l.name) {
		return errOver
	}
	return err
}

// unlessInterrupted leaves out an error of a command that has no other end than an
// interrupt.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step prints what has come of a log. That it cannot be read now is told once.
func (l *logReader) step(ctx context.Context, log *processLog, first bool) error {
	var err error
	if first {
		err = l.begin(ctx, log)
	}
	if err == nil {
		err = l.more(ctx, log)
	}
	if news := err != nil && (log.err == nil || log.err.Error() != err.Error()); news && ctx.Err() == nil {
		switch {
		case over(ctx, l.Client, l.name):
			return l.unlessOver(ctx, err, first)
		case !log.old:
			l.note(log, "%v", err)
		}
	}
	log.err = err
	return l.failed
}

// note tells something about a log.
func (l *logReader) note(log *processLog, format string, args ...any) {
	_, err := fmt.Fprintf(l.errOut, "isobar: log of %s: "+format+"\n", append([]any{log.name}, args...)...)
	l.failed = errors.Join(l.failed, err)
}

// begin finds where the last lines of a log begin.
func (l *logReader) begin(ctx context.Context, log *processLog) error {
	if l.lines == 0 {
		return nil
	}
	ask := log.ask
	ask.Offset = -tailBytes
	part, err := request[cluster.LogPart](ctx, l.Client, cluster.VerbLogs, ask)
	if err != nil {
		return err
	}
	log.ask.Offset = part.Offset + int64(lastLines(part.Data, l.lines))
	return nil
}

// lastLines returns where the last n lines begin.
func lastLines(data []byte, n int) int {
	end := len(bytes.TrimSuffix(data, []byte("\n")))
	for range n {
		if end = bytes.LastIndexByte(data[:end], '\n'); end < 0 {
			return 0
		}
	}
	return end + 1
}

// more prints the lines that have come since.
func (l *logReader) more(ctx context.Context, log *processLog) error {
	for {
		part, err := request[cluster.LogPart](ctx, l.Client, cluster.VerbLogs, log.ask)
		if err != nil {
			return err
		}
		switch gone := part.Offset - log.ask.Offset; {
		case gone < 0: // it is another log: the process is elsewhere now
			log.ask.Offset, log.rest = 0, nil
			continue
		case gone > 0 && log.ask.Offset > 0:
			l.note(log, "%s are not kept any more", bytesOf(gone))
		}
		log.ask.Offset = part.Offset + int64(len(part.Data))
		log.rest = l.whole(log, append(log.rest, part.Data...))
		if l.failed != nil || len(part.Data) == 0 || log.ask.Offset >= part.Size {
			return l.failed
		}
	}
}

// whole prints the lines that have an end, and returns what is left.
func (l *logReader) whole(log *processLog, data []byte) []byte {
	for {
		line, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return bytes.Clone(data)
		}
		l.emit(log, line)
		data = rest
	}
}

func (l *logReader) emit(log *processLog, line []byte) {
	text := strings.TrimSuffix(string(line), "\r")
	var err error
	switch {
	case l.asJSON:
		err = json.NewEncoder(l.out).Encode(logLine{log.name, text})
	case len(l.logs) > 1:
		_, err = fmt.Fprintf(l.out, "%s | %s\n", log.name, text)
	default:
		_, err = fmt.Fprintln(l.out, text)
	}
	l.failed = errors.Join(l.failed, err)
}
