package process_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/process"
)

// A program that has renamed a state is refused, and its topology master tells which; told
// of it, the tasks in other processes go on with what the state holds.
func TestRenamedStateOnOtherMachines(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 0)
	b.put(cluster.KeyIntent, cluster.Intent{Epoch: 1, Active: true})
	b.assign()
	run := func(s engine.Start) error {
		var all sync.WaitGroup
		defer all.Wait()
		b.works(&all)
		c := b.config(cluster.RoleMaster, "", 1)
		c.Options = append(c.Options, engine.WithStart(s))
		return process.Master(t.Context(), c)
	}
	if err := run(engine.Start{}); err != nil {
		t.Fatal(err)
	}
	b.state, b.tuples = "sum", 100_000
	if err := run(engine.Start{}); err != nil {
		t.Errorf("the topology master ends with %v, want that it has told why", err)
	}
	s := b.await("how it has ended", func(s cluster.RunStatus) bool { return s.Phase != cluster.PhaseStarting })
	for _, want := range []string{`component "count"`, `["total"]`, "--drop count/NAME"} {
		if s.Phase != cluster.PhaseFailed || !strings.Contains(s.Error, want) {
			t.Errorf("it ends as %s, %q; want %s named", s.Phase, s.Error, want)
		}
	}
	if err := run(engine.Start{Map: map[string]string{"count/total": "count/sum"}}); err != nil {
		t.Fatal(err)
	}
	b.check()
}
