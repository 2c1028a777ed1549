package app_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/app"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// numbers emits 0 to n-1 and then is idle until open is closed.
type numbers struct {
	w       *world
	at      int
	started sync.Once
}

// world is what the topology of a test does, and what became of it.
type world struct {
	n       int
	fail    error
	open    <-chan struct{} // if set, the input ends when it is closed
	idle    chan struct{}   // if set, closed when all has been emitted
	seen    func(ctx *txn.Context)
	mu      sync.Mutex
	sum     int64 // as published
	runs    int   // spouts opened
	results []engine.Result
}

func (s *numbers) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("n") }

func (s *numbers) Open(ctx *txn.Context) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.runs++
	if s.w.seen != nil {
		s.w.seen(ctx)
	}
	return nil
}

func (s *numbers) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{"0"}, nil
}

func (s *numbers) Seek(_ txn.PartitionID, pos []byte) error {
	if pos != nil {
		s.at = int(binary.BigEndian.Uint64(pos))
	}
	return nil
}

func (s *numbers) NextTuple(out *txn.Collector) (txn.Status, error) {
	if s.at < s.w.n {
		out.Emit1(tuple.Int(s.at))
		s.at++
		return txn.Emitted, nil
	}
	s.started.Do(func() {
		if s.w.idle != nil {
			close(s.w.idle)
		}
	})
	if s.w.open == nil {
		return txn.Finished, nil
	}
	select {
	case <-s.w.open:
		return txn.Finished, nil
	default:
		return txn.Idle, nil
	}
}

func (s *numbers) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	return []txn.Position{{Partition: "0", Data: binary.BigEndian.AppendUint64(nil, uint64(s.at))}}, nil
}

// total publishes the sum of all numbers.
type total struct {
	w   *world
	sum *txn.Aggregate[int64]
}

func (b *total) KeyFields() []string { return nil }

func (b *total) Open(_ *txn.Context, s *txn.State) error {
	b.sum = txn.NewAggregate(s, "sum", txn.Sum())
	return nil
}

func (b *total) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	if b.w.fail != nil {
		return b.w.fail
	}
	return b.sum.Add(t.Int64(0))
}

func (b *total) Publish(_ context.Context, _ txn.BatchID, view txn.View, _ bool) error {
	return b.sum.Scan(view, func(_ []tuple.Value, v int64) error {
		b.w.mu.Lock()
		defer b.w.mu.Unlock()
		b.w.sum = v
		return nil
	})
}

func (w *world) build(*app.Flags) (*engine.Topology, error) {
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{w: w} }, 1)
	b.SetBolt("total", func() txn.Bolt { return &total{w: w} }, 1).GlobalGrouping("numbers")
	b.OnFinished(func(r engine.Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results = append(w.results, r)
	})
	return b.Build()
}

// ran is how a program ended.
type ran struct {
	code     int
	out, err string
}

func run(build func(*app.Flags) (*engine.Topology, error), args ...string) ran {
	var out, err bytes.Buffer
	code := app.Run("sum", build, args, &out, &err)
	return ran{code, out.String(), err.String()}
}

func (r ran) want(t *testing.T, code int, stderr ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; it said:\n%s", r.code, code, r.err)
	}
	for _, text := range stderr {
		if !strings.Contains(r.err, text) {
			t.Errorf("it did not say %q but:\n%s", text, r.err)
		}
	}
}

