package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/link"
	"github.com/isobar-io/isobar/tuple"
)

// join makes a node on a network, with one generation that knows one other worker and
// has a channel to it.
func join(t *testing.T, w *network, number tuple.Generation, peer string, p Peer, change func(*Config)) (*Node, *Generation) {
	t.Helper()
	worker := map[string]string{"a": "b", "b": "a"}[peer]
	n := node(t, config(t, worker, func(c *Config) {
		w.config(t)(c)
		if change != nil {
			change(c)
		}
	}))
	return n, renew(t, n, number, peer, p)
}

// renew begins a generation with one other worker and a channel to it.
func renew(t *testing.T, n *Node, number tuple.Generation, peer string, p Peer) *Generation {
	t.Helper()
	g, err := n.Generation(number, map[string]Peer{peer: p}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	g.Outbound(peer, 10, link.Config{SourceTask: 1}, nil)
	return g
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestStrangersAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config) // of the one that dials
		known  Peer          // what it takes the other one for
		seen   Peer          // what the other one takes it for
		want   string
		final  bool
	}{
		{"topology", func(c *Config) { c.Topology = "run-2" }, Peer{"b", "b-1"}, Peer{"a", "a-1"}, `this is a worker of topology "run-1", not "run-2"`, true},
		{"old address", nil, Peer{"b", "b-0"}, Peer{"a", "a-1"}, `this is worker "b" incarnation "b-1", not "b" incarnation "b-0"`, true},
		{"zombie", func(c *Config) { c.Incarnation = "a-0" }, Peer{"b", "b-1"}, Peer{"a", "a-1"}, `worker "a" is expected in incarnation "a-1", not "a-0"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork()
				_, gb := join(t, w, 1, "a", c.seen, nil)
				_, ga := join(t, w, 1, "b", c.known, c.change)
				waited := make(chan error)
				go func() { waited <- gb.Connect(soon(t)) }()
				began := time.Now()
				err := ga.Connect(soon(t))
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errRefused) != c.final {
					t.Errorf("the one that dials: %v", err)
				}
				if final := time.Since(began) < time.Second; final != c.final {
					t.Errorf("it took %v", time.Since(began))
				}
				if err := <-waited; err == nil || !strings.Contains(err.Error(), "it has not connected") {
					t.Errorf("the one that waits: %v", err)
				}
			})
		})
	}
}

// speak dials and says something, and returns what is answered.
func speak(t *testing.T, w *network, addr string, greeting []byte) (verdict, string) {
	t.Helper()
	c, err := w.dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = c.Write(greeting) }() // not all of it may be read
	v, _, body, err := readGreeting(c)
	if err != nil {
		return v, err.Error()
	}
	return v, string(body)
}

func TestWrongGreetingsAreAnswered(t *testing.T) {
	right := hello{topology: "run-1", worker: "a", from: hold{"a-1", 1}, to: "b", toLife: "b-1"}
	newer := greeting(nil, question, []byte("whatever version 2 says"))
	newer[len(magic)] = 2
	spoilt := right.append(nil)
	spoilt[greetingBytes+3]++
	for _, c := range []struct {
		name     string
		greeting []byte
		want     string
	}{
		{"nonsense", []byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n"), "it does not speak the protocol of links"},
		{"newer version", reseal(newer), "the links here have version 1, there version 2"},
		{"an answer", answer{verdict: welcome}.append(nil), "it answers 1 before it was asked"},
		{"no names", greeting(nil, question, nil), "wrong name"},
		{"name too long", greeting(nil, question, []byte{200, 200, 200, 1}), "wrong name"},
		{"too much", greeting(nil, question, append(right.append(nil)[greetingBytes:], 1)), "wrong length"},
		{"checksum", spoilt, "wrong checksum"},
		{"other direction", hello{"run-1", "c", hold{"c-1", 1}, "b", "b-1"}.append(nil), `worker "c" waits for worker "b" to connect`},
		{"unknown", hello{"run-1", "aa", hold{"a-1", 1}, "b", "b-1"}.append(nil), `worker "aa" is not expected`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork()
				join(t, w, 1, "a", Peer{"a", "a-1"}, nil)
				v, text := speak(t, w, "b", c.greeting)
				if v == welcome || !strings.Contains(text, c.want) {
					t.Errorf("it answers %d: %s", v, text)
				}
			})
		})
	}
}

// reseal gives a greeting the right checksum.
func reseal(b []byte) []byte { return seal(b[:len(b)-checksumBytes], 0) }

// The worker that dials may hear of a generation long before the one that waits.
func TestConnectionIsHeldUntilItIsExpected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		b := node(t, config(t, "b", w.config(t)))
		_, ga := join(t, w, 1, "b", Peer{"b", "b-1"}, nil)
		connected := make(chan error)
		go func() { connected <- ga.Connect(soon(t)) }()
		for range 20 { // it is refused now and then meanwhile
			time.Sleep(time.Second)
		}
		gb := renew(t, b, 1, "a", Peer{"a", "a-1"})
		began := time.Now()
		if err := errors.Join(<-connected, gb.Connect(soon(t))); err != nil || time.Since(began) > redialMax {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A new life of a worker takes the place of the old one as soon as a generation names it,
// and the old one never comes back.
func TestNewLifeReplacesTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		failed := make(chan error, 4)
		b := node(t, config(t, "b", w.config(t)))
		tell := func(err error) { failed <- err }
		gb, err := b.Generation(1, map[string]Peer{"a": {"a", "a-1"}}, tell)
		if err != nil {
			t.Fatal(err)
		}
		gb.Outbound("a", 10, link.Config{SourceTask: 1}, nil)
		old, ga := join(t, w, 1, "b", Peer{"b", "b-1"}, nil)
		go func() { _ = ga.Connect(soon(t)) }() // the other end tells
		if err := gb.Connect(soon(t)); err != nil {
			t.Fatal(err)
		}
		_, next := join(t, w, 2, "b", Peer{"b", "b-1"}, func(c *Config) { c.Incarnation = "a-2" })
		connected := make(chan error)
		go func() { connected <- next.Connect(soon(t)) }()
		synctest.Wait()
		if len(failed) > 0 {
			t.Fatal("it was replaced before it was told")
		}
		gb2 := renew(t, b, 2, "a", Peer{"a", "a-2"})
		if err := <-failed; !strings.Contains(err.Error(), "replaced by a newer one") {
			t.Error(err)
		}
		if err := errors.Join(<-connected, gb2.Connect(soon(t))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the old life has noticed
		again := renew(t, old, 3, "b", Peer{"b", "b-1"})
		if err := again.Connect(soon(t)); err == nil || !strings.Contains(err.Error(), `not "a-1"`) {
			t.Error(err)
		}
		if _, err := b.Generation(1, map[string]Peer{"a": {"a", "a-1"}}, tell); err == nil {
			t.Error("a generation is registered twice")
		}
		gb.Close()
		if _, err := b.Generation(1, map[string]Peer{"a": {"a", "a-1"}}, tell); err == nil || !strings.Contains(err.Error(), `"a-2" since generation 2`) {
			t.Error(err)
		}
		if len(failed) > 0 {
			t.Error("the new link is broken", <-failed)
		}
	})
}

// When one end has lost the connection and the other one does not know it, the new one
// takes its place: also for a generation that the other end has put on the old one, but
// not for those that have used that.
func TestConnectionIsReplacedByANewerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		e := newEnds(t, 1, w.config(t))
		c := e.channel(1, 10, 4)
		e.connect(t)
		script{frames: 1}.play(c.out)
		synctest.Wait()
		// The dialer forgets the connection, without a word to the other end.
		e.a.forget(c.out.conn.Load())
		e.generation(t, 2)
		c = e.channel(1, 10, 4)
		if err := errors.Join(e.gb.Connect(soon(t)), e.ga.Connect(soon(t))); err != nil {
			t.Fatal(err)
		}
		go script{frames: 50}.play(c.out)
		if err := (script{frames: 50}).check(c, 0, 50); err != nil {
			t.Error(err)
		}
		if told := (<-e.failed).Error() + (<-e.failed).Error(); !strings.Contains(told, "connected anew") || !strings.Contains(told, "closed") {
			t.Error(told)
		}
		if len(e.failed) > 0 {
			t.Error("the new connection is broken", <-e.failed)
		}
		// What an older attempt still says is not heard, nor what another life says.
		for _, h := range []hold{{"a-1", 1}, {"a-0", 9}, {"a-1", 1}} {
			b := hello{"run-1", "a", h, "b", "b-1"}.append(nil)
			if v, text := speak(t, w, "b", b); v != later || !strings.Contains(text, "connected anew") && h.incarnation == "a-1" {
				t.Errorf("it answers %d: %s", v, text)
			}
		}
	})
}

// While its generation moves to a newer connection a channel has none: frames wait for it.
func TestFramesWaitWhileTheirChannelMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, 1, newNetwork().config(t))
		c := e.channel(1, 10, 4)
		e.connect(t)
		carrier := c.out.conn.Load()
		e.a.mu.Lock()
		moving := carrier.unused()
		e.a.mu.Unlock()
		go script{frames: 3}.play(c.out)
		synctest.Wait()
		if len(moving) != 1 || c.out.number != 0 {
			t.Errorf("%d generations move, and a frame has gone on channel %d", len(moving), c.out.number)
		}
		e.a.mu.Lock()
		moving[0].bind(carrier)
		e.a.mu.Unlock()
		if err := (script{frames: 3}).check(c, 0, 3); err != nil {
			t.Error(err)
		}
		if len(e.failed) > 0 {
			t.Error(<-e.failed)
		}
		close(e.done)
	})
}

func TestMistakesAreTold(t *testing.T) {
	e := newEnds(t, 1, nil)
	e.channel(1, 10, 4)
	e.channel(1, 10, 4)
	e.ga.Outbound("z", 11, link.Config{SourceTask: 1}, nil)
	if err := e.ga.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "task 1 to task 10 is made twice") ||
		!strings.Contains(err.Error(), `"z" is no peer`) {
		t.Error(err)
	}
	if err := e.gb.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "made twice") {
		t.Error(err)
	}
	for _, peers := range []map[string]Peer{{"a": {"x", "1"}}, {"b": {"x", ""}}} {
		if _, err := e.a.Generation(2, peers, nil); err == nil {
			t.Errorf("%v: no error", peers)
		}
	}
	_, err := NewNode(Config{Worker: strings.Repeat("x", nameMax+1), Lease: -1, Streams: []*tuple.Stream{words, {Component: "split", ID: tuple.DefaultStream}}})
	for _, want := range []string{"topology", "worker", "incarnation", "listener", "lease", "split/default is given twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = issue(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func issue(t *testing.T, by *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	if by == nil {
		by = &authority{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// config returns what a worker proves itself with, and whom it trusts.
func (a *authority) config(t *testing.T, trusted *authority) *tls.Config {
	cert, key := issue(t, a, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
}

func TestLinkWithTLS(t *testing.T) {
	ours := newAuthority(t)
	e := newEnds(t, 1, func(c *Config) { c.TLS = ours.config(t, ours) })
	c := e.channel(1, 10, 16)
	e.connect(t)
	if s := c.out.conn.Load().sock.(*tls.Conn).ConnectionState(); s.Version != tls.VersionTLS13 || len(s.PeerCertificates) == 0 {
		t.Errorf("version %x, %d certificates", s.Version, len(s.PeerCertificates))
	}
	s := script{frames: 300, tuples: 100, bytes: 700}
	go s.play(c.out)
	if err := s.check(c, 0, s.frames); err != nil {
		t.Error(err)
	}
	e.a.Close()
	if told := (<-e.failed).Error() + (<-e.failed).Error(); !strings.Contains(told, `worker \"a\" stops`) {
		t.Error(told)
	}
}

func TestWorkerWithoutTheRightCertificateStaysOut(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	e := newEnds(t, 1, func(c *Config) {
		c.TLS = ours.config(t, ours)
		if c.Worker == "a" {
			c.TLS = theirs.config(t, ours)
		}
	})
	e.channel(1, 10, 16)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	waited := make(chan error)
	go func() { waited <- e.gb.Connect(ctx) }()
	if err := e.ga.Connect(ctx); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	if err := <-waited; err == nil {
		t.Error("a stranger was let in")
	}
}
