//go:build linux || darwin

package chaos

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	durationFlag = flag.Duration("chaos.duration", 20*time.Second, "break things at random for so long")
	seedFlag     = flag.Uint64("chaos.seed", 0, "what is broken, and when; 0: random")
)

// breaker breaks what a topology runs on.
type breaker struct {
	*topology
	network *network // nil: this machine
	random  *rand.Rand
	broken  []broken // what is to be healed
}

type broken struct {
	what string
	heal func()
}

// brokenMax is how many things are broken at a time.
const brokenMax = 2

// TestChaos breaks something every two to five seconds.
func TestChaos(t *testing.T) {
	begin(t)
	r := newLocalRig(t, 2, 3)
	chaos(t, r, nil)
}

// TestChaosOnNetwork does the same on three hosts, and cuts those off as well.
func TestChaosOnNetwork(t *testing.T) {
	long(t)
	n := newNetwork(t, 3)
	chaos(t, newWideRig(t, n, true), n)
}

func chaos(t *testing.T, r *rig, n *network) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed=%d", seed)
	b := &breaker{topology: r.steady(1000, 10_000), network: n, random: rand.New(rand.NewPCG(seed, 0))}
	b.submit(first, 3)
	began := time.Now()
	for time.Since(began) < *durationFlag {
		if len(b.broken) == brokenMax || len(b.broken) > 0 && b.random.IntN(2) == 0 {
			b.heal()
		}
		b.broken = append(b.broken, b.breakSomething())
		t.Logf("%5.1f s, at %s: %s", time.Since(began).Seconds(), b.newest(), b.broken[len(b.broken)-1].what)
		<-time.After(2*time.Second + time.Duration(b.random.Int64N(int64(3*time.Second))))
	}
	for len(b.broken) > 0 {
		b.heal()
	}
	healed := time.Now()
	b.awaitCommits(3)
	b.awaitWorkers(3)
	b.awaitCommits(3)
	t.Logf("it runs %s after all was healed, in generation %d", time.Since(healed).Round(time.Millisecond), b.generation())
	b.stop()
}

// heal heals what was broken first.
func (b *breaker) heal() {
	b.broken[0].heal()
	b.broken = b.broken[1:]
}

// breakSomething breaks something that is whole.
func (b *breaker) breakSomething() broken {
	for {
		var what broken
		switch n := b.random.IntN(10); {
		case n < 4:
			what = b.hurtProcesses()
		case n < 8 || b.network == nil:
			what = b.hurtDaemon()
		default:
			what = b.hurtNetwork()
		}
		if what.heal != nil && !slices.ContainsFunc(b.broken, func(o broken) bool { return o.what == what.what }) {
			return what
		}
	}
}

// hurtProcesses kills or stops one process of the topology, or two at once.
func (b *breaker) hurtProcesses() broken {
	all := topologyProcesses(b.name + "-")
	pids := slices.Sorted(maps.Keys(all))
	if len(pids) == 0 {
		return broken{}
	}
	b.random.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	pids = pids[:min(len(pids), 1+b.random.IntN(2))]
	var names []string
	for _, pid := range pids {
		_, place, _ := strings.Cut(all[pid], "/")
		names = append(names, place)
	}
	each := func(s syscall.Signal) {
		for _, pid := range pids {
			syscall.Kill(pid, s) //nolint:errcheck // it may have ended
		}
	}
	if b.random.IntN(2) == 0 {
		each(syscall.SIGKILL)
		return broken{"killed " + strings.Join(names, " and "), func() {}}
	}
	each(syscall.SIGSTOP)
	return broken{"stopped " + strings.Join(names, " and "), func() { each(syscall.SIGCONT) }}
}

// hurtDaemon kills or stops a daemon. Of several NATS servers, one may be away.
func (b *breaker) hurtDaemon() broken {
	d := b.daemons[b.random.IntN(len(b.daemons))]
	for _, other := range b.broken {
		if strings.HasSuffix(other.what, " "+d.name) || strings.HasPrefix(d.name, "nats") && strings.Contains(other.what, " nats-") {
			return broken{}
		}
	}
	if b.random.IntN(2) == 0 {
		d.kill()
		return broken{"killed " + d.name, d.start}
	}
	signal(b, d.pid(), syscall.SIGSTOP)
	return broken{"stopped " + d.name, func() { signal(b, d.pid(), syscall.SIGCONT) }}
}

// hurtNetwork cuts a host off, or two from each other.
func (b *breaker) hurtNetwork() broken {
	for _, other := range b.broken {
		if strings.HasPrefix(other.what, "cut off ") {
			return broken{}
		}
	}
	i := b.random.IntN(len(b.network.hosts))
	h, other := b.network.hosts[i], b.network.hosts[(i+1)%len(b.network.hosts)]
	if b.random.IntN(2) == 0 {
		b.network.cut(h)
		return broken{"cut off " + h.name, func() { b.network.heal(h) }}
	}
	b.network.part(h, other)
	return broken{fmt.Sprintf("cut off %s from %s", h.name, other.name), func() { b.network.join(h, other) }}
}
