package slots

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/isobar-io/isobar/engine/cluster"
)

// The transcripts are of supervisor s1 with slots 6700 and 6701. Each line is a moment
// and an event.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var r run
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				r = run{table: New(limits(), State{})}
				return ""
			case "reopen": // as the next supervisor does with what is on disk
				text, err := json.Marshal(r.table.State())
				var s State
				if err == nil {
					err = json.Unmarshal(text, &s)
				}
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				r.table = New(limits(), s)
				return ""
			case "step":
				return r.lines(t, d)
			case "show":
				return r.show()
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func limits() Limits {
	return Limits{
		Supervisor: "s1", Ports: []int{6700, 6701},
		BeatTimeout: 30 * time.Second, StartTimeout: 120 * time.Second,
		Grace: 10 * time.Second, CloseGrace: 30 * time.Second, DumpTime: 5 * time.Second,
		RestartMin: time.Second, RestartMax: 30 * time.Second, Settled: time.Minute,
	}
}

type run struct{ table *Table }

func (r *run) lines(t *testing.T, d *datadriven.TestData) string {
	var sb strings.Builder
	for text := range strings.Lines(d.Input) {
		text = strings.TrimSpace(text)
		fmt.Fprintln(&sb, text)
		fields := strings.Fields(text)
		now, err := time.ParseDuration(fields[0])
		if err != nil {
			d.Fatalf(t, "%q: %v", text, err)
		}
		l := line{t: t, d: d, verb: fields[1], args: map[string]string{}}
		for _, f := range fields[2:] {
			k, v, _ := strings.Cut(f, "=")
			l.args[k] = v
		}
		ev := l.event(r)
		before := r.table.Changes()
		// The wall clock of the transcripts shows the seconds since the start.
		actions := r.table.Step(Moment{Now: now, Unix: int64(now / time.Second)}, ev)
		for _, a := range actions {
			fmt.Fprintln(&sb, "  "+a.String())
		}
		for _, a := range actions {
			if _, start := a.(Start); start && r.table.Changes() == before {
				d.Fatalf(t, "%q: a start without a change that is kept", text)
			}
		}
		if next, ok := r.table.Next(); l.has("next") {
			fmt.Fprintf(&sb, "  next %s %v\n", next, ok)
		}
	}
	return sb.String()
}

func (r *run) show() string {
	var sb strings.Builder
	for _, s := range r.table.Slots() {
		fmt.Fprintf(&sb, "%s %s epoch=%d number=%d incarnation=%d pid=%d since=%d restarts=%d exit=%q\n",
			s.Place, s.Phase, s.Epoch, s.Number, s.Incarnation, s.PID, s.Since, s.Restarts, s.Exit)
	}
	fmt.Fprintf(&sb, "topologies %v closed=%v\n", r.table.Topologies(), r.table.Closed())
	return sb.String()
}

// line is one event: a verb and named arguments.
type line struct {
	t    *testing.T
	d    *datadriven.TestData
	verb string
	args map[string]string
}

func (l *line) has(key string) bool { _, ok := l.args[key]; return ok }

func (l *line) num(key string, missing int) int {
	if !l.has(key) {
		return missing
	}
	n, err := strconv.Atoi(l.args[key])
	if err != nil {
		l.d.Fatalf(l.t, "%s: %v", key, err)
	}
	return n
}

// text returns an argument in which _ stands for a space.
func (l *line) text(key string) string { return strings.ReplaceAll(l.args[key], "_", " ") }

// place parses ID/master or ID/PORT.
func (l *line) place(s string) Place {
	id, name, ok := strings.Cut(s, "/")
	if !ok {
		l.d.Fatalf(l.t, "%q is no place", s)
	}
	if name == "master" {
		return Place{ID: id, Role: cluster.RoleMaster}
	}
	port, err := strconv.Atoi(name)
	if err != nil {
		l.d.Fatalf(l.t, "%q: %v", s, err)
	}
	return Place{ID: id, Role: cluster.RoleWorker, Port: port}
}

