package natscluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/natsserver"
	"github.com/isobar-io/isobar/engine/cluster/natsserver/certtest"
)

// group is three servers that keep the same data.
type group struct {
	t       *testing.T
	opts    []natsserver.Options
	servers []*natsserver.Server // nil: stopped
	access  cluster.StoreAccess
}

func newGroup(t *testing.T) *group {
	t.Helper()
	keys, err := MakeKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 3
	cert, key := certtest.Make(t)
	g := &group{t: t, servers: make([]*natsserver.Server, size)}
	var routes []string
	for range size {
		routes = append(routes, fmt.Sprint("127.0.0.1:", freePort(t)))
	}
	for i := range size {
		o := natsserver.Options{
			Log: quiet, Name: fmt.Sprint("n", i), StoreDir: filepath.Join(t.TempDir(), "nats"), Port: freePort(t),
			Group: natsserver.Group{Name: "g", Routes: routes},
			TLS:   natsserver.TLS{CA: cert, Cert: cert, Key: key},
			Trust: &natsserver.Trust{Operator: keys.Operator, Accounts: []string{keys.Account, keys.System}},
		}
		if _, err := fmt.Sscanf(routes[i], "127.0.0.1:%d", &o.Group.Port); err != nil {
			t.Fatal(err)
		}
		g.opts = append(g.opts, o)
		g.start(i)
		g.access.URLs = append(g.access.URLs, g.servers[i].ClientURL())
	}
	t.Cleanup(func() {
		for i := range g.servers {
			g.stop(i)
		}
	})
	g.access.CA, g.access.Creds = cert, (&site{t: t, keys: keys}).creds(RoleNimbus, "nimbus")
	return g
}

func (g *group) start(i int) {
	g.t.Helper()
	s, err := natsserver.Start(g.opts[i])
	if err != nil {
		g.t.Fatal(err)
	}
	g.servers[i] = s
}

func (g *group) stop(i int) {
	g.t.Helper()
	if g.servers[i] == nil {
		return
	}
	if err := g.servers[i].Shutdown(); err != nil {
		g.t.Errorf("shutdown: %v", err)
	}
	g.servers[i] = nil
}

func (g *group) leader() int {
	for i, s := range g.servers {
		if s != nil && s.Leads() {
			return i
		}
	}
	return -1
}

// freePort returns a port that nobody uses now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestGroup: a group of three goes on without its leader, says that it does not answer
// when only one is left, and answers again with two.
func TestGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	g := newGroup(t)
	await(t, "a leader", func() bool { return g.leader() >= 0 })
	store, err := Open(g.access, Options{Replicas: 3, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b cluster.Bucket
	persist(t, func() (err error) {
		b, err = store.Bucket(brief(t), "b", true)
		return err
	})
	persist(t, func() (err error) {
		_, err = b.Put(brief(t), "k", []byte("before"))
		return err
	})
	entries, err := b.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	until := func(value string) {
		t.Helper()
		for {
			select {
			case e := <-entries:
				if e.Key == "k" && e.Value == nil {
					t.Fatal("a watch says that a key is deleted that is there")
				}
				if e.Key == "k" && string(e.Value) == value {
					return
				}
			case <-patient(t).Done():
				t.Fatalf("%q is not watched", value)
			}
		}
	}
	until("before")

	g.stop(g.leader())
	began := time.Now()
	persist(t, func() error {
		e, err := b.Get(brief(t), "k")
		if err == nil {
			_, err = b.Update(brief(t), "k", []byte("after"), e.Revision)
		}
		return err
	})
	t.Logf("written again after %s", time.Since(began).Round(time.Millisecond))
	until("after")
	await(t, "a leader", func() bool { return g.leader() >= 0 })

	second := g.leader()
	g.stop(second)
	await(t, "silence", func() bool {
		_, _ = b.Put(brief(t), "unheard", nil) // nobody can take it
		return !store.Connected()
	})
	g.start(second)
	await(t, "an answer", store.Connected)
	persist(t, func() (err error) {
		_, err = b.Put(brief(t), "k", []byte("in the end"))
		return err
	})
	until("in the end")
}

// brief bounds one attempt.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*answerTimeout)
	t.Cleanup(cancel)
	return ctx
}
