package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/link/peer"
	layout "github.com/isobar-io/isobar/engine/plan"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/engine/worker/remote"
)

// crewed is a topology whose tasks run on workers, which exchange tuples over TCP as
// processes do. All are in this process, so that they share its processors and counters.
type crewed struct {
	workers  int
	topology *engine.Topology
	opts     []engine.Option
	masters  []chan string
	crew     *remote.Crew
}

const linkLease = 15 * time.Second

// runOnWorkers is engine.Run on a number of workers.
func runOnWorkers(ctx context.Context, workers int, t *engine.Topology, opts ...engine.Option) error {
	c := &crewed{workers: workers, topology: t, opts: opts}
	for range workers {
		c.masters = append(c.masters, make(chan string, 1))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var served sync.WaitGroup
	errs := make([]error, workers+1)
	for i := range workers {
		served.Go(func() { errs[i] = c.work(working, i) })
	}
	open := func(p *layout.Plan) (worker.Crew, error) {
		c.crew = remote.NewCrew(remote.CrewConfig{Identity: identityOf(p), Plan: p, Lease: linkLease, Logger: slog.New(slog.DiscardHandler)})
		c.crew.Place(c.places(p))
		served.Go(func() { c.crew.Serve(l) })
		for _, m := range c.masters {
			m <- l.Addr().String()
		}
		return dismissing{c.crew}, nil
	}
	_, errs[workers] = engine.Run(ctx, t, append(opts, engine.WithCrew(open))...)
	stop()
	_ = l.Close() // it ends Serve
	served.Wait()
	return errors.Join(errs...)
}

// dismissing tells workers at the end of the run that there will be no other.
type dismissing struct{ *remote.Crew }

func (d dismissing) Close(hung bool) {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	d.Dismiss(ctx)
	d.Crew.Close(hung)
}

func identityOf(p *layout.Plan) remote.Identity {
	return remote.Identity{Topology: p.Topology, Epoch: 1, Plan: remote.Fingerprint(p)}
}

// places deals the tasks to the workers, as the even scheduler does.
func (c *crewed) places(p *layout.Plan) map[string][]int {
	places := map[string][]int{}
	for _, t := range p.Tasks {
		w := workerName((t.ID - 1) % c.workers)
		places[w] = append(places[w], t.ID)
	}
	return places
}

func workerName(i int) string { return fmt.Sprint("worker ", i) }

// work is one of the workers.
func (c *crewed) work(ctx context.Context, i int) error {
	return engine.Work(ctx, c.topology, func(ctx context.Context, w engine.Workplace) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		log := slog.New(slog.DiscardHandler)
		node, err := peer.NewNode(peer.Config{
			Topology: w.Plan.Topology, Worker: workerName(i), Incarnation: "1", Listener: l, Lease: linkLease,
			Streams: w.Plan.Streams(), Registry: w.Codecs, Logger: log,
		})
		if err != nil {
			return err
		}
		err = remote.Serve(ctx, remote.WorkerConfig{
			Identity: identityOf(w.Plan), Worker: workerName(i), Incarnation: 1,
			Plan: w.Plan, Env: w.Env, Links: remote.Over(node, workerName(i)), LinkAddress: l.Addr().String(),
			Masters: c.masters[i], Lease: linkLease, StopTimeout: w.StopTimeout, Logger: log,
			Dial: func(address string) (net.Conn, error) { return net.Dial("tcp", address) },
		})
		return errors.Join(err, node.Close())
	}, c.opts...)
}
