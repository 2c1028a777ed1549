package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const (
	id   = "words-1-1"
	keys = 100
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most of the time is waiting
		panic(err)
	}
	m.Run()
}

// count counts tuples by key.
type count struct {
	b     *bench
	total *txn.Aggregate[int64]
}

func (*count) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "total") }

func (c *count) Open(ctx *txn.Context, s *txn.State) error {
	if f := c.b.opening.Load(); f != nil {
		(*f)()
	}
	c.b.password.Store(ctx.Credentials()["password"])
	c.total = txn.NewAggregate(s, c.b.state, txn.Sum())
	return nil
}

func (c *count) Execute(*tuple.Tuple, *txn.Collector) error {
	if f := c.b.executing.Load(); f != nil {
		(*f)()
	}
	return c.total.Add(1)
}

func (c *count) FinishBatch(_ txn.BatchID, changed *txn.Changed, out *txn.Collector) error {
	for changed.Next() {
		total, _, err := c.total.Get()
		if err != nil {
			return err
		}
		out.Emit2(changed.Key()[0], tuple.Int64(total))
	}
	return nil
}

// bench is a topology with its stores and its processes, all in this one.
type bench struct {
	t      *testing.T
	server *memcluster.Server
	store  *memstore.Store
	out    string
	tuples uint64
	rate   float64
	lease  time.Duration
	state  string        // of the counters
	epoch  uint64        // of the version
	every  time.Duration // between barriers

	password atomic.Value // what the last counter that was opened could see
	// opening and executing, if they are set, are called by counters before anything else.
	opening, executing atomic.Pointer[func()]
}

func newBench(t *testing.T, tuples uint64, rate float64) *bench {
	b := &bench{t: t, server: memcluster.New(), store: memstore.New(), out: filepath.Join(t.TempDir(), "out.tsv"), tuples: tuples, rate: rate, lease: 2 * time.Second, state: "total", epoch: 1, every: 20 * time.Millisecond}
	if _, err := b.client().Bucket(t.Context(), cluster.TopologyBucket(id), true); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) client() cluster.Store { return b.server.Connect("test") }

func (b *bench) config(role cluster.Role, worker string, incarnation uint64) process.Config {
	b.t.Helper()
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("words", func() txn.Spout {
		return generator.New(generator.Options{
			Fields: tuple.Fields{"word"}, Tuples: b.tuples, Partitions: 4, Rate: b.rate,
			Emit: func(i uint64, out *txn.Collector) { out.Emit1(tuple.String(fmt.Sprintf("w%d", i%keys))) },
		})
	}, 2)
	tb.SetBolt("count", func() txn.Bolt { return &count{b: b} }, 2).FieldsGrouping("words", "word")
	tb.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(b.out) }, 1).GlobalGrouping("count")
	topo, err := tb.Build()
	if err != nil {
		b.t.Fatal(err)
	}
	conf, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": int(b.every.Milliseconds())})
	if err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("role", role, "worker", worker)
	}
	return process.Config{
		Process: cluster.Process{
			Role: role, Topology: "words", ID: id, Epoch: b.epoch, Incarnation: incarnation,
			Worker: worker, Listen: "127.0.0.1:0", Host: "127.0.0.1", Lease: b.lease, Secret: "x",
		},
		Build:   topo,
		Options: []engine.Option{engine.WithName("words"), engine.WithConfig(conf), engine.WithStore(b.store, memstore.NewOpener(b.store)), engine.WithLogger(log)},
		Store:   b.client(),
		Logger:  log,
		Levels:  process.NewLevels(slog.LevelWarn),
	}
}

func (b *bench) put(key string, v any) {
	b.t.Helper()
	bucket, err := b.client().Bucket(b.t.Context(), cluster.TopologyBucket(id), false)
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := bucket.Put(b.t.Context(), key, data); err != nil {
		b.t.Fatal(err)
	}
}

// assign places the tasks on two workers.
func (b *bench) assign() {
	b.put(cluster.KeyAssignment, cluster.Assignment{ID: id, Version: cluster.Version{Epoch: b.epoch}, Workers: []cluster.WorkerPlace{
		{Slot: cluster.Slot{Supervisor: "s", Port: 1}, Tasks: []int{1, 3, 5}},
		{Slot: cluster.Slot{Supervisor: "s", Port: 2}, Tasks: []int{2, 4}},
	}})
}

