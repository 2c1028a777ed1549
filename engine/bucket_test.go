package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/txn"
)

// These tests keep checkpoints in a bucket, behind a network on which everything goes
// wrong: requests that arrive late, twice or never, replies that are lost, cut short or
// wait for ever, listings of yesterday.

var networkFaults = []s3test.Fault{
	s3test.Unavailable, s3test.TooMany, s3test.InConflict, s3test.ServerError, s3test.Reset, s3test.LostReply,
	s3test.Late, s3test.CutRequest, s3test.CutReply, s3test.NotFound, s3test.AlterRequest, s3test.StaleList,
}

var silences = []s3test.Fault{s3test.Hang, s3test.HangServed, s3test.StallReply}

// takeovers is a row of processes that take a topology over from each other.
type takeovers struct {
	open  func(i int, hook func(string)) (checkpoint.Store, error)
	state func(i int, s checkpoint.Store) checkpoint.StateOpener

	lines  []string
	o      *outside
	b      *board
	limits []*atomic.Int64
	runs   []<-chan ended
	nets   []*s3test.Network // between process i and the server, if there is one
}

// useBucket keeps the checkpoints on a server, each process behind a network of its own.
func (r *takeovers) useBucket(server http.RoundTripper, endpoint string, faults func(i int) func(*http.Request) s3test.Fault) {
	r.open = func(i int, hook func(string)) (checkpoint.Store, error) {
		for len(r.nets) <= i {
			r.nets = append(r.nets, &s3test.Network{Base: server, Pick: faults(len(r.nets))})
		}
		place, err := s3store.NewPlace(s3store.Options{
			Bucket: "isobar", Prefix: "checkpoints", PathStyle: true, Endpoint: endpoint, Transport: r.nets[i],
		})
		if err != nil {
			return nil, err
		}
		return place.Open(context.Background(), "topology", s3store.WithHook(hook))
	}
}

// takeOver starts the next process and waits until it has moved the head and knows it.
func (r *takeovers) takeOver(t *testing.T, limit int) {
	t.Helper()
	moved := r.start(t, limit)
	select {
	case <-moved:
	case e := <-r.runs[len(r.runs)-1]:
		t.Fatalf("it does not take over: %v", e.err)
	}
}

// finish expects all to end as they should, and lets one more start, which has nothing
// left to do but to discard what the old ones have left prepared.
func (r *takeovers) finish(t *testing.T) {
	t.Helper()
	for i := range r.limits {
		r.limits[i].Store(-1)
	}
	for i, run := range r.runs {
		e := <-run
		r.check(t, i, e)
	}
	r.start(t, -1)
	last := len(r.runs) - 1
	r.check(t, last, <-r.runs[last])
	r.o.check(t, r.lines)
	want := map[string]int64{}
	for _, l := range r.lines {
		want[l]++
	}
	if got := r.b.get(); !maps.Equal(got, want) {
		t.Errorf("%d words are published, want %d", len(got), len(want))
	}
}

// check expects that the newest process has ended by itself, without a restart, and all
// before it because they are not the newest.
func (r *takeovers) check(t *testing.T, i int, e ended) {
	t.Helper()
	if e.res.Restarts != 0 {
		t.Errorf("run %d was restarted %d times", i, e.res.Restarts)
	}
	if newest := i == len(r.runs)-1; newest && e.err != nil || !newest && (e.err == nil || !strings.Contains(e.err.Error(), "fenced")) {
		t.Errorf("run %d: %v, outcome %v", i, e.err, e.res.Outcome)
	}
}

