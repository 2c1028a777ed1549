package remote_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

// local notes from which worker its tuples come.
type local struct {
	task            int
	own             *[5]atomic.Int64
	crossed, tuples *atomic.Int64
}

func (l *local) Open(c *txn.Context) error { l.task = c.TaskID; return nil }

func (l *local) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	l.own[l.task].Add(1)
	l.tuples.Add(1)
	if t.SourceTask()%2 != l.task%2 { // tasks are on workers by their number
		l.crossed.Add(1)
	}
	return nil
}

// Local-or-shuffle stays within a worker that has tasks of the receiver, and uses all of
// those.
func TestLocalOrShuffleStaysOnItsWorker(t *testing.T) {
	const n = 20_000
	var own [5]atomic.Int64
	var crossed, tuples atomic.Int64
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout {
		return generator.New(generator.Options{
			Fields: tuple.Fields{"word"}, Tuples: n, Partitions: 4,
			Emit: func(i uint64, out *txn.Collector) { out.Emit1(tuple.Int64(int64(i))) },
		})
	}, 2)
	b.SetBolt("local", func() txn.Bolt { return &local{own: &own, crossed: &crossed, tuples: &tuples} }, 4).LocalOrShuffleGrouping("words")
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, filepath.Join(t.TempDir(), "unused"))
	c.topo = topo
	led := make(chan error, 1)
	go func() {
		_, err := c.lead(t.Context())
		led <- err
	}()
	address := <-c.address
	var all sync.WaitGroup
	for _, id := range []string{"w0", "w1"} {
		all.Go(func() {
			if err := c.work(t.Context(), id, 1, address); err != nil {
				t.Errorf("worker %s: %v", id, err)
			}
		})
	}
	if err := <-led; err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if tuples.Load() != n || crossed.Load() != 0 {
		t.Errorf("%d tuples of %d have come, %d from another worker", tuples.Load(), n, crossed.Load())
	}
	for id := 1; id <= 4; id++ {
		if own[id].Load() == 0 {
			t.Errorf("task %d had none", id)
		}
	}
}
