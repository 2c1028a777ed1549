package metamorphic

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/filestore"
	"github.com/isobar-io/isobar/checkpoint/memstore"
	"github.com/isobar-io/isobar/checkpoint/pebblestate"
	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/config"
)

var (
	runs    = flag.Int("meta.runs", 200, "how many topologies TestTopologies draws")
	seed    = flag.Int64("meta.seed", 1, "the seed of the first of them; -1: by the clock")
	durable = flag.Uint64("meta.durable", 20, "one in so many topologies keeps its checkpoints in files and its state in Pebble; 0: none")
)

// TestTopologies runs random topologies and compares what they show with the model.
// One seed draws the same topology and the same incarnations always; what the scheduler
// of Go makes of them may differ.
//
//	go test ./internal/metamorphic -meta.runs=5000 -meta.seed=-1
func TestTopologies(t *testing.T) {
	first, n := *seed, *runs
	if first < 0 {
		first = time.Now().UnixNano() % 1_000_000_000
	}
	if testing.Short() {
		n = min(n, 60)
	}
	t.Logf("%d topologies from seed %d on", n, first)
	seen := &tallies{counts: map[string]int{}}
	t.Cleanup(func() { seen.check(t, n) })
	for i := range n {
		seed := uint64(first) + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := newRun(seed, seen)
			if !r.durable {
				synctest.Test(t, r.test)
				return
			}
			r.test(t)
		})
	}
}

// tallies count what has happened in all runs: what does not happen tests nothing.
type tallies struct {
	mu     sync.Mutex
	counts map[string]int
}

func (s *tallies) add(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what] += n
}

// enough is how many topologies show everything.
const enough = 200

func (s *tallies) check(t *testing.T, runs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%v", s.counts)
	if runs < enough || t.Failed() {
		return
	}
	for _, what := range []string{"died", "stopped", "completed", "restart", "commit", "woke up", "fenced", "several regions", "nothing to do"} {
		if s.counts[what] < enough/10 {
			t.Errorf("%d topologies show %d times: %s", runs, s.counts[what], what)
		}
	}
}

// run is a topology with the row of its incarnations.
type run struct {
	*topology
	plan []*incarnation
	last *incarnation // finds that there is nothing to do

	seen *tallies
	w    *world
	dir  string // of a durable topology
	// disturbed says that something had to be done again.
	disturbed bool
	zombies   []*process
	mu        sync.Mutex
	log       strings.Builder
}

// process is an incarnation that runs.
type process struct {
	l     *life
	ended chan struct{}
	res   engine.Result
	err   error
}

func newRun(seed uint64, seen *tallies) *run {
	random := rand.New(rand.NewPCG(seed, 0))
	t := drawTopology(seed, random)
	t.durable = *durable > 0 && seed%*durable == 0
	d := &drawing{topology: t, r: random}
	return &run{topology: t, plan: d.incarnations(), last: t.rerun(random), seen: seen}
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"\n", args...)
}

// report is all that is known of a run.
func (r *run) report() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("seed %d; again with: go test ./internal/metamorphic -run TestTopologies -meta.seed=%d -meta.runs=1 -count=20\n%s%s",
		r.seed, r.seed, r.topology, r.log.String())
}