// start starts the next process, which emits up to so many lines.
func (r *takeovers) start(t *testing.T, limit int) (moved chan struct{}) {
	t.Helper()
	i, l := len(r.runs), &atomic.Int64{}
	l.Store(int64(limit))
	tb := engine.NewTopologyBuilder()
	tb.SetSpout("lines", limited(l, 10, r.lines), 1)
	tb.SetBolt("count", func() txn.Bolt { return &count{} }, 2).FieldsGrouping("lines", "line")
	tb.SetBolt("latest", func() txn.Bolt { return &latest{b: r.b} }, 1).GlobalGrouping("count")
	tb.SetBolt("sink", func() txn.Bolt { return &sink{o: r.o, log: &calls{}} }, 2).ShuffleGrouping("lines")
	moved = make(chan struct{})
	tookOver := sync.OnceFunc(func() { close(moved) })
	storage := engine.WithStorage(func(context.Context, engine.Opening) (engine.Storage, error) {
		s, err := r.open(i, func(step string) {
			if step == "head.after" {
				tookOver()
			}
		})
		if err != nil {
			return engine.Storage{}, err
		}
		state := r.state(i, s)
		closeState := func() error { return nil }
		if c, ok := state.(interface{ Close() error }); ok {
			closeState = c.Close
		}
		return engine.Storage{Store: s, State: state, Close: func() error { return errors.Join(closeState(), s.Close()) }}, nil
	})
	r.limits, r.runs = append(r.limits, l), append(r.runs, start(t.Context(), build(t, tb), storage, conf(t, nil)))
	return moved
}

// words are lines of which many are the same.
func words(n int) (ls []string) {
	for i := range n {
		ls = append(ls, fmt.Sprint("w", i%97))
	}
	return ls
}

func inMemoryState(_ int, s checkpoint.Store) checkpoint.StateOpener { return memstore.NewOpener(s) }

func TestBucketThatIsHardToReach(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			s3test.SetCredentials(t)
			synctest.Test(t, func(t *testing.T) { hardToReach(t, seed) })
		})
	}
}

func hardToReach(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	faults := slices.Concat(silences, networkFaults)
	r := &takeovers{state: inMemoryState, lines: words(3000), o: newOutside(), b: &board{}}
	r.useBucket(s3test.Direct(s3test.NewServer("isobar")), "http://s3.test", func(i int) func(*http.Request) s3test.Fault {
		return s3test.Random(seed<<8+uint64(i), 0.3, faults...)
	})
	const processes = 4
	for i := range processes {
		// The one before cannot reach the server, is not told, and comes back later.
		r.takeOver(t, 500*(i+1))
		time.Sleep(time.Duration(random.Int64N(int64(20 * time.Minute))))
		r.nets[i].SetOffline(true)
		r.limits[i].Add(100)
		time.Sleep(time.Duration(random.Int64N(int64(10 * time.Minute))))
		if random.IntN(2) == 0 {
			r.nets[i].SetOffline(false)
		}
	}
	r.takeOver(t, len(r.lines))
	time.Sleep(time.Hour)
	for _, n := range r.nets {
		n.SetOffline(false)
	}
	r.finish(t)
	happened := 0
	for _, n := range r.nets {
		for f, times := range n.Counts() {
			if f != s3test.None {
				happened += times
			}
		}
	}
	if happened < 100 {
		t.Errorf("only %d requests went wrong", happened)
	}
}

// TestStoresTakenOver: whoever takes over wins, at every kind of store.
func TestStoresTakenOver(t *testing.T) {
	s3test.SetCredentials(t)
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		r := &takeovers{open: func(_ int, hook func(string)) (checkpoint.Store, error) {
			return filestore.Open(dir, filestore.WithHook(hook))
		}}
		r.takeTurns(t)
	})
	t.Run("bucket", func(t *testing.T) {
		r := &takeovers{}
		r.useBucket(http.DefaultTransport, s3test.Start(t, "isobar"), func(i int) func(*http.Request) s3test.Fault {
			return s3test.Random(uint64(i), 0.05, networkFaults...)
		})
		r.takeTurns(t)
	})
}

// takeTurns has processes with real state take over while those before go on.
func (r *takeovers) takeTurns(t *testing.T) {
	dir := t.TempDir()
	r.lines, r.o, r.b = words(1500), newOutside(), &board{}
	r.state = func(i int, s checkpoint.Store) checkpoint.StateOpener {
		return pebblestate.New(pebblestate.Options{Dir: filepath.Join(dir, fmt.Sprint(i)), Store: s})
	}
	// One that commits while the next one starts would win, and the next one stop.
	for i := range 2 {
		r.takeOver(t, 500*(i+1))
		if i > 0 {
			r.limits[i-1].Add(1000)
		}
		waitFor(t, func() bool { return len(r.o.rows()) >= 500*(i+1) })
	}
	r.takeOver(t, -1)
	r.finish(t)
}

// waitFor waits for something to come true.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it has not come true")
		}
	}
}
