package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/isobar-io/isobar/txn"
)

// The transcript of a Participant: each line is a moment and an event, with the
// actions that follow below it.
func TestParticipantTranscript(t *testing.T) {
	var p *Participant
	datadriven.RunTest(t, "testdata/participant.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			c := Config{Generation: 1, Ordered: d.HasArg("ordered"), RetryMin: time.Second, RetryMax: 5 * time.Second}
			number(t, d, "generation", &c.Generation)
			number(t, d, "restored", &c.Restored)
			var handles []string
			d.MaybeScanArgs(t, "handles", &handles)
			for _, h := range handles {
				c.Handles = append(c.Handles, parseHandle(t, d, h))
			}
			p = New(c)
			return ""
		case "step":
			var sb strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				fmt.Fprintln(&sb, line)
				now, ev := parseEvent(t, d, line)
				for _, a := range p.Step(now, ev) {
					fmt.Fprintln(&sb, "  "+format(a))
				}
			}
			return sb.String()
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

// number scans a numeric argument if it is there.
func number[T ~uint64](t *testing.T, l *datadriven.TestData, key string, dest *T) {
	var n uint64
	if l.MaybeScanArgs(t, key, &n) {
		*dest = T(n)
	}
}

func parseHandle(t *testing.T, d *datadriven.TestData, s string) txn.Handle {
	var h txn.Handle
	if _, err := fmt.Sscanf(s, "%d.%d", &h.Generation, &h.Batch); err != nil {
		d.Fatalf(t, "parse handle %q: %v", s, err)
	}
	return h
}

func parseEvent(t *testing.T, d *datadriven.TestData, line string) (time.Duration, Event) {
	at, rest, _ := strings.Cut(line, " ")
	now, err := time.ParseDuration(at)
	if err != nil {
		d.Fatalf(t, "parse %q: %v", line, err)
	}
	cmd, args, err := datadriven.ParseLine(rest)
	if err != nil {
		d.Fatalf(t, "parse %q: %v", line, err)
	}
	l := &datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args}
	var n, oldest txn.BatchID
	g := txn.Generation(1)
	number(t, l, "batch", &n)
	number(t, l, "oldest", &oldest)
	number(t, l, "generation", &g)
	switch cmd {
	case "finished":
		return now, BatchFinished{n}
	case "committed":
		return now, Committed{Batch: n, Data: []byte{byte(n)}}
	case "commit-failed":
		return now, CommitFailed{Batch: n, Err: errors.New("store is away"), Fatal: l.HasArg("fatal")}
	case "ack":
		return now, AckReceived{Generation: g, Batch: n, Oldest: oldest, Last: l.HasArg("last")}
	case "acknowledged":
		return now, Acknowledged{n}
	case "ack-failed":
		return now, AckFailed{Batch: n, Err: errors.New("target is away"), Fatal: l.HasArg("fatal")}
	case "time":
		return now, TimePassed{}
	}
	d.Fatalf(t, "unknown event %q", cmd)
	return 0, nil
}

func format(a Action) string {
	last := func(l bool) string {
		if l {
			return " last"
		}
		return ""
	}
	switch a := a.(type) {
	case Commit:
		return fmt.Sprintf("Commit batch=%d attempt=%d", a.Batch, a.Attempt)
	case Report:
		s := fmt.Sprintf("Report batch=%d handles=", a.Batch)
		for i, h := range a.Handles {
			if i > 0 {
				s += ","
			}
			s += fmt.Sprintf("%d.%d", h.Generation, h.Batch)
		}
		return s
	case Acknowledge:
		return fmt.Sprintf("Acknowledge batch=%d oldest=%d%s", a.Batch, a.Oldest, last(a.Last))
	case Confirm:
		return fmt.Sprintf("Confirm batch=%d%s", a.Batch, last(a.Last))
	case WakeAt:
		return fmt.Sprintf("WakeAt %v", a.At)
	case Ignore:
		return strings.Replace(fmt.Sprintf("Ignore %T", a.Event), "protocol.", "", 1)
	case Fail:
		return "Fail: " + a.Err.Error()
	}
	return fmt.Sprintf("unknown action %T", a)
}
