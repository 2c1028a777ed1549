package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-io/isobar/bolt/filesink"
	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
	"github.com/isobar-io/isobar/engine/link/peer"
	"github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/engine/worker/remote"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

const (
	words  = 200_000
	keys   = 500
	secret = "s3cret"
)

// count counts tuples by key.
type count struct{ total *txn.Aggregate[int64] }

func (*count) DeclareOutputFields(d *txn.OutputDeclarer) { d.Declare("word", "total") }

func (c *count) Open(_ *txn.Context, s *txn.State) error {
	c.total = txn.NewAggregate(s, "total", txn.Sum())
	return nil
}

// executing, if it is set, is called by the next Execute.
var executing atomic.Pointer[func()]

func (c *count) Execute(*tuple.Tuple, *txn.Collector) error {
	if f := executing.Load(); f != nil && executing.CompareAndSwap(f, nil) {
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

func topology(t *testing.T, out string) *engine.Topology {
	t.Helper()
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout {
		return generator.New(generator.Options{
			Fields: tuple.Fields{"word"}, Tuples: words, Partitions: 4, Rate: 200_000,
			Emit: func(i uint64, out *txn.Collector) { out.Emit1(tuple.String(fmt.Sprintf("w%d", i%keys))) },
		})
	}, 2)
	b.SetBolt("count", func() txn.Bolt { return &count{} }, 3).FieldsGrouping("words", "word")
	b.SetBolt("sink", func() txn.Bolt { return filesink.NewLatest(out) }, 1).GlobalGrouping("count")
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// cluster is a topology master and its workers in one process, over TCP.
type cluster struct {
	t       *testing.T
	topo    *engine.Topology
	opts    []engine.Option
	address chan string
	crew    *remote.Crew
	ready   chan struct{} // the crew is there
	change  func(*remote.WorkerConfig)
	changed func() // of the crew
}

// dismissing tells workers at the end of the run that there will be no other.
type dismissing struct{ *remote.Crew }

func (d dismissing) Close(hung bool) {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	d.Dismiss(ctx)
	d.Crew.Close(hung)
}

const lease = 2 * time.Second

func newCluster(t *testing.T, out string) *cluster {
	store := memstore.New()
	c := &cluster{t: t, topo: topology(t, out), address: make(chan string, 1), ready: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	conf, err := config.Of(map[string]any{"transaction.schedule.batch.delay.ms": 20, "topology.restart.max": 0, "topology.debug.poison.frames": true})
	if err != nil {
		t.Fatal(err)
	}
	c.opts = []engine.Option{
		engine.WithName("words"),
		engine.WithStore(store, memstore.NewOpener(store)),
		engine.WithConfig(conf),
		engine.WithLogger(log),
	}
	return c
}

func identity(p *plan.Plan) remote.Identity {
	return remote.Identity{Topology: "words-1", Epoch: 1, Secret: secret, Plan: remote.Fingerprint(p)}
}

// lead runs the topology master until the end.
func (c *cluster) lead(ctx context.Context) (engine.Result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return engine.Result{}, err
	}
	var served sync.WaitGroup
	defer served.Wait()
	defer l.Close()
	crew := func(p *plan.Plan) (worker.Crew, error) {
		c.crew = remote.NewCrew(remote.CrewConfig{Identity: identity(p), Plan: p, Lease: lease, Logger: slog.New(slog.DiscardHandler), Changed: c.changed})
		place := map[string][]int{}
		for _, task := range p.Tasks {
			w := fmt.Sprintf("w%d", task.ID%2)
			place[w] = append(place[w], task.ID)
		}
		c.crew.Place(place)
		served.Go(func() { c.crew.Serve(l) })
		c.address <- l.Addr().String()
		close(c.ready)
		return dismissing{c.crew}, nil
	}
	return engine.Run(ctx, c.topo, append(c.opts, engine.WithCrew(crew))...)
}

// work runs a worker until the run is over or ctx ends.
func (c *cluster) work(ctx context.Context, id string, incarnation uint64, address string) error {
	masters := make(chan string, 1)
	masters <- address
	return engine.Work(ctx, c.topo, func(ctx context.Context, w engine.Workplace) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		node, err := peer.NewNode(peer.Config{
			Topology: "words-1", Worker: id, Incarnation: remote.IncarnationText(incarnation), Listener: l, Lease: lease,
			Streams: w.Plan.Streams(), Registry: w.Codecs, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		defer node.Close()
		cfg := remote.WorkerConfig{
			Identity: identity(w.Plan), Worker: id, Incarnation: incarnation,
			Plan: w.Plan, Env: w.Env, Links: remote.Over(node, id), LinkAddress: l.Addr().String(), Masters: masters,
			Dial:  func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) },
			Lease: lease, StopTimeout: w.StopTimeout, Logger: slog.New(slog.DiscardHandler),
		}
		if c.change != nil {
			c.change(&cfg)
		}
		return remote.Serve(ctx, cfg)
	}, c.opts...)
}

func check(t *testing.T, out string) {
	t.Helper()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != keys {
		t.Errorf("%d words are counted, and there are %d", len(lines), keys)
	}
	for _, l := range lines {
		if _, n, _ := strings.Cut(l, "\t"); n != fmt.Sprint(words/keys) {
			t.Errorf("%q, want a count of %d", l, words/keys)
		}
	}
}

// Workers that are lost again and again, each time replaced by a later process, cost
// nothing but time.
func TestWorkersCount(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tsv")
	c := newCluster(t, out)
	commits := make(chan struct{}, 1)
	c.opts = append(c.opts, engine.WithHook(func(step string) { // of tasks: the store has none
		if step == "commit.after" {
			select {
			case commits <- struct{}{}:
			default:
			}
		}
	}))
	var result engine.Result
	var err error
	led := make(chan struct{})
	go func() {
		defer close(led)
		result, err = c.lead(t.Context())
	}()
	address := <-c.address
	<-c.ready
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			id := fmt.Sprintf("w%d", i)
			for incarnation := uint64(1); ; incarnation++ {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.work(ctx, id, incarnation, address) }()
				lost := make(chan struct{})
				if incarnation < 4 {
					go func() {
						defer close(lost)
						for range 5 + rand.N(40) {
							select {
							case <-commits:
							case <-led:
							}
						}
						cancel()
					}()
				} else {
					close(lost)
				}
				if werr := <-ended; werr != nil {
					t.Errorf("worker %s: %v", id, werr)
				}
				<-lost
				again := ctx.Err() != nil
				cancel()
				select {
				case <-led:
					return
				default:
				}
				if !again {
					return
				}
			}
		})
	}
	<-led
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome != checkpoint.Completed || result.Restarts == 0 {
		t.Errorf("the run ended with %v after %d restarts, want it completed after some", result.Outcome, result.Restarts)
	}
	check(t, out)
	emitted := uint64(0)
	for id := 1; id <= 6; id++ {
		emitted += c.crew.Stats(id).TuplesEmitted()
	}
	if emitted < words/2 {
		t.Errorf("workers have reported %d tuples emitted, and the input has %d", emitted, words)
	}
}

