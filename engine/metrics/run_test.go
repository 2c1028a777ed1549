package metrics_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/metrics"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// numbers emits 0 to n-1, on another stream what is odd, and then waits to end.
type numbers struct {
	n, at int
	end   <-chan struct{}
	wake  chan<- func()
}

func (s *numbers) DeclareOutputFields(d *txn.OutputDeclarer) {
	d.Declare("n")
	d.DeclareStream("odd", "n")
}

func (s *numbers) Open(ctx *txn.Context) error {
	s.wake <- ctx.Wake
	return nil
}

func (s *numbers) Partitions(context.Context) ([]txn.PartitionID, error) {
	return []txn.PartitionID{"all"}, nil
}

func (s *numbers) Seek(_ txn.PartitionID, pos []byte) error {
	if pos != nil {
		s.at = int(binary.BigEndian.Uint64(pos))
	}
	return nil
}

func (s *numbers) NextTuple(out *txn.Collector) (txn.Status, error) {
	if s.at < s.n {
		out.Emit1(tuple.Int(s.at))
		if s.at%2 == 1 {
			out.EmitTo("odd", tuple.Int(s.at))
		}
		s.at++
		return txn.Emitted, nil
	}
	select {
	case <-s.end:
		return txn.Finished, nil
	default:
		return txn.Idle, nil
	}
}

func (s *numbers) FinishBatch(txn.BatchID) ([]txn.Position, error) {
	return []txn.Position{{Partition: "all", Data: binary.BigEndian.AppendUint64(nil, uint64(s.at))}}, nil
}

// relay passes on what it gets, when the gate is open.
type relay struct {
	gate <-chan struct{}
	fail *atomic.Int64 // if set, fails on this tuple, once
}

func (r relay) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("n") }

func (r relay) Execute(t *tuple.Tuple, out *txn.Collector) error {
	<-r.gate
	if r.fail != nil && r.fail.CompareAndSwap(t.Int64(0), -1) {
		return errors.New("it was to fail")
	}
	out.Emit1(t.Value(0))
	return nil
}

// tally counts by value.
type tally struct{ n *txn.Aggregate[int64] }

func (b *tally) Open(_ *txn.Context, s *txn.State) error {
	b.n = txn.NewAggregate(s, "n", txn.Sum())
	return nil
}

func (b *tally) Execute(*tuple.Tuple, *txn.Collector) error { return b.n.Add(1) }

// shown is a run that is shown over HTTP.
type shown struct {
	t     *testing.T
	url   string
	gate  chan struct{} // holds relay up until it is closed
	end   chan struct{}
	wake  chan func()
	fail  *atomic.Int64
	ended chan struct{}
	err   error
}

// show runs numbers → relay → tally, with tally reading the odd ones directly too.
func show(t *testing.T, n int, opts ...engine.Option) *shown {
	s := &shown{t: t, gate: make(chan struct{}), end: make(chan struct{}), wake: make(chan func(), 100),
		fail: &atomic.Int64{}, ended: make(chan struct{})}
	s.fail.Store(-1)
	b := engine.NewTopologyBuilder()
	b.SetSpout("numbers", func() txn.Spout { return &numbers{n: n, end: s.end, wake: s.wake} }, 1)
	b.SetBolt("relay", func() txn.Bolt { return relay{s.gate, s.fail} }, 2).ShuffleGrouping("numbers")
	b.SetBolt("tally", func() txn.Bolt { return &tally{} }, 2).FieldsGrouping("relay", "n").
		Grouping("numbers", "odd", engine.Fields("n"))
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	h := metrics.NewHandler()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.url = server.URL
	if health, code := s.health(); health.Status != "starting" || code != http.StatusServiceUnavailable {
		t.Errorf("before the run: %+v, status %d", health, code)
	}
	opts = append([]engine.Option{engine.WithName("sums"), engine.WithInspector(h.Watch), engine.WithConfig(settings(t))}, opts...)
	go func() {
		defer close(s.ended)
		_, s.err = engine.Run(context.Background(), topo, opts...)
	}()
	return s
}

func (s *shown) get(path string) (string, int) {
	res, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body), res.StatusCode
}

func (s *shown) health() (h metrics.Health, code int) {
	body, code := s.get("/healthz")
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		s.t.Fatal(err)
	}
	return h, code
}

