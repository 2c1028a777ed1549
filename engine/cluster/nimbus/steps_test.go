package nimbus

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// mortal is the store of a nimbus that dies at one of its writes: before it, or when it was
// done and the answer has not come. The lease does not count.
type mortal struct {
	*memcluster.Store
	mu    sync.Mutex
	left  int  // writes until then
	after bool // it dies when the write was done
	dead  bool
}

func (m *mortal) do(write func() error) error {
	m.mu.Lock()
	dies := m.left == 0
	m.left--
	m.dead = m.dead || dies
	after := m.after
	m.mu.Unlock()
	if !dies {
		return write()
	}
	if after {
		_ = write() // nobody hears of it
	}
	m.Cut()
	return cluster.ErrUnavailable
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) DeleteBucket(ctx context.Context, name string) error {
	return m.do(func() error { return m.Store.DeleteBucket(ctx, name) })
}

func (m *mortal) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := m.Store.Bucket(ctx, name, create)
	return mortalBucket{b, m}, err
}

type mortalBucket struct {
	cluster.Bucket
	m *mortal
}

func (b mortalBucket) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	write := func() error {
		revision, err = b.Bucket.Create(ctx, key, value)
		return err
	}
	if key == cluster.KeyLeader {
		err = write()
	} else {
		err = b.m.do(write)
	}
	return revision, err
}

func (b mortalBucket) Update(ctx context.Context, key string, value []byte, old uint64) (revision uint64, err error) {
	write := func() error {
		revision, err = b.Bucket.Update(ctx, key, value, old)
		return err
	}
	if key == cluster.KeyLeader {
		err = write()
	} else {
		err = b.m.do(write)
	}
	return revision, err
}

func (b mortalBucket) Put(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	err = b.m.do(func() error {
		revision, err = b.Bucket.Put(ctx, key, value)
		return err
	})
	return revision, err
}

func (b mortalBucket) Delete(ctx context.Context, key string, old uint64) error {
	return b.m.do(func() error { return b.Bucket.Delete(ctx, key, old) })
}

// insist sends a request until it is done, or wc has a status that tells that it was.
func (w *world) insist(verb string, body any, done ...cluster.Status) {
	w.t.Helper()
	w.until(3*time.Minute, verb+" is done", func() bool {
		return w.call("ann", verb, body, nil) == nil || slices.Contains(done, w.sees("wc"))
	})
}

// sees returns the status of a topology, "gone" if a leader says so, and "" if none answers.
func (w *world) sees(name string) cluster.Status {
	var d cluster.Detail
	err := w.call("root", cluster.VerbStatus, cluster.Named{Name: name}, &d)
	if err != nil && strings.Contains(err.Error(), "is not there") {
		return "gone"
	}
	return d.Topology.Status
}

// Case: the coordinator died while it cleaned up, and what was there was taken for final. A
// leader that dies at any of its writes leaves nothing half done: the next one goes on.
func TestLeaderMayDieAtAnyWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, died := 0, true; died; n++ {
			bubble(t, func(w *world, _ []*machine) {
				store := &mortal{Store: w.server.Connect("nimbus"), left: n, after: after}
				w.runNimbus("n1", store, nil)
				w.until(time.Minute, "it leads, or is dead", func() bool {
					return store.isDead() || w.call("root", cluster.VerbHealth, nil, nil) == nil
				})
				w.addNimbus("n2")
				w.leads()
				w.lifeOfATopology()
				died = store.isDead()
			})
			if t.Failed() {
				t.Fatalf("the leader has died at write %d, after it was done: %v", n, after)
			}
		}
	}
}

// lifeOfATopology submits wc, spreads it anew and kills it, and checks what is left.
func (w *world) lifeOfATopology() {
	w.t.Helper()
	s := w.program("wc", "v1")
	w.insist(cluster.VerbSubmit, s, cluster.Active)
	d := w.runs("wc")
	w.insist(cluster.VerbRebalance, cluster.Rebalance{Name: "wc", WaitSecs: 5, Workers: 3}, cluster.Rebalancing)
	w.until(5*time.Minute, "it is spread", func() bool { return w.sees("wc") == cluster.Active })
	now := w.runs("wc")
	if now.Topology.ID != d.Topology.ID || now.Topology.Version.Epoch != 2 || len(now.Assignment.Workers) != 3 || now.Topology.Error != "" {
		w.t.Errorf("after the rebalance: %+v", now.Topology)
	}
	w.insist(cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 5}, cluster.Killed, "gone")
	w.until(5*time.Minute, "it is gone", func() bool { return w.sees("wc") == "gone" })
	if left := w.left(); len(left) > 0 {
		w.t.Errorf("what is left: %q", left)
	}
}

// left returns what there is of topologies in the store, and their workers that run.
func (w *world) left() (left []string) {
	w.t.Helper()
	store := w.server.Connect("root")
	defer store.Close()
	names, err := store.Buckets(w.ctx)
	w.must(err)
	for _, name := range names {
		if strings.HasPrefix(name, cluster.TopologyBucket("")) {
			left = append(left, name)
		}
	}
	for _, name := range []string{cluster.BucketAssignments, cluster.BucketSecrets, cluster.BucketTopologies} {
		b, err := store.Bucket(w.ctx, name, false)
		w.must(err)
		entries, err := b.List(w.ctx)
		w.must(err)
		for _, e := range entries {
			if e.Key != cluster.KeyMark {
				left = append(left, name+"/"+e.Key)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, runs := range w.workers {
		if runs {
			left = append(left, key)
		}
	}
	return left
}
