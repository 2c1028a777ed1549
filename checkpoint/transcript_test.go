package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/isobar-io/isobar/tuple"
)

// transcript runs fn for every input line and shows what it returns below the line.
// A line begins with a moment if timed.
func transcript(t *testing.T, d *datadriven.TestData, timed bool, fn func(now time.Duration, l *line) []string) string {
	var sb strings.Builder
	for text := range strings.Lines(d.Input) {
		text = strings.TrimSpace(text)
		fmt.Fprintln(&sb, text)
		l, now := &line{t: t, d: d, args: map[string]string{}}, time.Duration(0)
		fields := strings.Fields(text)
		if timed {
			var err error
			if now, err = time.ParseDuration(fields[0]); err != nil {
				d.Fatalf(t, "%q: %v", text, err)
			}
			fields = fields[1:]
		}
		l.verb = fields[0]
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f, "=")
			l.args[k] = v
		}
		for _, out := range fn(now, l) {
			fmt.Fprintln(&sb, "  "+out)
		}
	}
	return sb.String()
}

// line is one event of a transcript: a verb and named arguments.
type line struct {
	t    *testing.T
	d    *datadriven.TestData
	verb string
	args map[string]string
}

func (l *line) has(key string) bool { _, ok := l.args[key]; return ok }

func (l *line) num(key string) uint64 { return l.numOr(key, 0) }

func (l *line) numOr(key string, missing uint64) uint64 {
	if !l.has(key) {
		return missing
	}
	n, err := strconv.ParseUint(l.args[key], 10, 64)
	if err != nil {
		l.d.Fatalf(l.t, "%s: %v", key, err)
	}
	return n
}

// tasks returns the tasks named in tasks=0,1 or task=0.
func (l *line) tasks() []TaskID {
	var ids []TaskID
	for s := range strings.SplitSeq(l.args["tasks"], ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			l.d.Fatalf(l.t, "tasks: %v", err)
		}
		ids = append(ids, TaskID(n))
	}
	return ids
}

// ref returns the checkpoint named in key=generation.batch, or nil.
func (l *line) ref(key string) *Ref {
	s, ok := l.args[key]
	if !ok {
		return nil
	}
	var r Ref
	if _, err := fmt.Sscanf(s, "%d.%d", &r.Generation, &r.Batch); err != nil {
		l.d.Fatalf(l.t, "%s: %v", key, err)
	}
	r.Manifest = ManifestName(r.Generation, r.Batch, "r", "u")
	r.Ended = l.has("ended")
	return &r
}

func flag(name string, on bool) string {
	if on {
		return " " + name
	}
	return ""
}

func refName(r *Ref) string {
	if r == nil {
		return "none"
	}
	return r.String()
}

// The transcripts of a Coordinator: a region of spouts 0 and 1, a bolt 2 that does
// not report, and a bolt 3 that does. Each line is a moment and an event.
func TestCoordinatorTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/coordinator", func(t *testing.T, path string) {
		var c *Coordinator
		var g Generation
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				cfg := testRegion()
				d.MaybeScanArgs(t, "max-pending", &cfg.MaxPending)
				d.MaybeScanArgs(t, "max-restarts", &cfg.MaxRestarts)
				c, g = NewCoordinator(cfg), 0
				return ""
			case "step":
				return transcript(t, d, true, func(now time.Duration, l *line) (out []string) {
					for _, ev := range coordinatorEvents(l, &g) {
						for _, a := range c.Step(now, ev) {
							out = append(out, formatAction(a))
						}
					}
					return out
				})
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func testRegion() Config {
	return Config{
		Region: "r",
		Tasks: []Task{
			{ID: 0, Spout: true, Reports: true}, {ID: 1, Spout: true, Reports: true},
			{ID: 2}, {ID: 3, Reports: true},
		},
		Interval:        time.Second,
		SnapshotTimeout: 120 * time.Second,
		AckRepeat:       5 * time.Second,
		RestartMin:      time.Second,
		RestartMax:      3 * time.Second,
		StoreRetry:      2 * time.Second,
	}
}

