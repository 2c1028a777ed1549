package natsserver

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster/natsserver/certtest"
)

// TestGroupByName: two servers that are told of each other by a third one connect, although
// their certificates are for a name, and not for their address.
func TestGroupByName(t *testing.T) {
	var all []Options
	var authorities []byte
	for i, name := range []string{"", "localhost", "localhost"} {
		o := Options{Name: fmt.Sprint("n", i), StoreDir: t.TempDir(), Group: Group{Name: "g", Port: freePort(t), Advertise: name}}
		if name == "" {
			o.TLS.Cert, o.TLS.Key = certtest.Make(t)
		} else {
			o.TLS.Cert, o.TLS.Key = certtest.Make(t, name)
		}
		text, err := os.ReadFile(o.TLS.Cert)
		if err != nil {
			t.Fatal(err)
		}
		authorities = append(authorities, text...)
		all = append(all, o)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	var servers []*Server
	for _, o := range all {
		o.TLS.CA = file
		o.Group.Routes = []string{net.JoinHostPort(loopback, strconv.Itoa(all[0].Group.Port))}
		servers = append(servers, started(t, o))
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(30 * time.Second)
	for _, s := range servers {
		for s.nats.NumRemotes() < len(all)-1 {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("%s is connected to %d others", s.nats.Name(), s.nats.NumRemotes())
			}
		}
	}
}

// TestSilenceIsNoticed before the lease of a nimbus ends, which is 15 s at least.
func TestSilenceIsNoticed(t *testing.T) {
	o := Options{StoreDir: t.TempDir()}
	c, err := o.configuration()
	if err != nil {
		t.Fatal(err)
	}
	if silence := c.PingInterval * time.Duration(c.MaxPingsOut+1); silence == 0 || silence >= 15*time.Second {
		t.Errorf("it takes %s", silence)
	}
	if c.Cluster.PingInterval != 0 || c.Cluster.MaxPingsOut != 0 {
		t.Error("between servers it takes another time")
	}
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
