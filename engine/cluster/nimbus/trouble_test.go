package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// refusing is a store that refuses what is done to one of its buckets, for good.
type refusing struct {
	*memcluster.Store
	mu   sync.Mutex
	name string // of the bucket
	open bool   // refuses to open it, too
}

var errRefused = errors.New("the value is not to the store's taste")

func (r *refusing) refuse(name string, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name, r.open = name, open
}

func (r *refusing) refuses(name string) (write, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name == name, r.name == name && r.open
}

func (r *refusing) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	if _, refused := r.refuses(name); refused {
		return nil, errRefused
	}
	b, err := r.Store.Bucket(ctx, name, create)
	return refusingBucket{b, r, name}, err
}

type refusingBucket struct {
	cluster.Bucket
	r    *refusing
	name string
}

func (b refusingBucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if refused, _ := b.r.refuses(b.name); refused {
		return 0, errRefused
	}
	return b.Bucket.Create(ctx, key, value)
}

func (b refusingBucket) Update(ctx context.Context, key string, value []byte, old uint64) (uint64, error) {
	if refused, _ := b.r.refuses(b.name); refused {
		return 0, errRefused
	}
	return b.Bucket.Update(ctx, key, value, old)
}

// spoilt is a bucket with a record of who leads that is damaged.
type spoilt struct{ *memcluster.Store }

type spoiltBucket struct{ cluster.Bucket }

func (s spoilt) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := s.Store.Bucket(ctx, name, create)
	return spoiltBucket{b}, err
}

func (b spoiltBucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	e, err := b.Bucket.Get(ctx, key)
	if err == nil && len(e.Value) == 0 {
		err = errRefused
	}
	return e, err
}

// A record of who leads that cannot be read keeps nobody from leading for longer than one
// that can.
func TestDamagedLeaseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b, err := server.Connect("root").Bucket(ctx, cluster.BucketNimbus, true)
		if err == nil {
			_, err = b.Put(ctx, cluster.KeyLeader, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		l, err := acquire(ctx, spoilt{server.Connect("n")}, "n1", 15*time.Second)
		if took := time.Since(began); err != nil || took < 15*time.Second || !l.valid() {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// othersAreServed checks that another topology than wc is submitted, runs and is killed.
func (w *world) othersAreServed(name string) {
	w.t.Helper()
	w.must(w.call("ann", cluster.VerbSubmit, w.program(name, "v1"), nil))
	w.runs(name)
	w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: name, WaitSecs: 0}, nil))
	w.until(time.Minute, name+" is gone", func() bool { return w.status(name) == "gone" })
}

// Case: one command that was stuck blocked all others. A topology whose records cannot be
// written is in trouble, and no other one is, nor is its owner told nothing.
func TestTroubleOfOneTopologyIsNotThatOfOthers(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		store := &refusing{Store: w.server.Connect("nimbus")}
		end := w.runNimbus("n1", store, nil)
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		store.refuse(cluster.TopologyBucket(d.Topology.ID), false)
		w.must(w.call("ann", cluster.VerbDeactivate, cluster.Named{Name: "wc"}, nil))
		pass(time.Minute)
		w.othersAreServed("other")
		if now := w.detail("wc"); now.Topology.Status != cluster.Inactive || !now.Run.Active {
			t.Errorf("it is %s, its spouts emit: %v", now.Topology.Status, now.Run.Active)
		}

		next := &refusing{Store: w.server.Connect("nimbus")}
		next.refuse(cluster.TopologyBucket(d.Topology.ID), true)
		end()
		w.runNimbus("n2", next, nil)
		w.leads()
		w.othersAreServed("another")
		next.refuse("", false)
		w.until(time.Minute, "it is led again", func() bool { now := w.detail("wc"); return now.Run != nil && !now.Run.Active })
		if now := w.detail("wc"); now.Assignment.Number != d.Assignment.Number {
			t.Errorf("assignment %d, was %d", now.Assignment.Number, d.Assignment.Number)
		}
	})
}

// The bucket of a topology is lost, and no other one: it is made anew.
func TestLostBucketOfATopologyIsMadeAnew(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		started := w.starts()
		w.must(w.server.Connect("root").DeleteBucket(w.ctx, cluster.TopologyBucket(d.Topology.ID)))
		pass(30 * time.Second)
		w.othersAreServed("other")
		w.must(w.call("ann", cluster.VerbDeactivate, cluster.Named{Name: "wc"}, nil))
		w.until(time.Minute, "it is told", func() bool { now := w.detail("wc"); return now.Run != nil && !now.Run.Active })
		pass(5 * time.Minute)
		if now := w.detail("wc"); now.Assignment.Number != 1 || w.starts() != started+3 {
			t.Errorf("assignment %d; %d processes were started", now.Assignment.Number, w.starts()-started)
		}
	})
}

// What nimbus tells a topology is told again if it was damaged. What an assignment was is
// not known when it is: its topology is left alone, and not forgotten while it may run.
func TestDamagedRecordsOfATopology(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		id := w.runs("wc").Topology.ID
		damage := func(bucket, key string) cluster.Bucket {
			b, err := w.server.Connect("root").Bucket(w.ctx, bucket, false)
			w.must(err)
			_, err = b.Put(w.ctx, key, []byte{})
			w.must(err)
			return b
		}
		own := damage(cluster.TopologyBucket(id), cluster.KeyIntent)
		w.until(time.Minute, "it is told again", func() bool {
			e, err := own.Get(w.ctx, cluster.KeyIntent)
			w.must(err)
			var in cluster.Intent
			return json.Unmarshal(e.Value, &in) == nil && in.Active
		})
		assignments := damage(cluster.BucketAssignments, id)
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 0}, nil))
		pass(10 * time.Minute)
		if got := w.status("wc"); got != cluster.Killed {
			t.Errorf("it is %s, and it is not known what of it runs", got)
		}
		var h cluster.Health
		w.must(w.call("ann", cluster.VerbHealth, nil, &h))
		if len(h.Problems) != 1 || !strings.Contains(h.Problems[0], id) {
			t.Errorf("problems %q", h.Problems)
		}
		w.othersAreServed("other")
		w.must(assignments.Delete(w.ctx, id, 0))
		w.until(time.Minute, "it is gone", func() bool { return w.status("wc") == "gone" })
	})
}

// Case: a command that waited for what was down made everybody wait. Who asks for what a
// machine has that is frozen is told so soon.
func TestFrozenMachinesAreNotWaitedFor(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		frozen := w.server.Connect("x")
		defer frozen.Close()
		for _, service := range []string{cluster.MasterService(d.Topology.ID), cluster.SupervisorService(d.Assignment.Master)} {
			_, err := frozen.Serve(service, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			w.must(err)
		}
		for verb, body := range map[string]any{
			cluster.VerbHead: cluster.Named{Name: "wc"},
			cluster.VerbLogs: cluster.Logs{Name: "wc", Role: cluster.RoleMaster, Offset: -100, Limit: 10},
		} {
			began := time.Now()
			err := w.call("ann", verb, body, nil)
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "does not answer within 3s") || took > 3*time.Second {
				t.Errorf("%s: after %v: %v", verb, took, err)
			}
		}
	})
}
