package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs testdata/transcripts: what is there, and where everything goes. Commands:
//
//	supervisors   one a line: ID ports=1,2 host=h machine=m memory=4096 cpu=400 labels=k=v;…,
//	              down, unhealthy, excluded; those not named stay
//	topology name=N workers=W   with components, one a line: ID TASKS memory=… cpu=… < INPUTS…,
//	              and keys of its configuration, as in key = value
//	change name=N [dead=ID/PORT,…] [leaves=ID/PORT,…] [master-dead] [frozen] [thawed] [gone] [workers=W] [anew]
//	schedule [with=isolation machines=N:3,…] [with=resource]   and run it like that
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		w := &world{supervisors: map[string]Supervisor{}, topologies: map[string]Topology{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "supervisors":
				for line := range strings.Lines(d.Input) {
					w.supervisor(t, strings.Fields(line))
				}
			case "topology":
				w.topology(t, d)
			case "change":
				w.change(t, d)
			case "schedule":
				return w.schedule(t, d)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

// world is a cluster in which plans are carried out at once.
type world struct {
	supervisors map[string]Supervisor
	topologies  map[string]Topology // by name, which is the id as well
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) supervisor(t *testing.T, fields []string) {
	s := Supervisor{Alive: true}
	s.ID, s.Host, s.MemoryMB, s.CPU = fields[0], "host-"+fields[0], 4096, 400
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "ports":
			for port := range strings.SplitSeq(value, ",") {
				s.Ports = append(s.Ports, number(t, port))
			}
		case "host":
			s.Host = value
		case "machine":
			s.Machine = value
		case "memory":
			s.MemoryMB = number(t, value)
		case "cpu":
			s.CPU = number(t, value)
		case "labels":
			s.Labels = map[string]string{}
			for label := range strings.SplitSeq(value, ";") {
				k, v, _ := strings.Cut(label, "=")
				s.Labels[k] = v
			}
		case "down":
			s.Alive = false
		case "unhealthy":
			s.Unhealthy = "disk full"
		case "excluded":
			s.Excluded = "cordoned"
		default:
			t.Fatalf("unknown word %s", field)
		}
	}
	w.supervisors[s.ID] = s
}

func (w *world) topology(t *testing.T, d *datadriven.TestData) {
	var top Topology
	d.ScanArgs(t, "name", &top.Record.Name)
	top.Record.ID = top.Record.Name
	top.Record.Launched = time.Unix(int64(len(w.topologies)), 0)
	v := &top.Record.Version
	if d.HasArg("workers") {
		d.ScanArgs(t, "workers", &v.Workers)
	}
	first := 1
	for line := range strings.Lines(d.Input) {
		if key, value, isKey := strings.Cut(line, " = "); isKey {
			if v.Config == nil {
				v.Config = map[string]any{}
			}
			v.Config[key] = strings.TrimSpace(value)
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
				v.Config[key] = float64(n)
			}
			continue
		}
		words, inputs, _ := strings.Cut(line, "<")
		fields := strings.Fields(words)
		c := component(fields[0], first, number(t, fields[1]), strings.Fields(inputs)...)
		for _, field := range fields[2:] {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "memory":
				c.MemoryMB = number(t, value)
			case "cpu":
				c.CPU = number(t, value)
			}
		}
		v.Components = append(v.Components, c)
		first += c.Tasks
	}
	w.topologies[top.Record.Name] = top
}

func (w *world) change(t *testing.T, d *datadriven.TestData) {
	var name string
	d.ScanArgs(t, "name", &name)
	top, ok := w.topologies[name]
	if !ok {
		d.Fatalf(t, "no topology %s", name)
	}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "dead", "leaves":
			for _, id := range arg.Vals {
				i := slices.IndexFunc(top.Places, func(p Place) bool { return p.ID() == id })
				if i < 0 {
					d.Fatalf(t, "no worker %s", id)
				}
				top.Places[i].Dead, top.Places[i].Avoid = true, arg.Key == "leaves"
			}
		case "master-dead":
			top.MasterDead = true
		case "frozen":
			top.Frozen = true
		case "thawed":
			top.Frozen = false
		case "workers":
			top.Record.Version.Workers = number(t, arg.Vals[0])
		case "anew":
			top.Places = nil
		}
	}
	if w.topologies[name] = top; d.HasArg("gone") {
		delete(w.topologies, name)
	}
}

func (w *world) view() View {
	return View{
		Supervisors: slices.Collect(maps.Values(w.supervisors)),
		Topologies:  slices.Collect(maps.Values(w.topologies)),
	}
}

// schedule carries a plan out and shows it.
func (w *world) schedule(t *testing.T, d *datadriven.TestData) string {
	name, o := Default, Options{Machines: map[string]int{}}
	if d.HasArg("with") {
		d.ScanArgs(t, "with", &name)
	}
	if arg, ok := d.Arg("machines"); ok {
		for _, one := range arg.Vals {
			topology, n, _ := strings.Cut(one, ":")
			o.Machines[topology] = number(t, n)
		}
	}
	s, err := New(name, o)
	if err != nil {
		return err.Error()
	}
	plan := s(w.view())
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		p := plan[name]
		top := w.topologies[name]
		fmt.Fprintf(&out, "%s: master %s\n", name, p.Master)
		before := top.Places
		top.Places = nil
		for _, worker := range p.Workers {
			stays := ""
			if slices.ContainsFunc(before, func(old Place) bool { return old.ID() == worker.ID() && !old.Dead }) {
				stays = " (stays)"
			}
			fmt.Fprintf(&out, "  %s on %s: %v%s\n", worker.ID(), worker.Host, worker.Tasks, stays)
			top.Places = append(top.Places, Place{WorkerPlace: worker})
		}
		if len(p.Unplaced) > 0 {
			fmt.Fprintf(&out, "  unplaced: %v\n", p.Unplaced)
		}
		for _, c := range p.Conditions {
			fmt.Fprintf(&out, "  %s\n", c)
		}
		if !top.Frozen {
			top.Master, top.MasterDead = p.Master, false
		}
		w.topologies[name] = top
	}
	return out.String()
}
