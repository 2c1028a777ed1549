package metamorphic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/txn"
)

// incarnation is one process that runs a topology.
type incarnation struct {
	tasks    map[string]int
	config   map[string]any
	pace     pace
	drags    map[string]drag
	troubles []trouble
	// ending is "completes", "stops" or "dies", the last two at a moment.
	ending string
	at     moment
	// extra are moments at which something else happens: "checkpoint", "deactivate", or
	// "thaw", which lets those that died go on.
	extra []extra
}

// moment is the nth with a name.
type moment struct {
	name string
	nth  int
}

type extra struct {
	moment
	what string
}

func (in *incarnation) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "%s", in.ending)
	if in.ending != "completes" {
		fmt.Fprintf(&sb, " at %s %d", in.at.name, in.at.nth)
	}
	fmt.Fprintf(&sb, "; tasks %v; pace %v", in.tasks, in.pace)
	for _, k := range slices.Sorted(maps.Keys(in.config)) {
		fmt.Fprintf(&sb, "; %s=%v", k, in.config[k])
	}
	if len(in.drags) > 0 {
		fmt.Fprintf(&sb, "; drags %v", in.drags)
	}
	if len(in.troubles) > 0 {
		fmt.Fprintf(&sb, "; troubles %v", in.troubles)
	}
	if len(in.extra) > 0 {
		fmt.Fprintf(&sb, "; extra %v", in.extra)
	}
	return sb.String()
}

// knobs are the settings that may change from run to run without changing the output.
// One that this build does not have is left alone.
var knobs = []struct {
	key    string
	values []any
}{
	{"transaction.schedule.batch.delay.ms", []any{1, 1, 2, 5, 20}},
	{"transaction.max.pending.batch", []any{0, 1, 2, 3, 5}},
	{"transaction.batch.snapshot.timeout", []any{1, 120}},
	{"topology.frame.tuples", []any{64, 65, 256, 1024}},
	{"topology.channel.frames", []any{2, 4, 16}},
	{"topology.state.cache.mb", []any{1, 1, 256}},
	{"checkpoint.retained", []any{1, 2, 3, 5}},
	{"checkpoint.orphan.grace.secs", []any{0, 0, 3600}},
	{"topology.task.chaining", []any{true, false}},
}

// steps are the moments that are not records: the engine's hooks, calls of the store,
// and what is done to the world.
var steps = []string{
	"restore.before", "restore.after", "finish.before", "finish.after", "commit.before", "commit.after",
	"sst.before", "sst.after", "ingest.before", "ingest.after", "ack.before", "ack.after", "publish.before", "publish.after",
	"put data.before", "put data.after", "put manifests.before", "put manifests.after", "swap.before", "swap.after",
	"delete.before", "delete.after", "get.before", "list", "read head",
	"prepare.before", "prepare.after", "discard.before", "discard.after", "stage.before", "stage.after",
	"fence.before", "fence.after", "write.before", "write.after", "show.before", "show.after",
}

func (d *drawing) incarnations() (all []*incarnation) {
	n := 1 + d.r.IntN(5)
	calm := d.lenient && d.chance(2) // so that the output is the same
	for i := range n {
		in := d.incarnation(calm)
		in.ending = "completes"
		if i < n-1 {
			in.ending, in.at = []string{"stops", "dies", "dies"}[d.r.IntN(3)], d.moment()
			if calm {
				in.ending = "stops"
			}
		}
		all = append(all, in)
	}
	return all
}

// moment draws a moment, half of them among the records.
func (d *drawing) moment() moment {
	if d.chance(2) {
		return moment{"record", 1 + d.r.IntN(1+d.records()*2/3)}
	}
	return moment{steps[d.r.IntN(len(steps))], 1 + min(d.r.IntN(30), d.r.IntN(30), d.r.IntN(30))}
}

