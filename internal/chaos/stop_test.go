//go:build linux || darwin

package chaos

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// freeze stops processes as a machine does that is suspended, and returns what lets them
// go on.
func (r *rig) freeze(pids ...int) (thaw func()) {
	r.Helper()
	for _, pid := range pids {
		signal(r, pid, syscall.SIGSTOP)
	}
	return func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have been ended
		}
	}
}

// withSink returns the worker that has the only task of the sink.
func withSink(d cluster.Detail) cluster.Slot {
	for _, c := range d.Topology.Version.Components {
		for _, w := range d.Assignment.Workers {
			if c.ID == "sink" && slices.Contains(w.Tasks, c.FirstTask) {
				return w.Slot
			}
		}
	}
	return cluster.Slot{}
}

// TestStoppedWorker suspends a worker with its supervisor for so long that its tasks run
// elsewhere. When it wakes up it must not do any harm. It is one without the sink, which
// may have the lock of its output just then, and holds up the next one.
func TestStoppedWorker(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 3)
	p := r.steady(1000, 10_000)
	p.submit(first, 3)
	p.awaitCommits(2)
	d := p.detail()
	i := slices.IndexFunc(p.its(cluster.RoleWorker), func(q process) bool {
		slot := cluster.Slot{Supervisor: q.supervisor.name, Port: q.Port}
		return slot.Supervisor != d.Assignment.Master && slot != withSink(d)
	})
	if i < 0 {
		t.Fatalf("all workers are beside the topology master, or have the sink: %+v", d.Assignment)
	}
	stopped := p.its(cluster.RoleWorker)[i]
	before, began := p.generation(), time.Now()
	thaw := r.freeze(stopped.PID, stopped.supervisor.pid())
	p.recovers("a worker and its supervisor are stopped", began, before)
	for _, w := range p.detail().Assignment.Workers {
		if w.Supervisor == stopped.supervisor.name && w.Port == stopped.Port {
			t.Errorf("the worker that is stopped is still in the assignment")
		}
	}
	before = p.generation()
	thaw()
	await(t, "the end of the old worker", func() bool { return topologyProcesses(p.name + "-")[stopped.PID] == "" })
	p.awaitCommits(3)
	if now := p.generation(); now != before {
		t.Errorf("the worker that woke up has cost a restart: generation %d, was %d", now, before)
	}
	p.stop()
}

// TestStoppedMaster does the same to a topology master. It finds its head moved.
func TestStoppedMaster(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 1, 2)
	p := r.steady(1000, 10_000)
	p.submit(first, 2)
	p.awaitCommits(2)
	stopped := p.its(cluster.RoleMaster)[0]
	before, began := p.generation(), time.Now()
	thaw := r.freeze(stopped.PID, stopped.supervisor.pid())
	p.recovers("the topology master and its supervisor are stopped", began, before)
	if now := p.detail().Assignment.Master; now == stopped.supervisor.name {
		t.Errorf("the topology master is still at %s", now)
	}
	before = p.generation()
	thaw()
	await(t, "the end of the old topology master", func() bool { return topologyProcesses(p.name + "-")[stopped.PID] == "" })
	p.awaitCommits(3)
	if now := p.generation(); now != before {
		t.Errorf("the topology master that woke up has cost a restart: generation %d, was %d", now, before)
	}
	p.stop()
}

// TestStoppedNimbus stops the nimbus that leads for longer than its lease. The topology
// does not notice, and of two there is one that leads.
func TestStoppedNimbus(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 2, 1)
	p := r.steady(1000, 10_000)
	p.submit(first, 1)
	p.awaitCommits(2)
	before, pids := p.generation(), p.pids()
	stopped := r.leader()
	began := time.Now()
	thaw := r.freeze(stopped.pid())
	await(t, "another nimbus to lead", func() bool { return r.leader() != stopped })
	t.Logf("another nimbus leads after %s", time.Since(began).Round(time.Millisecond))
	thaw()
	stopped.says("leading no longer")
	if r.leader() == stopped {
		t.Error("the nimbus that woke up leads")
	}
	p.awaitCommits(3)
	p.untouched(before, pids)
	p.stop()
}
