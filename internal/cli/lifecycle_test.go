package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// is returns how a topology is.
func (c *testCluster) is(name string) cluster.Topology {
	c.t.Helper()
	var d cluster.Detail
	c.json(&d, "status", name)
	return d.Topology
}

func TestKill(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		for _, x := range []struct {
			name, flags string
			wait        time.Duration
			dropped     bool
		}{
			{"one", "", 30 * time.Second, false}, {"two", "-w0", 0, false}, {"three", "--wait=7 --no-checkpoint", 7 * time.Second, true},
		} {
			c.runs(c.submit(x.name), nil)
			before := time.Now()
			c.prints("Killed topology: "+x.name+"\n", append([]string{"kill", x.name}, strings.Fields(x.flags)...)...)
			if is := c.is(x.name); is.Status != cluster.Killed || is.Deadline.Sub(before) != x.wait || is.NoCheckpoint != x.dropped {
				t.Errorf("after kill %s it is %s, deadline after %v, no checkpoint: %t", x.flags, is.Status, is.Deadline.Sub(before), is.NoCheckpoint)
			}
		}
		var got changed
		if c.json(&got, "kill", "one"); got != (changed{"one", cluster.Killed}) {
			t.Errorf("JSON holds %+v", got)
		}
		c.fails(exitUsage, "kill one -w -1", "--wait -1: it must be a number of seconds")
		c.fails(exitUsage, "kill one -w soon", "soon")
		c.fails(exitUsage, "kill")
		c.fails(exitUsage, "kill one two")
		c.fails(exitFailed, "kill five", `topology "five" is not there, did you mean`)
	})
}

// Nothing is waited for where nothing of it is kept.
func TestKillWithoutACheckpointIsAtOnce(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		for _, before := range [][]string{nil, {"kill", "words", "-w", "900"}} {
			c.runs(c.submit("words"), nil)
			began := time.Now()
			if before != nil {
				c.prints("Killed topology: words\n", before...)
			}
			c.prints("Killed topology: words\n", "kill", "words", "--no-checkpoint")
			synctest.Wait()
			c.fails(exitFailed, "status words", `topology "words" is not there`)
			if took := time.Since(began); took > 0 {
				t.Errorf("after %v its end took %v", before, took)
			}
		}
	})
}

func TestActivateAndDeactivate(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.submit("words")
		for range 2 { // to do it again changes nothing
			c.prints("Deactivated topology: words\n", "deactivate", "words")
			if s := c.is("words").Status; s != cluster.Inactive {
				t.Errorf("deactivated it is %s", s)
			}
		}
		var got changed
		if c.json(&got, "activate", "words"); got != (changed{"words", cluster.Active}) || c.is("words").Status != cluster.Active {
			t.Errorf("JSON holds %+v", got)
		}
		c.prints("Activated topology: words\n", "activate", "words")
		c.prints("Killed topology: words\n", "kill", "words", "-w", "100")
		c.fails(exitFailed, "activate words", "cannot activate topology words, it is KILLED")
		c.fails(exitFailed, "deactivate other", `topology "other" is not there`)
		c.fails(exitUsage, "activate")
	})
}

func TestRebalance(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.runs(c.submit("words"), nil)
		before := time.Now()
		c.prints("Topology words is rebalancing\n", "rebalance", "words", "-n", "3", "-e", "count=5", "-e", "lines=2", "-c", "topology.message.timeout.secs=60", "-w", "90")
		is := c.is("words")
		next := is.Next
		if is.Status != cluster.Rebalancing || is.Deadline.Sub(before) != 90*time.Second || next == nil || next.Workers != 3 || next.Components[0].Tasks != 2 || next.Components[1].Tasks != 5 {
			t.Fatalf("it is %+v, next %+v", is, next)
		}
		if got := next.Config["topology.message.timeout.secs"]; got != 60. {
			t.Errorf("the configuration has %v", got)
		}
		c.fails(exitFailed, "rebalance words", "cannot rebalance topology words, it is REBALANCING")
		c.runs(c.submit("other"), nil)
		var got changed
		if c.json(&got, "rebalance", "other"); got != (changed{"other", cluster.Rebalancing}) {
			t.Errorf("JSON holds %+v", got)
		}
		if w := c.is("other").Deadline.Sub(before); w != 30*time.Second {
			t.Errorf("without --wait it waits %v", w)
		}
	})
}

func TestRebalanceRefusesWhatIsWrong(t *testing.T) {
	withCluster(t, func(c *testCluster) {
		c.runs(c.submit("words"), nil)
		for _, flag := range []string{"-e count", "-e =3", "-e count=0", "-e count=x", "-e count=-1"} {
			c.fails(exitUsage, "rebalance words "+flag, "it must be COMPONENT=TASKS, with 1 task or more")
		}
		c.fails(exitUsage, "rebalance words -e count -e lines=x -e a=1 -e a=2", "--executors count:", "--executors lines=x:", "--executors a=2: there are tasks for a before it")
		c.fails(exitUsage, "rebalance words -n 0", "--workers 0: at least 1 is needed")
		c.fails(exitUsage, "rebalance words -w -3", "--wait -3")
		c.fails(exitUsage, "rebalance words -c topology.worker=3", "did you mean topology.workers?")
		c.fails(exitFailed, "rebalance words -e cuont=3", `component "cuont" does not exist, did you mean count?`)
		c.fails(exitFailed, "rebalance words -c topology.key.groups=3", "cannot be changed")
		if s := c.is("words").Status; s != cluster.Active {
			t.Errorf("it is %s now", s)
		}
	})
}