func (r *run) test(t *testing.T) {
	defer func() {
		if t.Failed() || testing.Verbose() {
			t.Log(r.report())
		}
	}()
	var store checkpoint.Store = memstore.New()
	if r.durable {
		r.dir = t.TempDir()
		files, err := filestore.Open(filepath.Join(r.dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		store = files
	}
	r.w = newWorld(store, r.groups)
	for i, in := range r.plan {
		r.note("  run %d: %s", i, in)
		if _, err := r.live(i, in); err != nil {
			t.Errorf("run %d: %v", i, err)
			break
		}
	}
	r.thaw()
	for _, z := range r.zombies {
		<-z.ended
		r.note("  one that died and woke up ended with: %.200v", z.err)
		r.seen.add("woke up", 1)
		if z.err != nil {
			r.seen.add("fenced", 1)
		}
	}
	if t.Failed() {
		return
	}
	r.note("  last run: %s", r.last)
	r.seen.add("nothing to do", 1)
	if r.w.head != nil && len(r.w.head.Regions) > 1 {
		r.seen.add("several regions", 1)
	}
	switch res, err := r.live(len(r.plan), r.last); {
	case err != nil:
		t.Errorf("last run: %v", err)
	case res.Committed > 0 && !r.looksAgain():
		t.Errorf("the last run found something to commit: %d checkpoints", res.Committed)
	}
	r.compare(t)
}

// patience is how long a run may take: in a bubble, of a time that costs nothing.
func (r *run) patience() time.Duration {
	if r.durable {
		return 2 * time.Minute
	}
	return 30 * time.Minute
}

// live runs an incarnation until it ends or dies.
func (r *run) live(i int, in *incarnation) (engine.Result, error) {
	ctl := engine.NewControl()
	p := &process{l: newLife(in.troubles), ended: make(chan struct{})}
	began := time.Now()
	in.moments(p.l, ctl, r.thaw)
	topo, err := r.build(in, p.l, r.w)
	if err != nil {
		return engine.Result{}, err
	}
	values, err := config.Of(in.config)
	if err != nil {
		return engine.Result{}, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.l.stop = stop
	go func() {
		defer close(p.ended)
		defer stop()
		p.res, p.err = engine.Run(ctx, topo, engine.WithConfig(values), engine.WithControl(ctl), engine.WithHook(p.l.moment), r.storage(i, p.l))
	}()
	late := time.NewTimer(r.patience())
	defer late.Stop()
	select {
	case <-p.ended:
		r.disturbed = r.disturbed || p.res.Restarts > 0
		r.seen.add("restart", p.res.Restarts)
		r.seen.add("commit", p.res.Committed)
		r.seen.add(map[engine.Outcome]string{engine.Completed: "completed", engine.Stopped: "stopped"}[p.res.Outcome], 1)
		r.note("    ended after %v: %s; %d commits, %d restarts, error %v", time.Since(began), p.l.report(), p.res.Committed, p.res.Restarts, p.err)
		if p.l.isFrozen() { // it was about to end
			r.bury(p)
			return p.res, nil
		}
		return p.res, p.err
	case <-p.l.died:
		r.note("    died after %v: %s", time.Since(began), p.l.report())
		r.seen.add("died", 1)
		r.bury(p)
		return engine.Result{}, nil
	case <-late.C:
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("run %d has not ended: %s\n%s\n%s", i, p.l.report(), r.report(), buf[:runtime.Stack(buf, true)]))
	}
}

// bury keeps a process that has died until it is thawed.
func (r *run) bury(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zombies = append(r.zombies, p)
	r.disturbed = true
}

// thaw lets all that have died go on.
func (r *run) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, z := range r.zombies {
		if z.l.isFrozen() {
			z.l.thaw()
		}
	}
}

// storage is what incarnation i keeps its checkpoints and its state in.
func (r *run) storage(i int, l *life) engine.Option {
	store := mortalStore{r.w, l}
	if !r.durable {
		return engine.WithStore(store, memstore.NewOpener(store))
	}
	return engine.WithStorage(func(_ context.Context, o engine.Opening) (engine.Storage, error) {
		state := pebblestate.New(pebblestate.Options{Dir: filepath.Join(r.dir, "local", strconv.Itoa(i)), Store: store, Logger: o.Logger})
		return engine.Storage{Store: store, State: state, Close: state.Close}, nil
	})
}

// looksAgain says whether there may be something to commit after the end of the input:
// states with a TTL are looked through after each start, and timers that were left
// fire.
func (r *run) looksAgain() bool {
	return slices.ContainsFunc(r.nodes, func(n *node) bool {
		switch w := n.work.(type) {
		case tally:
			return w.ttl
		case board:
			return w.ttl
		case buffer:
			return true
		}
		return false
	})
}

// compare holds what the sinks have shown against the model.
func (r *run) compare(t *testing.T) {
	if err := r.w.errors(); err != nil {
		t.Error(err)
	}
	for _, n := range r.nodes {
		if !n.isSink() {
			continue
		}
		want, got := n.want(), r.w.outcomeOf(n.id)
		if d := r.difference(n, want, got); d != "" {
			t.Errorf("%s:\n%s", n, d)
		}
	}
}

// difference says what a sink has shown that it should not have, or the other way
// round. Where something went wrong in at-least-once mode it may have shown more.
func (r *run) difference(n *node, want, got outcome) string {
	if !r.lenient || !r.disturbed {
		return want.differences(got, false)
	}
	if slices.ContainsFunc(n.ins, func(in input) bool { return !in.grows }) {
		return ""
	}
	b, ok := n.work.(board)
	if !ok {
		return want.differences(got, true)
	}
	if !b.kind.sums {
		return ""
	}
	return sums(want).differences(sums(got), true)
}

// sums turns the lines of a board of sums into as many lines of each key.
func sums(o outcome) outcome {
	all := outcome{}
	for line := range o {
		at := strings.LastIndex(line, ": ")
		n, err := strconv.Atoi(line[at+2:])
		if err != nil {
			panic(err)
		}
		all[line[:at]] = n
	}
	return all
}
