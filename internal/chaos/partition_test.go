//go:build linux || darwin

package chaos

import (
	"fmt"
	"slices"
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
// Commits must go on before it is healed, and the counts must be exact in the end.
func TestNetworkFaults(t *testing.T) {
	long(t)
	t.Run("tls", func(t *testing.T) { networkFaults(t, true) })
	t.Run("plain", func(t *testing.T) { networkFaults(t, false, 0, 1, 3) })
}

// networkFault is one way in which a network breaks.
type networkFault struct {
	name string
	// begin breaks something and returns what heals it.
	begin func() (heal func())
	// restarts: the topology has to go back to its last checkpoint because of it.
	restarts bool
}

// networkFaults tries all faults, or those of the given indexes.
func networkFaults(t *testing.T, secure bool, only ...int) {
	t.Parallel()
	n := newNetwork(t, 3)
	r := newWideRig(t, n, secure)
	if secure {
		r.refusesStrangers()
	}
	p := r.steady(1000, 20_000)
	p.submit(first, 3)
	for i, fault := range p.faults(n) {
		if len(only) == 0 || slices.Contains(only, i) {
			p.suffer(fault)
		}
	}
	p.stop()
}

// suffer breaks something, waits for commits, heals it, and waits again.
func (p *topology) suffer(fault networkFault) {
	p.Helper()
	p.spread()
	p.awaitCommits(3)
	p.Log(fault.name)
	before, began := p.generation(), time.Now()
	heal := fault.begin()
	if fault.restarts {
		p.recovers(fault.name, began, before)
	} else {
		p.awaitCommits(3)
	}
	p.Logf("healing after %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	heal()
	p.awaitCommits(3)
	p.Logf("commits go on %s after", time.Since(began).Round(time.Millisecond))
	p.awaitWorkers(len(p.detail().Assignment.Workers))
}

// spread has the workers on different hosts, if faults have brought them together.
func (p *topology) spread() {
	p.Helper()
	hosts := func() map[string]bool {
		on := map[string]bool{}
		for _, w := range p.detail().Assignment.Workers {
			on[w.Supervisor] = true
		}
		return on
	}
	if len(hosts()) > 1 {
		return
	}
	epoch := p.epoch()
	p.tell(cluster.VerbRebalance, cluster.Rebalance{Name: p.name, Workers: 3})
	if said := p.change("rebalance", epoch); said != "" {
		p.Fatal(said)
	}
	if len(hosts()) == 1 {
		p.Fatalf("three workers are on one host of three after a rebalance: %+v", p.detail().Assignment)
	}
}

func (p *topology) faults(n *network) []networkFault {
	cut := func(h *host) (heal func()) {
		n.cut(h)
		return func() { n.heal(h) }
	}
	return []networkFault{
		{name: "two hosts with workers are cut off from each other", restarts: true, begin: func() func() {
			a := p.detail().Assignment
			others := slices.DeleteFunc(a.Workers, func(w cluster.WorkerPlace) bool { return w.Supervisor == a.Master })
			if len(others) != 2 {
				p.Fatalf("not each of three workers has a host for itself: %+v", a)
			}
			x, y := p.hostOf(others[0].Supervisor), p.hostOf(others[1].Supervisor)
			n.part(x, y)
			return func() { n.join(x, y) }
		}},
		{name: "a worker's host is cut off", restarts: true, begin: func() func() { return cut(p.workerHost()) }},
		{name: "the topology master's host is cut off", restarts: true, begin: func() func() {
			return cut(p.hostOf(p.detail().Assignment.Master))
		}},
		{name: "a worker's host and the topology master's are cut off from each other", restarts: true, begin: func() func() {
			a, b := p.workerHost(), p.hostOf(p.detail().Assignment.Master)
			n.part(a, b)
			return func() { n.join(a, b) }
		}},
		{name: "the host of the nimbus that leads is cut off", begin: func() func() { return cut(p.leader().host) }},
		{name: "a NATS server is killed", begin: func() func() {
			d := p.nats[2]
			d.kill()
			return d.start
		}},
	}
}

// awaitWorkers waits until so many workers are connected to their topology master.
func (p *topology) awaitWorkers(n int) {
	p.Helper()
	await(p, fmt.Sprintf("%d workers", n), func() bool {
		d := p.detail()
		return d.Run != nil && d.Run.Phase == cluster.PhaseRunning && len(d.Run.Workers) == n
	})
}
