package remote

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"time"
)

// Identity is what both ends of a connection must have in common.
type Identity struct {
	Topology string // id
	Epoch    uint64
	Secret   string // of the epoch
	Plan     string // fingerprint
}

// helloLimit bounds the messages of somebody who has not proved anything yet.
const helloLimit = 64 << 10

// handshakeTime is how long a handshake may take.
const handshakeTime = 10 * time.Second

// proof shows that its maker knows the secret, to whoever has chosen the nonce. side
// keeps the answer of one end from serving as that of the other.
func (id Identity) proof(side string, nonce []byte, h *hello) []byte {
	mac := hmac.New(sha256.New, []byte(id.Secret))
	fmt.Fprintf(mac, "%s\n%x\n%s\n%d\n%s\n%d\n%s\n", side, nonce, id.Topology, id.Epoch, h.Worker, h.Incarnation, h.Links)
	return mac.Sum(nil)
}

func newNonce() []byte {
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		panic("broken invariant: no randomness: " + err.Error())
	}
	return b
}

// admit is the master's part of the handshake; it returns what the worker says of
// itself. The worker waits for welcome then, or is refused.
func (id Identity) admit(c *conn) (*hello, error) {
	if err := c.net.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	nonce := newNonce()
	if err := write(c.net, message{Kind: kindChallenge, Hello: &hello{Protocol: protocol, Nonce: nonce}}, helloLimit); err != nil {
		return nil, err
	}
	m, err := read(c.in, helloLimit)
	if err != nil {
		return nil, err
	}
	h := m.Hello
	if m.Kind != kindHello || h == nil {
		return nil, fmt.Errorf("a %q message instead of a hello", m.Kind)
	}
	err = nil
	switch {
	case h.Protocol != protocol:
		err = fmt.Errorf("it speaks version %d of the protocol, this topology master version %d: both must be of the same build", h.Protocol, protocol)
	case h.Topology != id.Topology || h.Epoch != id.Epoch:
		err = fmt.Errorf("it belongs to epoch %d of topology %s, this topology master to epoch %d of %s", h.Epoch, h.Topology, id.Epoch, id.Topology)
	case !hmac.Equal(h.Proof, id.proof("worker", nonce, h)):
		err = errors.New("it does not know the secret of the topology")
	case h.Plan != id.Plan:
		err = errors.New("it has built another topology: with the same flags a program must always build the same one")
	}
	if err != nil {
		id.refuse(c, err)
		return nil, err
	}
	return h, nil
}

func (id Identity) welcome(c *conn, h *hello) error {
	err := write(c.net, message{Kind: kindWelcome, Hello: &hello{Proof: id.proof("master", h.Nonce, h)}}, helloLimit)
	return errors.Join(err, c.net.SetDeadline(time.Time{}))
}

func (id Identity) refuse(c *conn, reason error) {
	_ = write(c.net, message{Kind: kindRefused, Hello: &hello{Reason: reason.Error()}}, helloLimit) // as a courtesy
}

// errRefused is wrapped when the master has refused a worker.
var errRefused = errors.New("refused by the topology master")

// join is the worker's part.
func (id Identity) join(c *conn, h hello) error {
	if err := c.net.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	m, err := read(c.in, helloLimit)
	if err != nil {
		return err
	}
	if m.Kind != kindChallenge || m.Hello == nil {
		return fmt.Errorf("a %q message instead of a challenge: there is no topology master", m.Kind)
	}
	h.Protocol, h.Topology, h.Epoch, h.Plan = protocol, id.Topology, id.Epoch, id.Plan
	h.Proof, h.Nonce = id.proof("worker", m.Hello.Nonce, &h), newNonce()
	if err := write(c.net, message{Kind: kindHello, Hello: &h}, helloLimit); err != nil {
		return err
	}
	m, err = read(c.in, helloLimit)
	switch {
	case err != nil:
		return err
	case m.Hello == nil:
		return fmt.Errorf("a %q message instead of a welcome", m.Kind)
	case m.Kind == kindRefused:
		return fmt.Errorf("%w: %s", errRefused, m.Hello.Reason)
	case m.Kind != kindWelcome || !hmac.Equal(m.Hello.Proof, id.proof("master", h.Nonce, &h)):
		return errors.New("whoever answers does not know the secret of the topology")
	}
	return c.net.SetDeadline(time.Time{})
}

// Dialer opens a connection to an address.
type Dialer func(address string) (net.Conn, error)
