//go:build unix

package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/memcluster"
)

// An assignment is removed so soon after the order to end it that this supervisor hears of
// the removal alone, or while it is cut off: its processes end, and not only at the next
// listing that would come anyway.
func TestProcessesOfARemovedAssignmentEndSoon(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut=%v", cut), func(t *testing.T) {
			r := newRig(t)
			if _, err := r.assignments.Create(t.Context(), cluster.KeyMark, []byte("m1")); err != nil {
				t.Fatal(err)
			}
			r.cfg.ResyncEvery = time.Hour
			r.start()
			r.await("a heartbeat", func(cluster.Supervisor) bool { return true })
			r.assign(assignment(topology, 1, 1, []string{"run"}, 0, 6700))
			r.running(topology, 0)
			r.running(topology, 6700)
			if cut {
				r.store.Cut()
			}
			if err := r.assignments.Delete(t.Context(), topology, 0); err != nil {
				t.Fatal(err)
			}
			if cut {
				r.store.Heal()
			}
			r.empty(topology)
		})
	}
}

// stuck is a store in which one write gets no answer.
type stuck struct {
	*memcluster.Store

	mu    sync.Mutex
	n     int
	times []time.Time // of the heartbeats that were written
}

func (s *stuck) Bucket(ctx context.Context, name string, create bool) (cluster.Bucket, error) {
	b, err := s.Store.Bucket(ctx, name, create)
	return stuckBucket{b, s}, err
}

type stuckBucket struct {
	cluster.Bucket
	s *stuck
}

func (b stuckBucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.n++; b.s.n == 2 {
		<-ctx.Done()
		return 0, cluster.ErrUnavailable
	}
	b.s.times = append(b.s.times, time.Now())
	return b.Bucket.Put(ctx, key, value)
}

// One heartbeat that gets no answer is not silence for three: nimbus would take the
// supervisor for dead.
func TestHeartbeatWithoutAnAnswerIsRepeatedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 5 * time.Second
		store := &stuck{Store: memcluster.New().Connect("s")}
		if _, err := store.Bucket(t.Context(), cluster.BucketSupervisors, true); err != nil {
			t.Fatal(err)
		}
		h := newHeart(Config{ID: "s", Store: store, HeartbeatEvery: every, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h.beat(ctx)
		longest := time.Duration(0)
		for i, at := range store.times[1:] {
			longest = max(longest, at.Sub(store.times[i]))
		}
		if len(store.times) < 10 || longest > 12*time.Second {
			t.Errorf("%d heartbeats in a minute, %v apart at most", len(store.times), longest)
		}
	})
}
