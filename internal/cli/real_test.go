package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// words is how many there are; tuple i is of the word i%words.
const words = 20

func word(i int) string { return fmt.Sprintf("w%02d", i%words) }

// counter keeps something of each kind for each word.
type counter struct {
	total *txn.Aggregate[int64]
	seen  *txn.Map[int64, string]
	last  *txn.Value[[]byte]
	list  *txn.List[string]
	when  *txn.Timers
}

func (c *counter) Open(_ *txn.Context, s *txn.State) error {
	c.total = txn.NewAggregate(s, "total", txn.Sum())
	c.seen = txn.NewMap(s, "seen", txn.OrderedInt64Codec(), txn.JSONCodec[string]("text", 1))
	c.last = txn.NewValue(s, "last", txn.BytesCodec())
	c.list = txn.NewList(s, "list", txn.StringCodec(), txn.WithTTL(time.Hour))
	c.when = s.Timers()
	return nil
}

func (*counter) OnTimer(txn.Timer, *txn.Collector) error { return nil }

func (c *counter) Execute(t *tuple.Tuple, out *txn.Collector) error {
	n := t.Int64(1)
	out.Emit1(t.Value(0))
	if n < words {
		c.when.SetProcessing(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), "later")
		if err := c.list.Append("first", "second"); err != nil {
			return err
		}
	}
	if err := c.total.Add(1); err != nil {
		return err
	}
	if err := c.seen.Put(n, "n"); err != nil {
		return err
	}
	return c.last.Set([]byte{byte(n)})
}

func (*counter) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word") }

// outside is where sinks publish: records by marker.
type outside struct {
	mu        sync.Mutex
	published map[string]int
}

type outsideSink struct {
	txn.Stage
	o *outside
}

func (s *outsideSink) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	s.Add([]byte(t.Str(0)))
	return nil
}

func (s *outsideSink) Publish(_ context.Context, id txn.TransactionID, records [][]byte) error {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.published[id.String()] = len(records)
	return nil
}

func (o *outside) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, records := range o.published {
		n += records
	}
	return n
}

// counts runs the topology "words" over so many tuples in a data folder, to the end,
// with so many tasks of the counter, and so many tuples a second if rate is not 0.
func counts(t *testing.T, data string, tuples uint64, tasks int, rate float64, o *outside, opts ...engine.Option) engine.Result {
	t.Helper()
	store, err := filestore.Open(filepath.Join(data, "checkpoints", "words"))
	if err != nil {
		t.Fatal(err)
	}
	opener := pebblestate.New(pebblestate.Options{Dir: filepath.Join(t.TempDir(), "local"), Store: store})
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout {
		return generator.New(generator.Options{Fields: tuple.Fields{"word", "n"}, Tuples: tuples, Rate: rate,
			Emit: func(i uint64, out *txn.Collector) { out.Emit2(tuple.String(word(int(i))), tuple.Int(int(i))) }})
	}, 1)
	b.SetBolt("count", func() txn.Bolt { return &counter{} }, tasks).FieldsGrouping("numbers", "word")
	b.SetBolt("sink", func() txn.Bolt { return &outsideSink{o: o} }, 1).GlobalGrouping("count")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	res, err := engine.Run(t.Context(), topology, append(opts, engine.WithName("words"), engine.WithStore(store, opener))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := opener.Close(); err != nil {
		t.Fatal(err)
	}
	return res
}

// counted makes a data folder with two runs, of 100 and of 150 tuples; the second has
// another number of tasks.
func counted(t *testing.T) (data string, o *outside, first, second checkpoint.Ref) {
	t.Helper()
	data, o = t.TempDir(), &outside{published: map[string]int{}}
	first = *counts(t, data, 100, 2, 0, o).Last
	second = *counts(t, data, 150, 3, 0, o).Last
	if o.total() != 150 {
		t.Fatalf("%d records are published, want 150", o.total())
	}
	return data, o, first, second
}

