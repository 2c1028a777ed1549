package nimbus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// paused is a store whose writes can be held up on their way, as those of a process that is
// stopped in the middle of one: when it goes on they arrive, whatever has happened since.
type paused struct {
	*memcluster.Store
	mu      sync.Mutex
	open    chan struct{} // closed: nothing is held up
	arrived []string      // late writes that were carried out
	refused int
}

func newPaused(s *memcluster.Store) *paused {
	p := &paused{Store: s, open: make(chan struct{})}
	close(p.open)
	return p
}

func (p *paused) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

func (p *paused) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.open)
}

func (p *paused) do(ctx context.Context, what string, write func(ctx context.Context) error) error {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return write(ctx)
	default:
	}
	<-open
	err := write(context.WithoutCancel(ctx))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.arrived = append(p.arrived, what)
	} else {
		p.refused++
	}
	return err
}

func (p *paused) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := p.Store.Bucket(ctx, name, create)
	return pausedBucket{b, p, name}, err
}

type pausedBucket struct {
	cluster.Bucket
	p    *paused
	name string
}

func (b pausedBucket) Create(ctx context.Context, key string, value []byte) (rev uint64, err error) {
	err = b.p.do(ctx, "create "+b.name+"/"+key, func(ctx context.Context) (err error) { rev, err = b.Bucket.Create(ctx, key, value); return err })
	return rev, err
}

func (b pausedBucket) Update(ctx context.Context, key string, value []byte, old uint64) (rev uint64, err error) {
	err = b.p.do(ctx, "update "+b.name+"/"+key, func(ctx context.Context) (err error) { rev, err = b.Bucket.Update(ctx, key, value, old); return err })
	return rev, err
}

func (b pausedBucket) Delete(ctx context.Context, key string, old uint64) error {
	return b.p.do(ctx, "delete "+b.name+"/"+key, func(ctx context.Context) error { return b.Bucket.Delete(ctx, key, old) })
}

// A leader that is stopped in the middle of a write, and goes on when another leads, writes
// nothing: not what was under way, and not what it would have done next.
func TestLeaderThatWasPausedWritesNothing(t *testing.T) {
	bubble(t, func(w *world, machines []*machine) {
		zombie := newPaused(w.server.Connect("nimbus"))
		w.runNimbus("n1", zombie, nil)
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		zombie.pause()
		failed := make(chan error, 1)
		client := w.server.Connect("ann")
		w.running.Go(func() { failed <- request(w.ctx, client, cluster.VerbDeactivate, cluster.Named{Name: "wc"}, nil) })
		synctest.Wait() // its write is held up
		w.addNimbus("n2")
		w.until(time.Minute, "another leads", func() bool {
			var h cluster.Health
			return w.call("root", cluster.VerbHealth, nil, &h) == nil && h.Leader == "n2"
		})
		zombie.resume()
		if err := <-failed; err == nil {
			t.Error("a leader that was deposed said that it was done")
		}
		time.Sleep(5 * time.Minute)
		now := w.detail("wc")
		if len(zombie.arrived) > 0 || zombie.refused == 0 {
			t.Errorf("carried out late: %q; refused: %d", zombie.arrived, zombie.refused)
		}
		if now.Topology.Status != cluster.Active || now.Assignment.Number != d.Assignment.Number {
			t.Errorf("the topology is %s, assignment %d", now.Topology.Status, now.Assignment.Number)
		}
	})
}

func TestLeaseIsTakenOnlyWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const length = 15 * time.Second
		one, two := server.Connect("n"), server.Connect("n")
		first, err := acquire(ctx, one, "n1", length)
		if err != nil {
			t.Fatal(err)
		}
		var keeping sync.WaitGroup
		defer keeping.Wait()
		defer stop()
		lost := make(chan error, 1)
		keeping.Go(func() { lost <- first.keep(ctx) })
		won := make(chan time.Time, 1)
		keeping.Go(func() {
			if _, err := acquire(ctx, two, "n2", length); err == nil {
				won <- time.Now()
			}
		})
		time.Sleep(time.Hour)
		select {
		case <-won:
			t.Fatal("the lease was taken while it was renewed")
		case err := <-lost:
			t.Fatalf("the lease was lost: %v", err)
		default:
		}
		one.Unknown() // a renewal that is done, and whose answer is lost
		time.Sleep(time.Minute)
		if !first.valid() {
			t.Fatal("the lease was lost with an answer")
		}
		one.Cut()
		if err := <-lost; !errors.Is(err, errDeposed) || first.valid() {
			t.Errorf("lost with %v, valid %v", err, first.valid())
		}
		ended := time.Now()
		if at := <-won; !at.After(ended) {
			t.Errorf("another leads from %v, the first did until %v", at, ended)
		}
		if _, _, err := first.fence(ctx); !errors.Is(err, errDeposed) {
			t.Errorf("a write after the lease: %v", err)
		}
	})
}

// Nobody takes a lease because of the time in which the store did not answer him.
func TestLeaseIsNotTakenForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		defer keeping.Wait()
		defer stop()
		one, two := server.Connect("n"), server.Connect("n")
		first, err := acquire(ctx, one, "n1", 15*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		keeping.Go(func() { _ = first.keep(ctx) })
		won := make(chan struct{})
		keeping.Go(func() {
			if _, err := acquire(ctx, two, "n2", 15*time.Second); err == nil {
				close(won)
			}
		})
		for range 20 {
			time.Sleep(11 * time.Second)
			two.Cut()
			time.Sleep(11 * time.Second)
			two.Heal()
		}
		select {
		case <-won:
			t.Error("the lease was taken from one who renewed it")
		default:
		}
	})
}

// All buckets are lost while a topology runs: nothing is ended, and the name can be taken up
// again.
func TestLossOfTheStoreEndsNothing(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		old := w.runs("wc")
		started := w.starts()
		w.server.Wipe()
		time.Sleep(5 * time.Minute)
		w.leads()
		running := func(id string) (n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for key, is := range w.workers {
				if is && strings.HasPrefix(key, id+"/") {
					n++
				}
			}
			return n
		}
		if n := running(old.Topology.ID); n != 2 || w.starts() != started {
			t.Errorf("%d of 2 workers run on, %d processes were started", n, w.starts()-started)
		}
		s = w.program("wc", "v1")
		s.Start.From = "latest"
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		now := w.runs("wc")
		time.Sleep(10 * time.Second)
		if n := running(old.Topology.ID); n != 0 || now.Topology.ID == old.Topology.ID {
			t.Errorf("%d workers of the old run are left; %s after %s", n, now.Topology.ID, old.Topology.ID)
		}
	})
}

func TestUnknownOutcomesDoNoHarm(t *testing.T) {
	for n := range 12 {
		bubble(t, func(w *world, _ []*machine) {
			d := w.addNimbus("n1")
			w.leads()
			s := w.program("wc", "v1")
			for range n {
				_ = w.call("ann", cluster.VerbList, nil, nil)
			}
			for range n + 1 {
				d.store.Unknown()
			}
			err := w.call("ann", cluster.VerbSubmit, s, nil)
			if err != nil && !strings.Contains(err.Error(), "it is not known whether this was done") && !strings.Contains(err.Error(), "numbering") {
				t.Errorf("submitting: %v", err)
			}
			if w.status("wc") == "gone" {
				w.until(time.Minute, "it can be submitted", func() bool {
					err := w.call("ann", cluster.VerbSubmit, s, nil)
					return err == nil || strings.Contains(err.Error(), "is there already")
				})
			}
			w.runs("wc")
		})
	}
}