func (s *shown) scrape() map[string]*dto.MetricFamily {
	body, code := s.get("/metrics")
	if code != http.StatusOK {
		s.t.Fatalf("status %d: %s", code, body)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return families
}

// value adds up the values, or counts, of the metrics with these labels ("name=value").
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	total := 0.0
	for _, m := range families[name].GetMetric() {
		have := " "
		for _, l := range m.GetLabel() {
			have += l.GetName() + "=" + l.GetValue() + " "
		}
		fits := true
		for _, l := range labels {
			fits = fits && strings.Contains(have, " "+l+" ")
		}
		if fits {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// await scrapes until the run has come as far.
func (s *shown) await(what string, ok func(map[string]*dto.MetricFamily) bool) map[string]*dto.MetricFamily {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		f := s.scrape()
		if ok(f) {
			return f
		}
		if time.Now().After(deadline) {
			body, _ := s.get("/metrics")
			health, _ := s.get("/healthz")
			s.t.Fatalf("waited in vain for %s:\n%s\n%s", what, health, body)
		}
	}
}

func (s *shown) finish() {
	s.t.Helper()
	close(s.end)
	for len(s.wake) > 0 {
		(<-s.wake)()
	}
	<-s.ended
	if s.err != nil {
		s.t.Error(s.err)
	}
}

func settings(t *testing.T) config.Values {
	v, err := config.ParseAssignments([]string{"transaction.schedule.batch.delay.ms=5", "topology.frame.tuples=64"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestRunShowsWhatItDoes(t *testing.T) {
	const n = 100_000 // more than all queues hold
	s := show(t, n)
	s.await("a full queue", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_queue_fill_ratio", "component=relay", "source=numbers") == 1 &&
			value(f, "isobar_backpressure_seconds_total", "component=numbers", "receiver=relay") > 0 &&
			value(f, "isobar_task_seconds_total", "component=tally", "state=idle") > 0
	})
	close(s.gate)
	f := s.await("all tuples and their commit", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_tuples_executed_total", "component=tally") == n+n/2 && value(f, "isobar_pending_batches") == 0 &&
			value(f, "isobar_state_bytes", "component=tally") > 0 &&
			value(f, "isobar_state_memory_bytes", "component=tally", "part=entries") > 0
	})
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{n, "isobar_tuples_emitted_total", []string{"component=numbers", "stream=default", "topology=sums"}},
		{n / 2, "isobar_tuples_emitted_total", []string{"component=numbers", "stream=odd"}},
		{n, "isobar_tuples_emitted_total", []string{"component=relay"}},
		{n, "isobar_tuples_executed_total", []string{"component=relay", "source=numbers", "stream=default"}},
		{n / 2, "isobar_tuples_executed_total", []string{"component=tally", "source=numbers", "stream=odd"}},
		{n, "isobar_execute_duration_seconds", []string{"component=relay"}},
		{1, "isobar_region_running", []string{"region=numbers"}},
		{0, "isobar_region_degraded", nil},
		{1, "isobar_generation", nil},
		{0, "isobar_restarts_total", nil},
		{1, "isobar_build_info", []string{"version=" + engine.Version}},
		{value(f, "isobar_committed_batches_total"), "isobar_checkpoint_duration_seconds", []string{"region=numbers"}},
		{value(f, "isobar_committed_batches_total"), "isobar_checkpoint_phase_duration_seconds", []string{"phase=store"}},
		{value(f, "isobar_committed_batches_total"), "isobar_checkpoint_phase_duration_seconds", []string{"phase=commit"}},
		{value(f, "isobar_committed_batches_total"), "isobar_last_checkpoint_batch", nil},
		{value(f, "isobar_committed_batches_total") * 5, "isobar_checkpoint_phase_duration_seconds", []string{"phase=copy"}},
		{value(f, "isobar_committed_batches_total") * 4, "isobar_checkpoint_phase_duration_seconds", []string{"phase=align"}},
		{value(f, "isobar_committed_batches_total"), "isobar_checkpoint_phase_duration_seconds", []string{"phase=wait", "component=numbers"}},
		{value(f, "isobar_committed_batches_total") * 2, "isobar_checkpoint_phase_duration_seconds", []string{"phase=write", "component=tally"}},
	} {
		if got := value(f, want.name, want.labels...); got != want.value {
			t.Errorf("%s%q is %g, want %g", want.name, want.labels, got, want.value)
		}
	}
	for _, name := range []string{"isobar_committed_batches_total", "isobar_checkpoint_stored_bytes_total",
		"isobar_checkpoint_manifest_bytes_total", "isobar_alignment_late_seconds_total"} {
		if value(f, name) <= 0 {
			t.Errorf("%s is %g", name, value(f, name))
		}
	}
	if age := float64(time.Now().UnixMilli())/1000 - value(f, "isobar_last_checkpoint_timestamp_seconds"); age < 0 || age > 60 {
		t.Errorf("the last checkpoint is %g s old", age)
	}
	checkComplete(t, f)
	checkDashboard(t, f)
	checkHealth(t, s)
	s.finish()
	if health, _ := s.health(); health.Status != "ok" || health.Regions[0].State != "over" {
		t.Errorf("after the run: %+v", health)
	}
}

func checkHealth(t *testing.T, s *shown) {
	t.Helper()
	health, code := s.health()
	if health.Status != "ok" || code != http.StatusOK || health.Topology != "sums" || health.UptimeSeconds <= 0 || len(health.Regions) != 1 {
		t.Fatalf("status %d: %+v", code, health)
	}
	r := health.Regions[0]
	if r.Region != "numbers" || r.State != "running" || r.Generation != 1 || r.LastCheckpoint == "" || *r.LastCheckpointAgeSeconds > 60 {
		t.Errorf("region: %+v", r)
	}
	for path, want := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "engine/task"} {
		if body, code := s.get(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %d bytes", path, code, len(body))
		}
	}
}

// Counters never fall, whatever is rolled back.
func TestCountersGoOnThroughARestart(t *testing.T) {
	const n = 1000
	s := show(t, n)
	s.fail.Store(n / 2)
	close(s.gate)
	f := s.await("the restart and the rest", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_restarts_total") == 1 && value(f, "isobar_tuples_executed_total", "component=tally", "source=numbers") >= n/2 &&
			value(f, "isobar_pending_batches") == 0 && value(f, "isobar_last_checkpoint_batch") > 0 && value(f, "isobar_region_running") == 1
	})
	if g := value(f, "isobar_generation"); g != 2 {
		t.Errorf("generation %g", g)
	}
	if got := value(f, "isobar_tuples_emitted_total", "component=numbers", "stream=default"); got < n {
		t.Errorf("%g tuples emitted in both generations together", got)
	}
	s.finish()
}

