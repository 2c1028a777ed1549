//go:build linux || darwin

package chaos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/client"
	"github.com/isobar-io/isobar/engine/cluster/natscluster"
)

// security is what a cluster is given so that it trusts nobody else: certificates for all
// connections, and keys that credentials are made with.
type security struct {
	testing.TB
	dir           string
	keys          *natscluster.Keys
	ca, cert, key string // PEM files
}

func newSecurity(t testing.TB, dir string, hosts []*host) *security {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &security{TB: t, dir: dir}
	keys, err := natscluster.MakeKeys(s.keysDir())
	if err != nil {
		t.Fatal(err)
	}
	s.keys = keys
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := *authority
	own.SerialNumber, own.Subject, own.IsCA, own.KeyUsage = big.NewInt(2), pkix.Name{CommonName: "host"}, false, x509.KeyUsageDigitalSignature
	own.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		own.IPAddresses = append(own.IPAddresses, net.ParseIP(h.address))
	}
	signer, private := s.newKey(), s.newKey()
	s.ca = s.write("ca.pem", "CERTIFICATE", s.sign(authority, authority, &signer.PublicKey, signer))
	s.cert = s.write("cert.pem", "CERTIFICATE", s.sign(&own, authority, &private.PublicKey, signer))
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	s.key = s.write("key.pem", "PRIVATE KEY", text)
	return s
}

func (s *security) keysDir() string { return filepath.Join(s.dir, "keys") }

func (s *security) newKey() *ecdsa.PrivateKey {
	s.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	return k
}

func (s *security) sign(c, by *x509.Certificate, public *ecdsa.PublicKey, signer *ecdsa.PrivateKey) []byte {
	s.Helper()
	text, err := x509.CreateCertificate(rand.Reader, c, by, public, signer)
	if err != nil {
		s.Fatal(err)
	}
	return text
}

func (s *security) write(name, kind string, text []byte) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// creds makes credentials and returns the path of their file.
func (s *security) creds(role natscluster.Role, name string) string {
	s.Helper()
	text, err := s.keys.Mint(role, name, 0)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.dir, name+".creds")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// refusesStrangers fails if the cluster lets somebody in who has no credentials, or who
// does not know its authority.
func (r *rig) refusesStrangers() {
	r.Helper()
	for what, access := range map[string]cluster.StoreAccess{
		"without credentials":   {URLs: r.urls, CA: r.security.ca},
		"without its authority": {URLs: r.urls, Creds: r.access().Creds},
	} {
		c, err := client.Connect(access)
		if err == nil {
			err = errors.Join(c.Call(r.Context(), cluster.VerbList, nil, nil), c.Close())
		}
		if err == nil {
			r.Errorf("somebody was let in %s", what)
		} else {
			r.Logf("%s: %v", what, err)
		}
	}
}