func headFile(t *testing.T, data string) string {
	t.Helper()
	path, err := filestore.HeadFile(filepath.Join(data, "checkpoints", "words"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func headIn(t *testing.T, data string) *checkpoint.Head {
	t.Helper()
	name := headFile(t, data)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := checkpoint.DecodeHead(name, b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// currentIn returns the current checkpoint of the only region.
func currentIn(t *testing.T, data string) checkpoint.Ref {
	t.Helper()
	for _, r := range headIn(t, data).Regions {
		return *r.Current()
	}
	t.Fatal("the head has no region")
	return checkpoint.Ref{}
}

// fails demands an exit code and some text of the error or the output.
func fails(t *testing.T, want int, args []string, texts ...string) string {
	t.Helper()
	code, out, errOut := call(t, args...)
	if code != want {
		t.Fatalf("isobar %s: exit code %d, want %d\n%s\n%s", strings.Join(args, " "), code, want, out, errOut)
	}
	for _, w := range texts {
		if !strings.Contains(out+errOut, w) {
			t.Errorf("isobar %s prints\n%s\n%s\nwithout %q", strings.Join(args, " "), out, errOut, w)
		}
	}
	return out
}

func TestStateIsReadByKey(t *testing.T) {
	data, _, first, _ := counted(t)
	state := func(cmd, name string, more ...string) []string {
		return append([]string{"state", cmd, data}, append(more, "--state", name)...)
	}
	contains(t, []string{"state", "list", data, "--count"}, "count      total", "aggregate  sum", "20 keys, 150 entries", "20 timers", "list+ttl")
	exact := func(want string, args []string) {
		t.Helper()
		if out := contains(t, args); out != want {
			t.Errorf("isobar %s prints\n%q\nwant\n%q", strings.Join(args, " "), out, want)
		}
	}
	exact("w03: 8\n", state("get", "total", "w03"))
	exact("w03: 5\n", state("get", "total", "w03", "--checkpoint", first.String(), "--component", "count"))
	exact("w03: 8\n", state("get", "total", "773033", "--key-hex"))
	exact("w03: 8\n", state("get", "total", `["w03"]`, "--key-json"))
	exact(`{"component":"count","state":"total","key":["w03"],"value":8}`+"\n", state("get", "total", "w03", "--json"))
	exact("w19[19]: \"n\"\nw19[39]: \"n\"\nw19[59]: \"n\"\nw19[79]: \"n\"\nw19[99]: \"n\"\nw19[119]: \"n\"\nw19[139]: \"n\"\n", state("get", "seen", "w19"))
	exact(`{"component":"count","state":"last","key":["w19"],"value":{"hex":"8b"}}`+"\n", state("get", "last", "w19", "--json"))
	contains(t, state("get", "list", "w00"), "w00[0]: first, expires 20", "w00[1]: second")
	contains(t, state("get", "isobar.timers.processing", "w00"), `w00: timer "later" at 2100-01-01 00:00:00.000`)
	contains(t, state("get", "isobar.timers.processing", "w00", "--json"), `"at":4102444800000,"timer":"later","value":null`)
	exact("20 keys\n", state("count", "total"))
	exact("10 keys\n", state("count", "total", "--prefix", "w1"))
	exact("{\n  \"keys\": 20,\n  \"entries\": 150\n}\n", state("count", "seen", "--json"))
	if n := strings.Count(contains(t, state("scan", "seen", "--limit", "7")), "\n"); n != 7 {
		t.Errorf("scan with a limit prints %d lines", n)
	}
	if out := contains(t, state("export", "total", "--prefix", "w1")); strings.Count(out, "\n") != 10 || strings.Count(out, `"key":["w1`) != 10 {
		t.Errorf("export prints\n%s", out)
	}
	fails(t, exitFailed, state("get", "total", "nobody"), "holds nothing for key nobody")
	fails(t, exitFailed, state("get", "totals", "w03"), `has no state "totals"`, `"total"`)
	fails(t, exitFailed, append(state("get", "total", "w03"), "--component", "split"), "no keyed state", "count")
	fails(t, exitFailed, append(state("get", "total", "w03"), "--checkpoint", "9.9"), "there are "+first.String())
	fails(t, exitUsage, append(state("get", "total", "{"), "--key-json"), "JSON array")
	fails(t, exitUsage, append(state("get", "total", "xyz"), "--key-hex"), "hexadecimal")
}

func TestExportPrintsAllState(t *testing.T) {
	data, _, first, _ := counted(t)
	for args, tuples := range map[string]int{"": 150, first.String(): 100} {
		sums, entries := map[string]float64{}, 0
		for line := range strings.Lines(contains(t, append([]string{"checkpoint", "export", data, "words"}, strings.Fields(args)...))) {
			var x exported
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			if entries++; x.State == "total" {
				sums[x.Key[0].(string)] = x.Value.(float64)
			}
		}
		total := 0.0
		for _, n := range sums {
			total += n
		}
		// Per word: total, last, a timer, two elements; and an entry for each tuple.
		if len(sums) != words || int(total) != tuples || entries != 5*words+tuples {
			t.Errorf("%s: %d words, %v tuples, %d entries", args, len(sums), total, entries)
		}
	}
}

func TestDiffCountsWhatHasChanged(t *testing.T) {
	data, _, first, second := counted(t)
	a, b := first.String(), second.String()
	fails(t, exitDifferent, []string{"checkpoint", "diff", data, a, b},
		"State total of count: 0 added, 0 removed, 20 changed", "State seen of count: 50 added, 0 removed, 0 changed",
		"Position of numbers in 0/1: from", "Transaction "+b+" of sink/0 only in "+b)
	fails(t, exitDifferent, []string{"checkpoint", "diff", data, "words", b, a, "--keys"},
		"State seen of count: 0 added, 50 removed", "    - w19[119]: \"n\"", "      w03: 5, was 8")
	var d difference
	if err := json.Unmarshal([]byte(fails(t, exitDifferent, []string{"checkpoint", "diff", data, a, b, "--json", "--keys"})), &d); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(d.States, func(s stateDiff) bool { return s.State == "seen" }); i < 0 || d.States[i].Added != 50 || len(d.States[i].Keys) != 50 {
		t.Errorf("JSON holds %+v", d.States)
	}
	contains(t, []string{"checkpoint", "diff", data, b, b}, "hold the same")
	fails(t, exitUsage, []string{"checkpoint", "diff", data, "words", b}, "name two checkpoints")
}

func TestShowTellsWhatIsShared(t *testing.T) {
	data, _, first, second := counted(t)
	contains(t, []string{"checkpoint", "show", data, "--count", "--shared"}, "shared with "+first.String(), "count: tasks 3, keyed",
		"State total of count: aggregate of sum, version 1, 20 keys", "State seen of count: map of [int64ordered.1]json:text, version 1, 20 keys, 150 entries")
	var got []listed
	if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "list", data, "--json"})), &got); err != nil {
		t.Fatal(err)
	}
	last := got[len(got)-1]
	if last.Checkpoint != second.String() || last.NewBytes >= last.Bytes || last.NewBytes <= 0 {
		t.Errorf("the last line is %+v", last)
	}
}

func TestVerifySaysWhatIsWrong(t *testing.T) {
	data, _, first, second := counted(t)
	contains(t, []string{"checkpoint", "verify", data}, "All is right:", "checkpoint "+second.String())
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right:", first.String())
	name := ""
	for _, ref := range []checkpoint.Ref{first} {
		var ms []checkpoint.Manifest
		if err := json.Unmarshal([]byte(contains(t, []string{"checkpoint", "show", data, ref.String(), "--json"})), &ms); err != nil {
			t.Fatal(err)
		}
		for _, task := range ms[0].Tasks {
			for _, f := range task.Files {
				name = f.Name
			}
		}
	}
	path := filepath.Join(data, "checkpoints", "words", filepath.FromSlash(name))
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := bytes.Clone(right)
	spoilt[len(spoilt)/2] ^= 4
	for what, content := range map[string][]byte{"crc32c is": spoilt, "recorded are": right[:100], "not found": nil} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if content != nil {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := fails(t, exitDamaged, []string{"checkpoint", "verify", data, first.String()}, "BAD "+name, what, "1 damaged or missing")
		if strings.Contains(out, "All is right") {
			t.Errorf("verify prints\n%s", out)
		}
		var found []verified
		if err := json.Unmarshal([]byte(fails(t, exitDamaged, []string{"checkpoint", "verify", data, "--all", "--json"})), &found); err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			if (v.Error != "") != (v.Object == name) {
				t.Errorf("verify says of %s: %q", v.Object, v.Error)
			}
		}
		if err := os.WriteFile(path, right, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right:")
}

// An older head that somebody has put back names nothing that is missing.
func TestVerifySeesAnOlderHead(t *testing.T) {
	data, o := t.TempDir(), &outside{published: map[string]int{}}
	counts(t, data, 100, 1, 0, o)
	old, err := os.ReadFile(headFile(t, data))
	if err != nil {
		t.Fatal(err)
	}
	counts(t, data, 150, 1, 0, o)
	if err := os.WriteFile(headFile(t, data), old, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, exitDamaged, []string{"checkpoint", "verify", data}, "BAD head", "it is of generation 1")
}

// While a topology commits, its checkpoints are pinned, unpinned and pruned.
func TestOperatorsDoNotDisturbARun(t *testing.T) {
	const tuples = 2000
	data, o := t.TempDir(), &outside{published: map[string]int{}}
	base := counts(t, data, 100, 2, 0, o).Last
	contains(t, []string{"checkpoint", "pin", data, base.String(), "--name", "begin"}, `as savepoint "begin"`)
	values, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": 10})
	if err != nil {
		t.Fatal(err)
	}
	var edits sync.WaitGroup
	commits, done := make(chan struct{}, 1), make(chan struct{})
	rounds := 0
	edits.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-commits:
			}
			current := currentIn(t, data).String()
			if current == base.String() { // to unpin it would take the savepoint
				continue
			}
			if code, _, errOut := call(t, "checkpoint", "pin", data, current); code != exitOK {
				if !strings.Contains(errOut, "keeps no such checkpoint") { // the run was faster
					t.Errorf("pin: exit code %d\n%s", code, errOut)
				}
				continue
			}
			rounds++
			for _, args := range [][]string{{"list", data}, {"prune", data, "--keep", "1"}, {"unpin", data, current}, {"verify", data, "words", "begin"}} {
				if code, out, errOut := call(t, append([]string{"checkpoint"}, args...)...); code != exitOK {
					t.Errorf("%q: exit code %d\n%s\n%s", args, code, out, errOut)
				}
			}
		}
	})
	res := counts(t, data, tuples, 3, 1500, o, engine.WithConfig(values), engine.WithHook(func(step string) {
		if step == "ack.after" {
			select {
			case commits <- struct{}{}:
			default:
			}
		}
	}))
	close(done)
	edits.Wait()
	t.Log(rounds, "rounds of edits")
	if rounds == 0 || res.Restarts > 0 || o.total() != tuples {
		t.Errorf("%+v after %d rounds of edits, %d records are published, want %d", res, rounds, o.total(), tuples)
	}
	contains(t, []string{"checkpoint", "verify", data, "--all"}, "All is right:")
	contains(t, []string{"state", "get", data, "w03", "--state", "total"}, fmt.Sprintf("w03: %d\n", tuples/words))
	contains(t, []string{"state", "get", data, "words", "w03", "--state", "total", "--checkpoint", "begin"}, "w03: 5\n")
}