// leads runs the topology master to its end, which must be a good one.
func (b *bench) leads(all *sync.WaitGroup) {
	all.Go(func() {
		if err := process.Master(b.t.Context(), b.config(cluster.RoleMaster, "", 1)); err != nil {
			b.t.Errorf("topology master: %v", err)
		}
	})
}

// works runs both workers of assign to their ends, which must be good ones.
func (b *bench) works(all *sync.WaitGroup) {
	for i := 1; i <= 2; i++ {
		all.Go(func() {
			if err := process.Worker(b.t.Context(), b.config(cluster.RoleWorker, fmt.Sprintf("s/%d", i), uint64(i))); err != nil {
				b.t.Errorf("worker: %v", err)
			}
		})
	}
}

// run runs the topology master and both workers, active.
func (b *bench) run(all *sync.WaitGroup) {
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: b.epoch, Active: true})
	b.assign()
	b.leads(all)
	b.works(all)
}

// await waits for a status of the topology master that fits.
func (b *bench) await(what string, fits func(cluster.RunStatus) bool) cluster.RunStatus {
	b.t.Helper()
	bucket, err := b.client().Bucket(b.t.Context(), cluster.TopologyBucket(id), false)
	if err != nil {
		b.t.Fatal(err)
	}
	changes, err := bucket.Watch(b.t.Context(), cluster.KeyStatus)
	if err != nil {
		b.t.Fatal(err)
	}
	var s cluster.RunStatus
	for e := range changes {
		if e.Value == nil {
			continue
		}
		s = cluster.RunStatus{} // what is left out must not stay
		if err := json.Unmarshal(e.Value, &s); err != nil {
			b.t.Fatal(err)
		}
		if fits(s) {
			return s
		}
	}
	b.t.Fatalf("the test is over and the topology master has not told %s; it told last: %+v", what, s)
	return s
}

func (b *bench) check() {
	b.t.Helper()
	data, err := os.ReadFile(b.out)
	if err != nil {
		b.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != keys {
		b.t.Errorf("%d words are counted, and there are %d", len(lines), keys)
	}
	for _, l := range lines {
		if _, n, _ := strings.Cut(l, "\t"); n != fmt.Sprint(b.tuples/keys) {
			b.t.Errorf("%q, want a count of %d", l, b.tuples/keys)
		}
	}
}

// A topology runs to its end on two workers; its master tells so, and all processes end.
func TestRunsToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100_000, 0)
	var all sync.WaitGroup
	b.run(&all)
	s := b.await("that it has finished", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseFinished })
	all.Wait()
	b.check()
	if s.Committed == 0 || len(s.Regions) != 1 || s.Regions[0].Last == "" {
		t.Errorf("the last status is %+v, want one with commits of one region", s)
	}
}

// The coordination store may be away from shortly after the start until the end: the
// topology commits all the same. A topology master that dies meanwhile is replaced.
func TestGoesOnWithoutTheCoordinationStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400_000, 40_000)
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	first, kill := context.WithCancel(t.Context())
	defer kill()
	var all sync.WaitGroup
	killed := make(chan error, 1)
	go func() { killed <- process.Master(first, b.config(cluster.RoleMaster, "", 1)) }()
	b.works(&all)
	b.await("that it has committed", func(s cluster.RunStatus) bool { return s.Committed > 0 })
	kill()
	if err := <-killed; !errors.Is(err, process.ErrInterrupted) {
		t.Fatalf("a topology master that its machine stops returns %v, want %v", err, process.ErrInterrupted)
	}
	all.Go(func() {
		if err := process.Master(t.Context(), b.config(cluster.RoleMaster, "", 2)); err != nil {
			t.Errorf("second topology master: %v", err)
		}
	})
	// That it runs says that it knows where its tasks are, which nobody could tell it later.
	b.await("that the second one runs", func(s cluster.RunStatus) bool {
		return s.Incarnation == 2 && s.Active && s.Phase == cluster.PhaseRunning
	})
	b.server.Stop()
	before := b.commits()
	b.until("commits without the coordination store", func() bool { return b.commits() >= before+3 })
	b.server.Start()
	b.await("that it has finished", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseFinished })
	all.Wait()
	b.check()
}

