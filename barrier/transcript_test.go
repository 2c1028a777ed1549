package barrier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/isobar-io/isobar/tuple"
)

var kinds = map[string]tuple.MarkKind{
	"barrier": tuple.MarkBarrier, "last": tuple.MarkLastBarrier, "end": tuple.MarkEnd, "idle": tuple.MarkIdle,
}

func kindName(k tuple.MarkKind) string {
	for name, kind := range kinds {
		if kind == k {
			return name
		}
	}
	return fmt.Sprint(k)
}

// number scans a numeric argument if it is there.
func number[T ~uint64](t *testing.T, l *datadriven.TestData, key string, dest *T) bool {
	var n uint64
	found := l.MaybeScanArgs(t, key, &n)
	if found {
		*dest = T(n)
	}
	return found
}

// lines runs fn for every input line of a transcript, and shows what it returns
// below the line.
func lines(t *testing.T, d *datadriven.TestData, fn func(line *datadriven.TestData) []string) string {
	var sb strings.Builder
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		fmt.Fprintln(&sb, line)
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "parse %q: %v", line, err)
		}
		for _, out := range fn(&datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args}) {
			fmt.Fprintln(&sb, "  "+out)
		}
	}
	return sb.String()
}

// The transcript of an Aligner: each line is a barrier seen on an input.
func TestAlignerTranscript(t *testing.T) {
	var a *Aligner
	datadriven.RunTest(t, "testdata/aligner.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			c := AlignerConfig{Generation: 1, Next: 1, ExactlyOnce: !d.HasArg("at-least-once")}
			d.ScanArgs(t, "inputs", &c.Inputs)
			number(t, d, "generation", &c.Generation)
			number(t, d, "next", &c.Next)
			a = NewAligner(c)
			return ""
		case "step":
			return lines(t, d, func(l *datadriven.TestData) []string {
				ev := BarrierSeen{Generation: a.cfg.Generation, Kind: kinds[l.Cmd]}
				l.ScanArgs(t, "input", &ev.Input)
				number(t, l, "batch", &ev.Batch)
				number(t, l, "generation", &ev.Generation)
				if l.MaybeScanArgs(t, "sent", &ev.Announced) {
					l.ScanArgs(t, "received", &ev.Received)
				}
				return formatAlign(a.Step(ev))
			})
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

func formatAlign(actions []AlignAction) []string {
	var out []string
	for _, a := range actions {
		s := strings.TrimPrefix(fmt.Sprintf("%T", a), "barrier.")
		switch a := a.(type) {
		case Block:
			s += fmt.Sprintf(" input=%d", a.Input)
		case Complete:
			s += fmt.Sprintf(" batch=%d kind=%s", a.Batch, kindName(a.Kind))
		case Unblock:
			s += fmt.Sprintf(" inputs=%v", a.Inputs)
		case Ignore:
			s += fmt.Sprintf(" generation=%d", a.Generation)
		case Reject:
			s += ": " + a.Err.Error()
		}
		out = append(out, s)
	}
	return out
}

// The transcript of a Schedule: each line is what happened, at a time if given, and
// shows the decision that follows.
func TestScheduleTranscript(t *testing.T) {
	var s *Schedule
	var now time.Duration
	datadriven.RunTest(t, "testdata/schedule.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			c := ScheduleConfig{Interval: time.Second, Next: 1}
			d.MaybeScanArgs(t, "max-pending", &c.MaxPending)
			number(t, d, "next", &c.Next)
			now = 0
			s = NewSchedule(c, now)
			return ""
		case "step":
			return lines(t, d, func(l *datadriven.TestData) []string {
				var at string
				if l.MaybeScanArgs(t, "at", &at) {
					var err error
					if now, err = time.ParseDuration(at); err != nil {
						l.Fatalf(t, "%v", err)
					}
				}
				var n tuple.BatchID
				number(t, l, "batch", &n)
				switch l.Cmd {
				case "changed":
					number(t, l, "after", &n)
					s.InputChanged(n)
				case "committed":
					s.Committed(n)
				case "gave-up":
					s.GaveUp(n)
				case "request":
					var kind string
					l.ScanArgs(t, "kind", &kind)
					s.Request(kinds[kind])
				case "time":
				default:
					l.Fatalf(t, "unknown event %q", l.Cmd)
				}
				return formatDecision(s.Decide(now))
			})
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

func formatDecision(d Decision) []string {
	var out []string
	if in := d.Inject; in.Kind != tuple.MarkNone {
		s := fmt.Sprintf("Inject batch=%d kind=%s", in.Batch, kindName(in.Kind))
		if in.Pause {
			s += " pause"
		}
		out = append(out, s)
	}
	if d.Resume {
		out = append(out, "Resume")
	}
	if d.WakeAt != 0 {
		out = append(out, fmt.Sprintf("WakeAt %v", d.WakeAt))
	}
	return out
}