// coordinatorEvents returns the events of a line. g is the generation last raised,
// which the events are of if they do not name another.
func coordinatorEvents(l *line, g *Generation) (evs []Event) {
	gen := Generation(l.numOr("gen", uint64(*g)))
	batch, oldest := BatchID(l.num("batch")), BatchID(l.num("oldest"))
	err := errors.New(l.verb)
	perTask := func(ev func(TaskID) Event) {
		for _, id := range l.tasks() {
			evs = append(evs, ev(id))
		}
	}
	switch l.verb {
	case "started":
		return []Event{Started{}}
	case "raised":
		*g = max(*g, gen)
		return []Event{GenerationRaised{Generation: gen, From: l.ref("from"), Oldest: oldest}}
	case "ready":
		perTask(func(id TaskID) Event { return TaskReady{gen, id} })
	case "changed":
		perTask(func(id TaskID) Event { return InputChanged{gen, id, BatchID(l.num("after"))} })
	case "snapshot":
		perTask(func(id TaskID) Event {
			return SnapshotReported{gen, id, batch, TaskSnapshot{Component: "c", Index: int(id)}}
		})
	case "ended":
		perTask(func(id TaskID) Event { return SpoutFinished{gen, id} })
	case "stored":
		return []Event{ManifestStored{gen, Ref{Generation: gen, Batch: batch}}}
	case "store-failed":
		return []Event{ManifestFailed{gen, batch, err}}
	case "cannot-store":
		perTask(func(id TaskID) Event { return StoreFailed{gen, id, err} })
	case "moved":
		return []Event{HeadMoved{gen, batch, oldest}}
	case "head-failed":
		return []Event{HeadFailed{gen, err}}
	case "confirmed":
		perTask(func(id TaskID) Event { return AckConfirmed{gen, id, batch, l.has("last")} })
	case "failed":
		perTask(func(id TaskID) Event { return TaskFailed{Generation: gen, Task: id, Err: err} })
	case "restore-failed":
		return []Event{RestoreFailed{gen, err}}
	case "fenced":
		return []Event{Fenced{err}}
	case "checkpoint":
		return []Event{CheckpointRequested{}}
	case "stop":
		return []Event{StopRequested{}}
	case "time":
		return []Event{TimePassed{}}
	default:
		l.d.Fatalf(l.t, "unknown event %q", l.verb)
	}
	return evs
}

func settledUpTo(n BatchID) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" settled=%d", n)
}

func formatAction(a Action) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", a), "checkpoint.")
	switch a := a.(type) {
	case StopTasks:
		return fmt.Sprintf("%s gen=%d", name, a.Generation)
	case RaiseGeneration:
		return name + settledUpTo(a.Settled)
	case Restore:
		return fmt.Sprintf("%s gen=%d from=%s", name, a.Generation, refName(a.From))
	case StartTasks:
		return fmt.Sprintf("%s gen=%d next=%d%s", name, a.Generation, a.Next, map[bool]string{true: " hold"}[a.Hold])
	case InjectBarrier:
		kind := map[tuple.MarkKind]string{tuple.MarkBarrier: "barrier", tuple.MarkLastBarrier: "last", tuple.MarkEnd: "end"}[a.Kind]
		return fmt.Sprintf("%s gen=%d batch=%d kind=%s%s", name, a.Generation, a.Batch, kind, flag("pause", a.Pause))
	case Resume:
		return fmt.Sprintf("%s gen=%d", name, a.Generation)
	case StoreManifest:
		var tasks []int
		for _, t := range a.Tasks {
			tasks = append(tasks, t.Index)
		}
		return fmt.Sprintf("%s gen=%d batch=%d tasks=%v%s", name, a.Generation, a.Batch, tasks, flag("ended", a.Ended))
	case MoveHead:
		return fmt.Sprintf("%s gen=%d ref=%v%s%s", name, a.Generation, a.Ref, flag("ended", a.Ref.Ended), settledUpTo(a.Settled))
	case AckCommit:
		return fmt.Sprintf("%s gen=%d batch=%d oldest=%d tasks=%v%s", name, a.Generation, a.Batch, a.Oldest, a.Tasks, flag("last", a.Last))
	case GiveUp:
		return fmt.Sprintf("%s batch=%d late=%v", name, a.Batch, a.Late)
	case Finish:
		return fmt.Sprintf("%s %s%s", name, map[Outcome]string{Completed: "completed", Stopped: "stopped"}[a.Outcome], settledUpTo(a.Settled))
	case FailRegion:
		return fmt.Sprintf("%s: %v", name, a.Err)
	case Note:
		return fmt.Sprintf("%s: %s", name, a.Text)
	case WakeAt:
		return fmt.Sprintf("%s %v", name, a.At)
	}
	return "unknown action " + name
}