// A worker without the secret, of another epoch, or of another topology gets nowhere and
// is told why; one that was replaced is as well.
func TestStrangersAreRefused(t *testing.T) {
	p, _, err := engine.Layout(topology(t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	crew := remote.NewCrew(remote.CrewConfig{Identity: identity(p), Plan: p, Lease: lease, Logger: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); crew.Serve(l) }()
	for _, c := range []struct {
		name   string
		change func(*remote.Identity)
		want   string
	}{
		{"secret", func(id *remote.Identity) { id.Secret = "guess" }, "does not know the secret"},
		{"epoch", func(id *remote.Identity) { id.Epoch = 2 }, "belongs to epoch 2"},
		{"topology", func(id *remote.Identity) { id.Topology = "other-1" }, "belongs to epoch 1 of topology other-1"},
		{"plan", func(id *remote.Identity) { id.Plan = "x" }, "built another topology"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := identity(p)
			c.change(&id)
			err := join(l.Addr().String(), id, "w0", 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if err := join(l.Addr().String(), identity(p), "w0", 7); err != nil {
		t.Errorf("a worker that belongs here: %v", err)
	}
	if err := join(l.Addr().String(), identity(p), "w0", 6); err == nil || !strings.Contains(err.Error(), "replaced by a later process") {
		t.Errorf("an earlier process of a worker: %v, want it refused", err)
	}
	l.Close()
	<-served
	crew.Close(false)
}

// join connects and closes again once admitted.
func join(address string, id remote.Identity, workerID string, incarnation uint64) error {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer nc.Close()
	return remote.Join(nc, id, workerID, incarnation)
}
