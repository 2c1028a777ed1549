package natscluster

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/clustertest"
	"github.com/isobar-io/isobar/engine/cluster/natsserver"
)

// quiet forgets what is said of faults that a test makes.
var quiet = slog.New(slog.DiscardHandler)

// site is a server that knows its users, and what it takes to connect to it.
type site struct {
	t    *testing.T
	opts natsserver.Options
	keys *Keys // nil: it lets in everybody

	mu      sync.Mutex
	server  *natsserver.Server
	proxies map[cluster.Store]*clustertest.Proxy
}

// newSite starts a server on a port that stays the same when it is started again.
func newSite(t *testing.T, secure bool) *site {
	t.Helper()
	s := &site{t: t, opts: natsserver.Options{StoreDir: filepath.Join(t.TempDir(), "nats"), Log: quiet}, proxies: map[cluster.Store]*clustertest.Proxy{}}
	if secure {
		keys, err := MakeKeys(filepath.Join(t.TempDir(), "keys"))
		if err != nil {
			t.Fatal(err)
		}
		s.keys = keys
		s.opts.Trust = &natsserver.Trust{Operator: keys.Operator, Accounts: []string{keys.Account, keys.System}}
	}
	s.start()
	at, err := url.Parse(s.server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if s.opts.Port, err = strconv.Atoi(at.Port()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func (s *site) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	server, err := natsserver.Start(s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
}

func (s *site) stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return
	}
	if err := s.server.Shutdown(); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
	s.server = nil
}

func (s *site) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.opts.Port)) }

// creds returns a file with credentials.
func (s *site) creds(role Role, name string) string {
	s.t.Helper()
	if s.keys == nil {
		return ""
	}
	text, err := s.keys.Mint(role, name, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// connect returns a client that the caller closes.
func (s *site) connect(role Role, name string) *Store {
	s.t.Helper()
	proxy := clustertest.NewProxy(s.t, s.address())
	store, err := Open(cluster.StoreAccess{URLs: []string{"nats://" + proxy.Addr()}, Creds: s.creds(role, name)}, Options{Log: quiet})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies[store] = proxy
	return store
}

// client returns a client that is closed with the test.
func (s *site) client(role Role, name string) *Store {
	s.t.Helper()
	store := s.connect(role, name)
	s.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.t.Errorf("close: %v", err)
		}
	})
	return store
}

func (s *site) proxy(store cluster.Store) *clustertest.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[store]
}

func (s *site) place() clustertest.Place {
	return clustertest.Place{
		Connect: func(user string) cluster.Store { return s.connect(RoleNimbus, user) },
		Stop:    s.stop,
		Start:   s.start,
		Cut:     func(store cluster.Store) { s.proxy(store).Cut() },
		Heal:    func(store cluster.Store) { s.proxy(store).Heal() },
	}
}

func TestConformance(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) clustertest.Place { return newSite(t, true).place() })
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