func TestFlags(t *testing.T) {
	stop := errors.New("far enough")
	for line, want := range map[string]string{
		"":                     "[a b] 7 out false",
		"run":                  "[a b] 7 out false",
		"--in x":               "[x] 7 out false",
		"-in x --in=y --in z":  "[x y z] 7 out false",
		"--n=-3 --out= --fast": "[a b] -3  true",
		"--n 1 --n 2":          "[a b] 2 out false",
		"--fast --fast=false":  "[a b] 7 out false",
		"-fast=true -n=4":      "[a b] 4 out true",
		"--out --n=1":          "[a b] 1 out false", // and a complaint
		"--in a=b --out=c=d":   "[a=b] 7 c=d false",
		"run --in run":         "[run] 7 out false",
	} {
		t.Run(line, func(t *testing.T) {
			got := ""
			run(func(f *app.Flags) (*engine.Topology, error) {
				in := f.Strings("in", []string{"a", "b"}, "input")
				n := f.Int("n", 7, "number")
				out, fast := f.String("out", "out", "output"), f.Bool("fast", "be fast")
				got = fmt.Sprint(*in, *n, " ", *out, " ", *fast)
				return nil, stop
			}, strings.Fields(line)...)
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestWrongCommandLinesRunNothing(t *testing.T) {
	for line, want := range map[string][]string{
		"--ouput=x":                            {"unknown flag --ouput, did you mean --output?"},
		"--outpt":                              {"unknown flag --outpt, did you mean --output?"},
		"-d":                                   {"unknown flag -d, did you mean"},
		"--verbos":                             {"did you mean --verbose?"},
		"--output":                             {"flag --output needs a value"},
		"-c":                                   {"flag -c needs a value"},
		"launch":                               {`unexpected argument "launch"`},
		"--n=five":                             {"--n five: must be an integer"},
		"--verbose=maybe":                      {"--verbose=maybe: must be true or false"},
		"--ouput x --n 1.5 y":                  {"--ouput", `"x"`, `"y"`, "--n 1.5"}, // all at once
		"-c checkpoint.retaind=5":              {"checkpoint.retaind is not a configuration key, did you mean checkpoint.retained?"},
		"-c transaction.max.pendin.batch=1":    {"did you mean transaction.max.pending.batch?"},
		"-c checkpoint.retained":               {"-c checkpoint.retained: must be key=value"},
		"-c checkpoint.retained=0":             {"checkpoint.retained", "from 1 to 1000"},
		"-c nimbus.seeds=x":                    {"nimbus.seeds is not supported yet"},
		"-c a.b=1 -c transaction.topology=yes": {"-c a.b=1", "transaction.topology", "true or false"},
		"--config no-such-file.yaml":           {"no-such-file.yaml"},
		"-c checkpoint.store=gs://bucket/x":    {"gs://bucket/x", "must begin with file:// or s3://"},
		"-c checkpoint.store=file://relative/dir": {"file://relative/dir", "must be file:// and an absolute path"},
		"-c checkpoint.store=/var/lib":            {`"/var/lib"`, "must begin with file:// or s3://"},
	} {
		t.Run(line, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			w := &world{n: 1}
			r := run(func(f *app.Flags) (*engine.Topology, error) {
				f.String("output", "", "write to `FILE`")
				f.Int("n", 1, "count")
				return w.build(f)
			}, append(strings.Fields(line), "--data", dir)...)
			r.want(t, 2, append(want, "sum: ", "Run 'sum --help' for usage.")...)
			if _, err := os.Stat(dir); w.runs != 0 || !os.IsNotExist(err) {
				t.Errorf("something was run: %d, %v", w.runs, err)
			}
		})
	}
}

func TestFlagDefinedTwiceIsAMistake(t *testing.T) {
	w := &world{}
	run(func(f *app.Flags) (*engine.Topology, error) {
		f.String("data", "", "mine")
		return w.build(f)
	}).want(t, 2, "flag --data is defined twice")
}

func TestHelpRunsNothing(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"-help"}, {"run", "--help", "--unknown"}} {
		dir := filepath.Join(t.TempDir(), "data")
		w := &world{n: 1}
		r := run(func(f *app.Flags) (*engine.Topology, error) {
			f.String("output", "out.txt", "write the words to `FILE`")
			f.Bool("fast", "be fast")
			if len(args) > 2 {
				return nil, errors.New("there is no input")
			}
			return w.build(f)
		}, append(args, "--data", dir)...)
		r.want(t, 0)
		for _, text := range []string{"Usage: sum [run] [flags]", "--output FILE", "write the words to FILE (default out.txt)",
			"--fast ", "--data DIR", "-c KEY=VALUE", "--config FILE", "--verbose", "--help"} {
			if !strings.Contains(r.out, text) {
				t.Errorf("help does not show %q:\n%s", text, r.out)
			}
		}
		if _, err := os.Stat(dir); w.runs != 0 || !os.IsNotExist(err) || r.err != "" {
			t.Errorf("something was run: %d, %v, %q", w.runs, err, r.err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	w := &world{n: 100}
	r := run(w.build, "--data", dir)
	r.want(t, 0, "numbers 100, total 100 in ", " checkpoints\n")
	if w.sum != 4950 || r.out != "" || len(w.results) != 1 || w.results[0].Outcome != engine.Completed {
		t.Errorf("sum %d, stdout %q, results %v", w.sum, r.out, w.results)
	}
	w.sum = 0
	run(w.build, "run", "--data="+dir).want(t, 0) // nothing left to do: publishes again
	if w.sum != 4950 || len(w.results) != 2 || w.results[1].Committed != 0 {
		t.Errorf("sum %d, results %v", w.sum, w.results)
	}
	bad := &world{n: 10, fail: errors.New("out of luck")}
	run(bad.build, "--data", t.TempDir(), "-c", "topology.restart.max=1").want(t, 1, `sum: topology "sum"`, `component "total"`, "out of luck")
	if len(bad.results) != 0 {
		t.Error("OnFinished was called for a run that failed")
	}
	run(func(*app.Flags) (*engine.Topology, error) { return nil, errors.New("no input") }).want(t, 1, "sum: build the topology: no input")
	run(func(*app.Flags) (*engine.Topology, error) { return nil, nil }).want(t, 1, "returned none")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(w.build, "--data", file).want(t, 1, "lock data folder "+file)
	run(w.build, "--data", t.TempDir(), "-c", "checkpoint.store=file://"+file).want(t, 1, file)
}

func TestConfigurationReachesTheTasks(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("conf.yaml", []byte("user.a: file\nuser.b: file\ncheckpoint.retained: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []any
	w := &world{n: 1, seen: func(ctx *txn.Context) {
		for _, k := range []string{"user.a", "user.b", "checkpoint.retained", "topology.restart.max"} {
			v, _ := ctx.Config(k)
			got = append(got, v)
		}
		got = append(got, ctx.Topology, ctx.Component)
	}}
	data := ""
	run(func(f *app.Flags) (*engine.Topology, error) {
		data = f.Data()
		f.Progress(func(p engine.Progress) string { return fmt.Sprint("restarts so far: ", p.Restarts) })
		return w.build(f)
	}, "--config", "conf.yaml", "-c", "user.b=flag").want(t, 0, "restarts so far: 0\n")
	if want := []any{"file", "flag", 9, 10, "sum", "numbers"}; !slices.Equal(got, want) {
		t.Errorf("tasks saw %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(".isobar", "sum", "checkpoints", "sum")); err != nil || data != filepath.Join(".isobar", "sum") {
		t.Errorf("data folder %q: %v", data, err)
	}
}

func TestStoreURLIsDecoded(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	run((&world{n: 1}).build, "--data", data, "-c", "checkpoint.store=file://"+filepath.ToSlash(dir)+"/check%20points").want(t, 0)
	if _, err := os.Stat(filepath.Join(dir, "check points", "sum")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(data, "checkpoints")); !os.IsNotExist(err) {
		t.Errorf("checkpoints in the data folder too: %v", err)
	}
}

func TestOnlyOneRunAtATimeUsesAFolder(t *testing.T) {
	dir := t.TempDir()
	open, idle := make(chan struct{}), make(chan struct{})
	first := &world{n: 10, open: open, idle: idle}
	ended := make(chan ran)
	go func() { ended <- run(first.build, "--data", dir) }()
	<-idle
	second := &world{n: 10}
	run(second.build, "--data", dir).want(t, 1, "lock data folder "+dir, fmt.Sprintf("in use by process %d", os.Getpid()), "use another folder")
	if second.runs != 0 {
		t.Error("the second one ran")
	}
	close(open)
	r := <-ended
	r.want(t, 0)
	run(second.build, "--data", dir).want(t, 0)
	if first.sum != 45 || second.sum != 45 {
		t.Errorf("sums %d, %d", first.sum, second.sum)
	}
}

func TestCheckpointsThatWereTakenAwayAreMissed(t *testing.T) {
	dir := t.TempDir()
	w := &world{n: 100}
	for range 2 { // the second start notes that there is a head
		run(w.build, "--data", dir).want(t, 0)
	}
	if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(dir, "ran", "sum")
	run(w.build, "--data", dir).want(t, 1, "put them back, or remove "+note+" to start from nothing")
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}
	run(w.build, "--data", dir).want(t, 0)
}
