package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
)

// master returns what the bucket has of the topology master.
func (b *bench) master() (m cluster.MasterRecord) {
	b.t.Helper()
	bucket, err := b.client().Bucket(b.t.Context(), cluster.TopologyBucket(id), false)
	if err != nil {
		b.t.Fatal(err)
	}
	e, err := bucket.Get(b.t.Context(), cluster.KeyMaster)
	if err == nil {
		err = json.Unmarshal(e.Value, &m)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// A topology master that comes late, or that another one has come after, ends, so that it
// is started again as the latest; it does not send workers away from the later one.
func TestLaterMaster(t *testing.T) {
	t.Parallel()
	later := cluster.MasterRecord{Epoch: 1, Incarnation: 9, Address: "127.0.0.1:9"}
	run := func(b *bench) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- process.Master(t.Context(), b.config(cluster.RoleMaster, "", 5)) }()
		return ended
	}
	check := func(b *bench, ended <-chan error) {
		t.Helper()
		if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
			t.Errorf("it ends with %v", err)
		}
		if m := b.master(); m != later {
			t.Errorf("workers find %+v, want %+v", m, later)
		}
	}
	t.Run("before", func(t *testing.T) {
		b := newBench(t, 1, 1)
		b.put(cluster.KeyMaster, later)
		check(b, run(b))
	})
	t.Run("after", func(t *testing.T) {
		b := newBench(t, 1, 1)
		ended := run(b)
		b.await("that it is there", func(cluster.RunStatus) bool { return true })
		b.put(cluster.KeyMaster, later)
		check(b, ended)
	})
}

// What an earlier topology master has told is replaced, however late it comes.
func TestEarlierMaster(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<40, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- process.Master(ctx, b.config(cluster.RoleMaster, "", 5)) }()
	defer func() {
		stop()
		if err := <-ended; !errors.Is(err, process.ErrInterrupted) {
			t.Errorf("it ends with %v", err)
		}
	}()
	for _, told := range []any{
		cluster.MasterRecord{Epoch: 1, Incarnation: 4, Address: "127.0.0.1:9"}, cluster.MasterRecord{Incarnation: 9}, "damaged",
	} {
		b.put(cluster.KeyMaster, told)
		bucket, err := b.client().Bucket(t.Context(), cluster.TopologyBucket(id), false)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := bucket.Watch(t.Context(), cluster.KeyMaster)
		if err != nil {
			t.Fatal(err)
		}
		for m := (cluster.MasterRecord{}); m.Epoch != 1 || m.Incarnation != 5; {
			e, ok := <-changes
			if !ok {
				t.Fatalf("the test is over, and it has not replaced %v", told)
			}
			if e.Value != nil && json.Unmarshal(e.Value, &m) != nil {
				m = cluster.MasterRecord{}
			}
		}
	}
}
