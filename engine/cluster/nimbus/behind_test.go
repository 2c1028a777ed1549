package nimbus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// behind is a store that answers for a while as a server does that has been cut off from the
// others: lists of one bucket are as they were.
type behind struct {
	*memcluster.Store
	name string

	mu    sync.Mutex
	is    bool
	lists []cluster.Entry
}

// set makes the lists of the bucket be those entries, until reset.
func (s *behind) set(entries []cluster.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is, s.lists = true, entries
}

func (s *behind) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = false
}

func (s *behind) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := s.Store.Bucket(ctx, name, create)
	if err != nil || name != s.name {
		return b, err
	}
	return behindBucket{b, s}, nil
}

type behindBucket struct {
	cluster.Bucket
	s *behind
}

func (b behindBucket) List(ctx context.Context) ([]cluster.Entry, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.is {
		return b.s.lists, nil
	}
	return b.Bucket.List(ctx)
}

// A list that lacks the assignment of a killed topology is no proof that nothing of it runs:
// its name is not freed, and it takes its last checkpoint.
func TestNameIsNotFreedByAListThatIsBehind(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		first := w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		w.runs("wc")
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 60}, nil))
		first.end()
		store := &behind{Store: w.server.Connect("nimbus"), name: cluster.BucketAssignments}
		store.set(nil)
		w.runNimbus("n2", store, nil)
		time.Sleep(20 * time.Second)
		store.reset()
		w.leads()
		pass(5 * time.Second)
		if d := w.detail("wc"); d.Topology.Status != cluster.Killed || d.Assignment == nil || d.Run.Phase != cluster.PhaseRunning {
			t.Fatalf("it is %s, with the assignment %+v and the run %+v", d.Topology.Status, d.Assignment, d.Run)
		}
		w.until(2*time.Minute, "it is gone", func() bool { return w.status("wc") == "gone" })
		if left := w.left(); len(left) > 0 {
			t.Errorf("what is left: %q", left)
		}
	})
}

// A command that was acknowledged is not forgotten because of a list that is older.
func TestListThatIsBehindUndoesNothing(t *testing.T) {
	store := &behind{Store: memcluster.New().Connect("n"), name: "b"}
	r, err := openRecords[string](t.Context(), store, "b", freely)
	if err == nil {
		err = errors.Join(r.create(t.Context(), "k", "active"), r.create(t.Context(), "gone", "x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.bucket.List(t.Context())
	if err == nil {
		err = errors.Join(r.set(t.Context(), "k", "killed"), r.remove(t.Context(), "gone"), r.create(t.Context(), "late", "y"))
	}
	if err != nil {
		t.Fatal(err)
	}
	store.set(before)
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, _ := r.get("k"); v != "killed" {
		t.Errorf("it is %q again", v)
	}
	if err := r.set(t.Context(), "k", "killed again"); err != nil {
		t.Errorf("written after that: %v", err)
	}
	store.reset()
	if err := r.more(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, ok := r.get("late"); !ok || v != "y" {
		t.Errorf("what was not in the list is %q, %v", v, ok)
	}
}

// A submission of a leader that was stopped in the middle of it arrives when another leads:
// that one sees it, and the topology runs.
func TestSubmissionThatComesLateIsSeen(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		zombie := newPaused(w.server.Connect("nimbus"))
		w.runNimbus("n1", zombie, nil)
		w.leads()
		s := w.program("wc", "v1")
		zombie.pause()
		failed := make(chan error, 1)
		client := w.server.Connect("ann")
		w.running.Go(func() { failed <- request(w.ctx, client, cluster.VerbSubmit, s, nil) })
		synctest.Wait() // its write is held up
		w.addNimbus("n2")
		w.until(time.Minute, "another leads", func() bool {
			var h cluster.Health
			return w.call("root", cluster.VerbHealth, nil, &h) == nil && h.Leader == "n2"
		})
		pass(time.Minute)
		zombie.resume()
		w.must(<-failed) // its write was in time
		if pass(20 * time.Second); w.status("wc") != cluster.Active {
			t.Fatalf("the topology, of which there is a record, is %q", w.status("wc"))
		}
		w.runs("wc")
	})
}

// slow is a store whose reads take their time before they are done.
type slow struct {
	*memcluster.Store
	takes []time.Duration // the next ones; the last one is that of all others
}

func (s *slow) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := s.Store.Bucket(ctx, name, create)
	return slowBucket{b, s}, err
}

type slowBucket struct {
	cluster.Bucket
	s *slow
}

func (b slowBucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	time.Sleep(b.s.takes[0])
	if len(b.s.takes) > 1 {
		b.s.takes = b.s.takes[1:]
	}
	return b.Bucket.Get(ctx, key)
}

// A lease is watched from the moment on at which it was read, not at which the read began:
// it may have been renewed in between.
func TestLeaseThatWasReadSlowlyIsNotTakenTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memcluster.New()
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		defer keeping.Wait()
		defer stop()
		const length = 15 * time.Second
		one := server.Connect("n")
		first, err := acquire(ctx, one, "n1", length)
		if err != nil {
			t.Fatal(err)
		}
		keeping.Go(func() { _ = first.keep(ctx) })
		time.Sleep(200 * time.Millisecond) // it is renewed 4.8 s from here
		two := &slow{Store: server.Connect("n"), takes: []time.Duration{4900 * time.Millisecond, 100 * time.Millisecond}}
		won := make(chan bool, 1)
		keeping.Go(func() {
			if _, err := acquire(ctx, two, "n2", length); err == nil {
				won <- first.valid()
			}
		})
		time.Sleep(5 * time.Second) // it was read just after that
		one.Cut()
		if <-won {
			t.Error("two nimbuses lead")
		}
	})
}

// What cannot be read is not read again and again without a pause.
func TestLeaderThatCannotBeginPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		store := &unreadable{Store: w.server.Connect("nimbus"), end: w.stop}
		w.runNimbus("n1", store, nil)
		time.Sleep(time.Minute)
		if n := store.count(); n < 2 || n > 120 {
			t.Errorf("it was tried %d times within a minute", n)
		}
	})
}

// unreadable is a store of which one bucket cannot be listed.
type unreadable struct {
	*memcluster.Store
	end func() // of a test that would not end

	mu sync.Mutex
	n  int
}

func (s *unreadable) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *unreadable) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := s.Store.Bucket(ctx, name, create)
	if err != nil || name != cluster.BucketTopologies {
		return b, err
	}
	return unreadableBucket{b, s}, nil
}

type unreadableBucket struct {
	cluster.Bucket
	s *unreadable
}

func (b unreadableBucket) List(context.Context) ([]cluster.Entry, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.n++; b.s.n == 1000 {
		b.s.end()
	}
	return nil, errors.New("one of its disks is broken")
}
