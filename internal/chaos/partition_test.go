//go:build linux || darwin

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// hostOf returns the host that a supervisor runs on.
func (r *rig) hostOf(supervisor string) *host {
	r.Helper()
	for _, d := range r.supervisors {
		if d.name == supervisor {
			return d.host
		}
	}
	r.Fatalf("%q is no supervisor of the test", supervisor)
	return nil
}

// workerHost returns a host that has workers of the topology, and not its master if there
// is such a one.
func (p *topology) workerHost() *host {
	p.Helper()
	a := p.detail().Assignment
	for _, w := range a.Workers {
		if w.Supervisor != a.Master {
			return p.hostOf(w.Supervisor)
		}
	}
	return p.hostOf(a.Workers[0].Supervisor)
}

// TestNetworkFaults breaks the network between three hosts, in one way after the other.
// Commits must go on before it is healed, but where it is said that they cannot, and the
// counts must be exact in the end.
func TestNetworkFaults(t *testing.T) {
	long(t)
	t.Run("tls", func(t *testing.T) { networkFaults(t, true) })
	t.Run("plain", func(t *testing.T) { networkFaults(t, false) })
}

func networkFaults(t *testing.T, secure bool) {
	n := newNetwork(t, 3)
	r := newWideRig(t, n, secure)
	p := r.steady(1000, 20_000)
	p.submit(first, 2)
	for _, fault := range []struct {
		name string
		// begin breaks something and returns what heals it. If restarts is set, the
		// topology has to go back to its last checkpoint because of it; if stalls is set,
		// commits may stand still until it is healed.
		begin            func() (heal func())
		restarts, stalls bool
	}{
		{name: "a worker's host is cut off", restarts: true, begin: func() func() {
			h := p.workerHost()
			n.cut(h)
			return func() { n.heal(h) }
		}},
		{name: "the topology master's host is cut off", restarts: true, begin: func() func() {
			h := r.hostOf(p.detail().Assignment.Master)
			n.cut(h)
			return func() { n.heal(h) }
		}},
		{name: "two hosts with workers are cut off from each other", restarts: true, stalls: true, begin: func() func() {
			workers := p.detail().Assignment.Workers
			a, b := r.hostOf(workers[0].Supervisor), r.hostOf(workers[1].Supervisor)
			n.part(a, b)
			return func() { n.join(a, b) }
		}},
		{name: "the host of the nimbus that leads is cut off", begin: func() func() {
			h := r.leader().host
			n.cut(h)
			return func() { n.heal(h) }
		}},
		{name: "a NATS server is killed", begin: func() func() {
			d := r.nats[2]
			d.kill()
			return d.start
		}},
	} {
		p.awaitCommits(3)
		before, began := p.generation(), time.Now()
		t.Log(fault.name)
		heal := fault.begin()
		if fault.stalls {
			await(t, "the restart after the fault", func() bool { return p.generation() > before })
		} else if fault.restarts {
			p.recovers(fault.name, began, before)
		} else {
			p.awaitCommits(3)
		}
		t.Logf("healing after %s", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		heal()
		p.awaitCommits(3)
		t.Logf("commits go on %s after", time.Since(began).Round(time.Millisecond))
		p.awaitWorkers(2)
	}
	p.stop()
}

// awaitWorkers waits until so many workers are connected to their topology master.
func (p *topology) awaitWorkers(n int) {
	p.Helper()
	await(p, fmt.Sprintf("%d workers", n), func() bool {
		d := p.detail()
		return d.Run != nil && d.Run.Phase == cluster.PhaseRunning && len(d.Run.Workers) == n
	})
}
