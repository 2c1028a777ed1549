package natsserver

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster/natsserver/certtest"
)

// quiet forgets what is said of faults that a test makes.
var quiet = slog.New(slog.DiscardHandler)

func started(t *testing.T, o Options) *Server {
	t.Helper()
	o.Log = quiet
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// TestStart: it is there at once, syncs all that it acknowledges, and keeps to itself.
func TestStart(t *testing.T) {
	began := time.Now()
	s := started(t, Options{StoreDir: filepath.Join(t.TempDir(), "a", "b"), StoreBytesMax: 1 << 30})
	if took := time.Since(began); took > 5*time.Second { // a tenth of a second, on a machine with nothing else to do
		t.Errorf("the start took %s", took)
	}
	c := s.nats.JetStreamConfig()
	if c == nil || !c.SyncAlways || c.MaxMemory != memoryBytesMax || c.MaxStore != 1<<30 {
		t.Errorf("JetStream is configured as %+v", c)
	}
	at, err := url.Parse(s.ClientURL())
	if err != nil || at.Hostname() != loopback || at.Port() == "" || at.Port() == "4222" {
		t.Errorf("clients find it at %s", s.ClientURL())
	}
	if !s.Leads() || s.Subscriptions() == 0 {
		t.Errorf("it leads: %v, %d subscriptions", s.Leads(), s.Subscriptions())
	}
}

func TestFolderInUse(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(Options{StoreDir: dir, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Options{StoreDir: dir, Log: quiet}); err == nil || !strings.Contains(err.Error(), "another server uses "+dir) {
		t.Errorf("a second server: %v", err)
	}
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	started(t, Options{StoreDir: dir})
}

func TestFailedStart(t *testing.T) {
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	if _, err := Start(Options{StoreDir: dir, Log: quiet, Port: l.Addr().(*net.TCPAddr).Port}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("on a port that is taken: %v", err)
	}
	started(t, Options{StoreDir: dir}) // it has let go of the folder
}

// TestRefused: what would let in anybody, and what makes no sense.
func TestRefused(t *testing.T) {
	cert := certificate(t)
	trust := &Trust{}
	for name, c := range map[string]struct {
		opts Options
		want string
	}{
		"no folder":               {Options{}, "no folder"},
		"everywhere":              {Options{StoreDir: "x", Host: "0.0.0.0"}, "takes TLS and credentials"},
		"a name":                  {Options{StoreDir: "x", Host: "store.example"}, "takes TLS and credentials"},
		"TLS alone":               {Options{StoreDir: "x", Host: "0.0.0.0", TLS: cert}, "takes TLS and credentials"},
		"credentials alone":       {Options{StoreDir: "x", Host: "::", Trust: trust}, "takes TLS and credentials"},
		"key without certificate": {Options{StoreDir: "x", TLS: TLS{Key: cert.Key}}, "only one of them"},
		"group everywhere":        {Options{StoreDir: "x", Name: "a", Group: Group{Name: "g", Host: "0.0.0.0", Port: 1, Routes: []string{"b:1"}}}, "takes TLS and credentials"},
		"group without name":      {Options{StoreDir: "x", Group: Group{Name: "g", Port: 1, Routes: []string{"b:1"}}}, "a server of a group has a name"},
		"group without others":    {Options{StoreDir: "x", Name: "a", Group: Group{Name: "g", Port: 1}}, "at least one of them"},
		"group without CA":        {Options{StoreDir: "x", Name: "a", TLS: TLS{Cert: cert.Cert, Key: cert.Key}, Group: Group{Name: "g", Port: 1, Routes: []string{"b:1"}}}, "takes the CA"},
		"routes without group":    {Options{StoreDir: "x", Group: Group{Routes: []string{"b:1"}}}, "takes the group's name"},
		"strange route":           {Options{StoreDir: "x", Name: "a", Group: Group{Name: "g", Port: 1, Routes: []string{"b"}}}, "must be host:port"},
		"strange operator":        {Options{StoreDir: "x", Trust: &Trust{Operator: "x"}}, "the operator"},
		"no certificate":          {Options{StoreDir: "x", TLS: TLS{Cert: "none", Key: "none"}}, "load the certificate"},
		"no CA":                   {Options{StoreDir: "x", TLS: TLS{Cert: cert.Cert, Key: cert.Key, CA: cert.Key}}, "holds no certificate"},
	} {
		if s, err := Start(c.opts); err == nil {
			t.Errorf("%s: it starts", name)
			_ = s.Shutdown() // the error is that it runs
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused server has made its folder")
	}
	started(t, Options{StoreDir: t.TempDir(), Host: "0.0.0.0", Insecure: true})
}

// TestTLS: a server with a certificate takes no other connection.
func TestTLS(t *testing.T) {
	cert := certificate(t)
	s := started(t, Options{StoreDir: t.TempDir(), TLS: cert})
	at, err := url.Parse(s.ClientURL())
	if err != nil || at.Scheme != "tls" {
		t.Fatalf("clients find it at %s", s.ClientURL())
	}
	c, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var banner [1024]byte
	n, err := c.Read(banner[:])
	if err != nil || !strings.Contains(string(banner[:n]), `"tls_required":true`) {
		t.Errorf("it says %q, %v", banner[:n], err)
	}
	old := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	if err := old.Handshake(); err == nil {
		t.Error("it speaks TLS 1.2")
	}
}

// certificate returns one that is its own CA.
func certificate(t *testing.T) TLS {
	cert, key := certtest.Make(t)
	return TLS{CA: cert, Cert: cert, Key: key}
}
