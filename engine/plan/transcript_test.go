package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// Topologies are written one component a line:
//
//	ROLE ID [tasks=N] [out=STREAM(FIELD,…)]… [in=COMPONENT[/STREAM]:GROUPING[(FIELD,…)][+FIELD]]… [key=FIELD,…]
//
// and shown as tasks, channels and regions, or as what is wrong with them.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			groups := 16
			d.MaybeScanArgs(t, "groups", &groups)
			var comps []Component
			for text := range strings.Lines(d.Input) {
				comps = append(comps, parseComponent(t, d, text))
			}
			p, err := New("topology", groups, comps)
			if err != nil {
				return err.Error()
			}
			switch d.Cmd {
			case "plan":
				return show(p)
			case "fingerprint":
				var sb strings.Builder
				for _, r := range p.Regions {
					fmt.Fprintf(&sb, "%s %s\n", r.Name, p.Fingerprint(r))
				}
				return sb.String()
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

var (
	roles     = map[string]Role{"spout": Spout, "bolt": Plain, "stateful": Stateful, "keyed": Keyed}
	groupings = map[string]txn.Grouping{"shuffle": txn.Shuffle, "fields": txn.ByFields, "all": txn.All, "global": txn.Global}
)

func parseComponent(t *testing.T, d *datadriven.TestData, text string) Component {
	words := strings.Fields(text)
	role, ok := roles[words[0]]
	if !ok {
		d.Fatalf(t, "unknown role in %q", text)
	}
	id, err := strconv.Unquote(words[1])
	if err != nil {
		id = words[1]
	}
	c := Component{ID: id, Role: role, Tasks: 1}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "tasks":
			if c.Tasks, err = strconv.Atoi(value); err != nil {
				d.Fatalf(t, "%q: %v", text, err)
			}
		case "out":
			stream, fields := parseFields(value)
			c.Streams = append(c.Streams, &tuple.Stream{Component: c.ID, ID: stream, Fields: fields})
		case "in":
			from, how, _ := strings.Cut(value, ":")
			in := Input{Stream: tuple.DefaultStream}
			if component, stream, named := strings.Cut(from, "/"); named {
				in.Component, in.Stream = component, stream
			} else {
				in.Component = from
			}
			how, sum, combined := strings.Cut(how, "+")
			if combined {
				in.Combine, in.CombineField = txn.CombineSum, sum
			}
			how, in.Fields = parseFields(how)
			if in.Grouping, ok = groupings[how]; !ok {
				d.Fatalf(t, "unknown grouping in %q", text)
			}
			c.Inputs = append(c.Inputs, in)
		case "key":
			c.KeyFields = strings.Split(value, ",")
		default:
			d.Fatalf(t, "unknown word %q", w)
		}
	}
	return c
}

func parseFields(s string) (name string, fields []string) {
	name, list, ok := strings.Cut(strings.TrimSuffix(s, ")"), "(")
	if ok && list != "" {
		fields = strings.Split(list, ",")
	}
	return name, fields
}

func show(p *Plan) string {
	var sb strings.Builder
	for i := range p.Components {
		c := &p.Components[i]
		first, n := p.TaskIDs(c.ID)
		fmt.Fprintf(&sb, "%s %s: tasks %v", c.Role, c.ID, ids(p.Tasks[first-1:first-1+n]))
		if len(c.Inputs) > 0 {
			fmt.Fprintf(&sb, ", channels from %v", p.Senders(c.ID))
		}
		if c.Role == Keyed {
			for _, in := range c.Inputs {
				fmt.Fprintf(&sb, ", key of %s at %v", in.Component, p.KeyPositions(c, p.Lookup(in.Component).Stream(in.Stream)))
			}
		}
		var subs []string
		for _, s := range p.Subscribers(c.ID) {
			subs = append(subs, s.Component.ID+"/"+s.Input.Stream)
		}
		if len(subs) > 0 {
			fmt.Fprintf(&sb, ", read by %v", subs)
		}
		if p.IsEnd(c.ID) {
			sb.WriteString(", end")
		}
		sb.WriteString("\n")
	}
	for _, r := range p.Regions {
		fmt.Fprintf(&sb, "region %s: tasks %v\n", r.Name, r.Tasks)
	}
	return sb.String()
}

func ids(tasks []Task) []int {
	var all []int
	for _, t := range tasks {
		all = append(all, t.ID)
	}
	return all
}

// A plan is the same on every machine: nothing in it depends on the order of a map.
func TestPlanIsTheSameEveryTime(t *testing.T) {
	build := func() string {
		var comps []Component
		for i := range 12 {
			id := fmt.Sprint("s", i)
			comps = append(comps,
				Component{ID: id, Tasks: 2, Streams: []*tuple.Stream{{Component: id, ID: tuple.DefaultStream, Fields: tuple.Fields{"f"}}}},
				Component{ID: "b" + id, Role: Plain, Tasks: 3, Inputs: []Input{{Component: id, Stream: tuple.DefaultStream, Grouping: txn.All}}})
		}
		p, err := New("t", 8, comps)
		if err != nil {
			t.Fatal(err)
		}
		if p.Lookup("s3") != p.Component(p.IDs("s3")[1]) || p.Lookup("nothing") != nil || p.Lookup("s3").Stream("nothing") != nil {
			t.Error("a component is not found by its id or its tasks")
		}
		if !slices.IsSortedFunc(p.Regions, func(a, b Region) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("regions are not in order")
		}
		return show(p)
	}
	first := build()
	for range 20 {
		if again := build(); again != first {
			t.Fatalf("two plans differ:\n%s\n%s", first, again)
		}
	}
}
