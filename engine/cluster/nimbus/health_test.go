package nimbus

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Health names a topology that does not run, even where everybody who runs it is well.
func TestHealthNamesWhatStandsStill(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("one", "v1")
		w.set(w.stuck, s.Binary.SHA256, true)
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		problems := func() []string {
			var h cluster.Health
			w.must(w.call("ann", cluster.VerbHealth, nil, &h))
			return h.Problems
		}
		pass(20 * time.Second)
		if p := problems(); len(p) > 0 {
			t.Errorf("while it may still come up: %q", p)
		}
		pass(time.Minute)
		if p := problems(); len(p) != 1 || !strings.Contains(p[0], "topology one: it has not run for") {
			t.Errorf("when it has not: %q", p)
		}
		w.set(w.stuck, s.Binary.SHA256, false)
		w.runs("one")
		pass(10 * time.Second)
		if p := problems(); len(p) > 0 {
			t.Errorf("when it runs: %q", p)
		}
	})
}