// assignment parses ID:EPOCH.NUMBER[:stop]@PLACE,PLACE where a place is that of a
// master, s1, or of a worker, s1/6700.
func (l *line) assignment(s string) cluster.Assignment {
	head, where, _ := strings.Cut(s, "@")
	parts := strings.Split(head, ":")
	name, _, _ := strings.Cut(parts[0], "-")
	a := cluster.Assignment{ID: parts[0], Topology: name, Stop: len(parts) == 3}
	if _, err := fmt.Sscanf(parts[1], "%d.%d", &a.Version.Epoch, &a.Number); err != nil {
		l.d.Fatalf(l.t, "%q: %v", s, err)
	}
	for place := range strings.SplitSeq(where, ",") {
		supervisor, port, worker := strings.Cut(place, "/")
		if !worker {
			a.Master = supervisor
			continue
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			l.d.Fatalf(l.t, "%q: %v", s, err)
		}
		a.Workers = append(a.Workers, cluster.WorkerPlace{Slot: cluster.Slot{Supervisor: supervisor, Port: n}})
	}
	return a
}

// each calls f for the parts of an argument.
func (l *line) each(key string, f func(part string)) {
	if l.args[key] == "" {
		return
	}
	for part := range strings.SplitSeq(l.args[key], ";") {
		f(part)
	}
}

func (l *line) event(r *run) Event {
	at := func() Place { return l.place(l.args["at"]) }
	incarnation := func() uint64 { return uint64(l.num("incarnation", int(r.incarnation(at())))) }
	switch l.verb {
	case "recovered":
		return l.recovered()
	case "listed":
		ev := Listed{Mark: l.args["mark"]}
		l.each("unread", func(id string) { ev.Unread = append(ev.Unread, id) })
		l.each("all", func(s string) { ev.Assignments = append(ev.Assignments, l.assignment(s)) })
		return ev
	case "assigned":
		return Assigned{Assignment: l.assignment(l.args["a"])}
	case "removed":
		return Removed{ID: l.args["id"]}
	case "master-seen":
		return MasterSeen{ID: l.args["id"], Record: cluster.MasterRecord{
			Epoch: uint64(l.num("epoch", 1)), Incarnation: uint64(l.num("incarnation", 0)), Address: l.args["address"],
		}}
	case "prepared":
		return Prepared{Place: at()}
	case "prepare-failed":
		return PrepareFailed{Place: at(), Reason: l.text("why")}
	case "started":
		return Started{Place: at(), PID: l.num("pid", 0), Birth: "b"}
	case "start-failed":
		return StartFailed{Place: at(), Reason: l.text("why")}
	case "looked":
		return Looked{Place: at(), Incarnation: incarnation(), Changed: l.has("changed")}
	case "exited":
		return Exited{Place: at(), Incarnation: incarnation(), Code: l.num("code", -1), How: l.text("how")}
	case "cleaned":
		return Cleaned{Place: at()}
	case "health":
		return HealthFound{Unhealthy: l.text("bad")}
	case "blobs-changed":
		var ev BlobsChanged
		l.each("at", func(s string) { ev.Places = append(ev.Places, l.place(s)) })
		return ev
	case "kill":
		return KillOrdered{}
	case "closing":
		return Closing{EndProcesses: l.has("end")}
	case "ticked":
		return Ticked{}
	}
	l.d.Fatalf(l.t, "unknown event %q", l.verb)
	return nil
}

// recovered parses alive=PLACE:EPOCH.INCARNATION:PID and ended=PLACE:INCARNATION:CODE.
func (l *line) recovered() Event {
	var ev Recovered
	l.each("alive", func(s string) {
		parts := strings.Split(s, ":")
		a := Alive{Place: l.place(parts[0]), Birth: "b"}
		if _, err := fmt.Sscanf(strings.Join(parts[1:], " "), "%d.%d %d", &a.Epoch, &a.Incarnation, &a.PID); err != nil {
			l.d.Fatalf(l.t, "%q: %v", s, err)
		}
		ev.Alive = append(ev.Alive, a)
	})
	l.each("ended", func(s string) {
		parts := strings.Split(s, ":")
		e := Exited{Place: l.place(parts[0]), How: "has noted its exit code"}
		if _, err := fmt.Sscanf(strings.Join(parts[1:], " "), "%d %d", &e.Incarnation, &e.Code); err != nil {
			l.d.Fatalf(l.t, "%q: %v", s, err)
		}
		ev.Ended = append(ev.Ended, e)
	})
	return ev
}

func (r *run) incarnation(p Place) uint64 {
	for _, s := range r.table.Slots() {
		if s.Place == p {
			return s.Incarnation
		}
	}
	return 0
}
