package process

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/isobar-io/isobar/engine/cluster"
)

// LinkConfig returns the TLS of links between processes, at both ends: each proves that
// it has a certificate of the cluster's authority. Names are not compared, because all
// that have one are trusted alike, and processes move between machines. Without files it
// is nil.
func LinkConfig(l cluster.LinkTLS) (*tls.Config, error) {
	if l.Cert == "" {
		return nil, nil
	}
	fail := func(err error) (*tls.Config, error) { return nil, fmt.Errorf("set up TLS for links: %w", err) }
	pem, err := os.ReadFile(l.CA)
	if err != nil {
		return fail(err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return fail(fmt.Errorf("%s holds no certificate", l.CA))
	}
	if _, err := tls.LoadX509KeyPair(l.Cert, l.Key); err != nil {
		return fail(err)
	}
	load := func() (*tls.Certificate, error) { // anew each time: it may have been renewed
		c, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		return &c, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		ClientAuth:           tls.RequireAndVerifyClientCert,
		ClientCAs:            authority,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
		InsecureSkipVerify:   true, // VerifyConnection does it, without the name
		VerifyConnection:     func(s tls.ConnectionState) error { return verify(s, authority) },
	}, nil
}

// verify checks that a peer has a certificate of the authority.
func verify(s tls.ConnectionState, authority *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the other end has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