func (d *drawing) incarnation(calm bool) *incarnation {
	in := &incarnation{tasks: map[string]int{}, config: map[string]any{
		"topology.debug.poison.frames":  true,
		"topology.key.groups":           d.groups,
		"topology.restart.max":          0,
		"transaction.exactly.once.mode": !d.lenient,
	}, drags: map[string]drag{}, pace: pace{1 + min(d.r.IntN(40), d.r.IntN(40)), 2 + min(d.r.IntN(8), d.r.IntN(8))}}
	for _, n := range d.nodes {
		in.tasks[n.id] = 1 + d.r.IntN(4)
		if d.durable { // stores in files are slow to open
			in.tasks[n.id] = 1 + in.tasks[n.id]%2
		}
		if n.fixed > 0 {
			in.tasks[n.id] = n.fixed
		}
		if d.chance(5) {
			rest := time.Duration(1+d.r.IntN(4000)) * time.Microsecond
			in.drags[n.id] = drag{1 + d.r.IntN(40), rest}
		}
	}
	for _, k := range knobs {
		if _, err := config.Lookup(k.key); err == nil && !d.chance(4) {
			in.config[k.key] = k.values[d.r.IntN(len(k.values))]
		}
	}
	for d.chance(3) {
		in.extra = append(in.extra, extra{d.moment(), []string{"checkpoint", "deactivate", "thaw"}[d.r.IntN(3)]})
	}
	if sinks := slices.DeleteFunc(slices.Clone(d.nodes), func(n *node) bool { return !n.isSink() }); !calm && d.chance(3) {
		// What is committed and not published piles up.
		n, most := sinks[d.r.IntN(len(sinks))], 30
		if d.durable {
			most = 3
		}
		in.troubles = append(in.troubles, trouble{n.id + " ack", 1 + d.r.IntN(4), 1 + d.r.IntN(most), fails})
	}
	for !calm && len(in.troubles) < 3 && !d.chance(2) {
		in.troubles = append(in.troubles, d.trouble())
	}
	return in
}

// trouble draws what fails: user code, or the store.
func (d *drawing) trouble() trouble {
	t := trouble{nth: 1 + min(d.r.IntN(40), d.r.IntN(40)), times: 1}
	if d.chance(3) {
		calls := []string{"put data.before", "put data.after", "put manifests.before", "put manifests.after", "swap.before", "swap.after", "get.before", "get.after", "delete.before"}
		t.call, t.times = calls[d.r.IntN(len(calls))], 1+d.r.IntN(3)
		return t
	}
	n := d.nodes[d.r.IntN(len(d.nodes))]
	for n.bad != nil { // there an error would be held against an innocent tuple
		n = d.nodes[d.r.IntN(len(d.nodes))]
	}
	calls := []string{"execute", "execute", "finish", "timer", "end"}
	if n.isSink() {
		calls = []string{"execute", "execute", "finish", "commit", "ack", "ack", "ack"}
	}
	if _, ok := n.work.(source); ok {
		calls = []string{"next", "next", "finish", "partitions"}
	}
	t.call = calls[d.r.IntN(len(calls))]
	if t.call == "execute" {
		t.nth = 1 + d.r.IntN(200)
	}
	switch t.call {
	case "partitions": // before the first tuple, so that more would fail the region for good
		t.nth = 1
	case "commit", "ack": // are tried again, while later batches go on
		t.how, t.times = how(d.r.IntN(3)), 1+d.r.IntN(4)
	default:
		t.how = how(d.r.IntN(3))
	}
	t.call = n.id + " " + t.call
	return t
}

// build makes the topology that an incarnation runs.
func (t *topology) build(in *incarnation, l *life, w *world) (*engine.Topology, error) {
	b := engine.NewTopologyBuilder()
	for _, n := range t.nodes {
		tuples := new(counter)
		newPart := func() part { return part{node: n, l: l, w: w, drag: in.drags[n.id], n: tuples} }
		if _, ok := n.work.(source); ok {
			b.SetSpout(n.id, func() txn.Spout {
				s := n.work.instance(newPart()).(*spout)
				s.pace = in.pace
				return s
			}, in.tasks[n.id])
			continue
		}
		bolt := b.SetBolt(n.id, func() txn.Bolt { return n.work.instance(newPart()).(txn.Bolt) }, in.tasks[n.id])
		for _, i := range n.ins {
			i.subscribe(bolt)
		}
		if n.of != nil {
			bolt.Grouping(n.of.id, engine.FailedStream, engine.Global())
		}
		if n.bad != nil {
			bolt.Config("topology.poison.max.attempts", poisonAttempts)
		}
	}
	return b.Build()
}

// moments makes fuses of what is to happen to an incarnation.
func (in *incarnation) moments(l *life, ctl *engine.Control, thaw func()) {
	add := func(m moment, what string, do func()) {
		l.moments = append(l.moments, &fuse{m.name, m.nth, fmt.Sprintf("%s at %s %d", what, m.name, m.nth), do})
	}
	switch in.ending {
	case "stops":
		add(in.at, "stops", func() { l.stop() })
	case "dies":
		add(in.at, "dies", l.die)
	}
	for _, e := range in.extra {
		add(e.moment, e.what, map[string]func(){
			"checkpoint": ctl.Checkpoint,
			"deactivate": func() { ctl.Deactivate(); time.AfterFunc(30*time.Millisecond, ctl.Activate) },
			"thaw":       thaw,
		}[e.what])
	}
}

// rerun is an incarnation that finds all work done.
func (t *topology) rerun(r *rand.Rand) *incarnation {
	d := &drawing{topology: t, r: r}
	in := d.incarnation(true)
	in.ending, in.extra = "completes", nil
	return in
}