// until waits for what no record tells of.
func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	late, look := time.NewTimer(time.Minute), time.NewTicker(5*time.Millisecond)
	defer late.Stop()
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-late.C:
			b.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// commits returns how many moves of the head there were.
func (b *bench) commits() int {
	_, version, err := b.store.ReadHead(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	if _, err := fmt.Sscan(string(version), &n); err != nil {
		b.t.Fatalf("version %q: %v", version, err)
	}
	return n
}

// An intent to stop ends the run after a last checkpoint, from which the next epoch goes
// on; an inactive topology emits nothing. Components have the credentials from the start.
func TestHeedsIntents(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 10_000)
	b.put(cluster.KeyCredentials, cluster.Credentials{"password": "xyzzy"})
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1})
	b.assign()
	var all sync.WaitGroup
	b.leads(&all)
	b.works(&all)
	s := b.await("that it runs", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseRunning })
	if s.Active || s.Components[0].Emitted+s.Components[1].Emitted+s.Components[2].Emitted != 0 {
		t.Errorf("an inactive topology tells %+v", s)
	}
	if got := b.password.Load(); got != "xyzzy" {
		t.Errorf("a component sees the password %q", got)
	}
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.await("that it emits", func(s cluster.RunStatus) bool { return s.Active && s.Committed > 3 })
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: false, Stop: true})
	b.await("that it has stopped", func(s cluster.RunStatus) bool { return s.Phase == cluster.PhaseStopped })
	all.Wait()
}

// Of a topology that is dropped no last checkpoint is waited for: its workers are told to
// end at the same time, and it could never be complete.
func TestDroppedEndsWithoutALastCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 10_000)
	b.lease = time.Hour // nothing else ends it
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	var workers sync.WaitGroup
	for i := 1; i <= 2; i++ {
		workers.Go(func() {
			if err := process.Worker(ctx, b.config(cluster.RoleWorker, fmt.Sprintf("s/%d", i), uint64(i))); !errors.Is(err, process.ErrInterrupted) {
				t.Errorf("worker: %v", err)
			}
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Master(ctx, b.config(cluster.RoleMaster, "", 1)) }()
	b.await("that it commits", func(s cluster.RunStatus) bool { return s.Committed > 0 })
	terminate()
	workers.Wait()
	b.put(cluster.KeyAssignment, cluster.Assignment{ID: id, Version: cluster.Version{Epoch: 1}, Stop: true})
	select {
	case err := <-ended:
		if !errors.Is(err, process.ErrInterrupted) {
			t.Errorf("the topology master ends with %v, want %v", err, process.ErrInterrupted)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the topology master waits for workers that have ended")
	}
}

// A topology master in whose place another submission has come, while nobody could tell it,
// gives way instead of fencing the other one off again and again.
func TestReplacedMasterGivesWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 10_000)
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	var all sync.WaitGroup
	b.works(&all)
	dir := t.TempDir()
	lead := func(incarnation uint64, once string) error {
		c := b.config(cluster.RoleMaster, "", incarnation)
		c.Dir = dir
		c.Options = append(c.Options, engine.WithStart(engine.Start{Once: once, Begun: process.Begun(c.Process)}))
		return process.Master(t.Context(), c)
	}
	fenced := make(chan error, 1)
	go func() { fenced <- lead(1, "first") }()
	b.await("that it commits", func(s cluster.RunStatus) bool { return s.Committed > 0 })
	other, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { // another submission, of which this test knows no workers: its start is enough
		c := b.config(cluster.RoleMaster, "", 2)
		c.Store = memcluster.New().Connect("other")
		c.Options = append(c.Options, engine.WithStart(engine.Start{Once: "second"}))
		ended <- process.Master(other, c)
	}()
	if err := <-fenced; err == nil || !strings.Contains(err.Error(), "another topology master leads") {
		t.Fatalf("the first one ends with %v, want it fenced", err)
	}
	if err := lead(3, "first"); err != nil {
		t.Errorf("started again, it ends with %v, want that it has nothing more to do", err)
	}
	b.await("that it was replaced", func(s cluster.RunStatus) bool {
		return s.Phase == cluster.PhaseFailed && strings.Contains(s.Error, "taken the place")
	})
	all.Wait() // they were dismissed
	stop()
	if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
		t.Errorf("the other one ends with %v", err)
	}
}