// unreachable is a store that takes nothing of some name while it is down.
type unreachable struct {
	checkpoint.Store
	prefix string
	down   atomic.Bool
}

func (u *unreachable) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if u.down.Load() && strings.HasPrefix(name, u.prefix) {
		return errors.New("the cable is out")
	}
	return u.Store.Put(ctx, name, body, size, crc)
}

func TestHealthTellsOfAStoreThatCannotBeReached(t *testing.T) {
	for prefix, want := range map[string]string{
		"manifest/": "store unreachable for ",
		"data/":     `component "tally" task `,
	} {
		t.Run(prefix, func(t *testing.T) {
			store := &unreachable{Store: memstore.New(), prefix: prefix}
			store.down.Store(true)
			s := show(t, 100, engine.WithStore(store, memstore.NewOpener(store)))
			close(s.gate)
			tells := func(reason string) bool {
				return strings.HasPrefix(reason, want) && strings.HasSuffix(reason, ": the cable is out")
			}
			s.await("the outage", func(f map[string]*dto.MetricFamily) bool {
				health, code := s.health() // before it runs it is not well
				return code == http.StatusOK && value(f, "isobar_region_degraded") == 1 && health.Status == "degraded" &&
					slices.ContainsFunc(health.Regions[0].Degraded, tells)
			})
			store.down.Store(false)
			s.await("the end of the outage", func(f map[string]*dto.MetricFamily) bool {
				return value(f, "isobar_region_degraded") == 0 && value(f, "isobar_committed_batches_total") > 0
			})
			if n := value(s.scrape(), "isobar_restarts_total"); n != 0 {
				t.Errorf("%g restarts", n)
			}
			s.finish()
		})
	}
}

// stuck is a store that takes no state file before it is let.
type stuck struct {
	checkpoint.Store
	free chan struct{}
}

func (u *stuck) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, crc uint32) error {
	if strings.HasPrefix(name, "data/") {
		select {
		case <-u.free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return u.Store.Put(ctx, name, body, size, crc)
}

func TestGivenUpBatchesAreCounted(t *testing.T) {
	v, err := config.ParseAssignments([]string{"transaction.batch.snapshot.timeout=1"})
	if err != nil {
		t.Fatal(err)
	}
	store := &stuck{Store: memstore.New(), free: make(chan struct{})}
	s := show(t, 100, engine.WithStore(store, memstore.NewOpener(store)), engine.WithConfig(v))
	close(s.gate)
	s.await("a batch to be given up", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_given_up_batches_total") > 0 && value(f, "isobar_committed_batches_total") == 0
	})
	close(store.free)
	s.await("the next checkpoint", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_pending_batches") == 0 && value(f, "isobar_committed_batches_total") > 0
	})
	s.finish()
}

func TestHealthTellsOfAFailedRegion(t *testing.T) {
	v, err := config.ParseAssignments([]string{"topology.restart.max=1"})
	if err != nil {
		t.Fatal(err)
	}
	s := show(t, 100, engine.WithConfig(v), engine.WithStorage(func(context.Context, engine.Opening) (engine.Storage, error) {
		m := memstore.New()
		return engine.Storage{Store: m, State: noState{}}, nil
	}))
	<-s.ended
	health, code := s.health()
	if s.err == nil || health.Status != "failed" || code != http.StatusServiceUnavailable || !strings.Contains(health.Regions[0].Error, "no disk") {
		t.Errorf("%v; status %d: %+v", s.err, code, health)
	}
}

type noState struct{}

func (noState) OpenState(context.Context, checkpoint.StateConfig) (checkpoint.StateStore, error) {
	return nil, errors.New("no disk")
}

func TestAtMostOnceRunIsShownToo(t *testing.T) {
	v, err := config.ParseAssignments([]string{"transaction.topology=false"})
	if err != nil {
		t.Fatal(err)
	}
	s := show(t, 1000, engine.WithConfig(v))
	close(s.gate)
	s.await("all tuples", func(f map[string]*dto.MetricFamily) bool {
		return value(f, "isobar_tuples_executed_total", "component=tally") == 1500 && value(f, "isobar_region_running") == 1
	})
	s.finish()
}
