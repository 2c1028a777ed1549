//go:build linux || darwin

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// network is a switch with hosts on it, each a network namespace of this machine with an
// address of its own. The machine itself is on it, too.
type network struct {
	testing.TB
	id    string // in the names of all that is made
	net   string // the first three bytes of its addresses
	hosts []*host
}

// newNetwork makes a network that is gone when the test ends. Where it cannot be made the
// test is skipped, but not in CI.
func newNetwork(t testing.TB, hosts int) *network {
	t.Helper()
	_, err := exec.LookPath("ip")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 || err != nil {
		text := "this test makes networks: it takes Linux, root, and the command ip (package iproute2)"
		if os.Getenv("ISOBAR_CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	n := &network{TB: t, id: fmt.Sprintf("%05x", rand.IntN(1<<20)), net: fmt.Sprintf("10.%d.%d", 192+rand.IntN(60), rand.IntN(256))}
	t.Cleanup(n.end)
	n.ip("link add", n.bridge(), "type bridge")
	n.ip("addr add", n.net+".254/24 dev", n.bridge())
	n.ip("link set", n.bridge(), "up")
	for i := range hosts {
		name := string(rune('a' + i))
		h := &host{name: name, address: fmt.Sprintf("%s.%d", n.net, i+1), netns: "isobar-" + n.id + "-" + name}
		n.hosts = append(n.hosts, h)
		n.ip("netns add", h.netns)
		n.ip("link add", n.plug(h), "type veth peer name eth0 netns", h.netns)
		n.ip("link set", n.plug(h), "master", n.bridge(), "up")
		n.ip("-n", h.netns, "addr add", h.address+"/24 dev eth0")
		n.ip("-n", h.netns, "link set eth0 up")
		n.ip("-n", h.netns, "link set lo up")
	}
	return n
}

func (n *network) bridge() string      { return "isobar-" + n.id }
func (n *network) plug(h *host) string { return "ib-" + n.id + "-" + h.name }

func (n *network) ip(command ...string) {
	n.Helper()
	if out, err := ip(command...); err != nil {
		n.Fatalf("ip %s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

func ip(command ...string) (string, error) {
	out, err := exec.Command("ip", strings.Fields(strings.Join(command, " "))...).CombinedOutput()
	return string(out), err
}

// end takes the network away. What was not made is not missed.
func (n *network) end() {
	for _, h := range n.hosts {
		ip("link del", n.plug(h)) //nolint:errcheck // see above
		ip("netns del", h.netns)  //nolint:errcheck // see above
	}
	ip("link del", n.bridge()) //nolint:errcheck // see above
}

// cut pulls the plug of a host: nobody reaches it any more, and nobody is told.
func (n *network) cut(h *host) { n.Helper(); n.ip("link set", n.plug(h), "down") }

// heal puts it in again.
func (n *network) heal(h *host) { n.Helper(); n.ip("link set", n.plug(h), "up") }

// part drops all that two hosts send to each other. Everybody else reaches both.
func (n *network) part(a, b *host) {
	n.Helper()
	n.ip("-n", a.netns, "route add blackhole", b.address+"/32")
	n.ip("-n", b.netns, "route add blackhole", a.address+"/32")
}

// join undoes part.
func (n *network) join(a, b *host) {
	n.Helper()
	n.ip("-n", a.netns, "route del blackhole", b.address+"/32")
	n.ip("-n", b.netns, "route del blackhole", a.address+"/32")
}
