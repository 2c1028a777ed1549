package natsserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// configurations returns TLS towards clients, who prove who they are by credentials, and
// between the servers of a group, who prove it by certificates.
func (t TLS) configurations() (clients, routes *tls.Config, err error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("load the certificate: %w", err)
	}
	clients = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}
	routes = clients.Clone()
	if t.CA == "" {
		return clients, nil, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("load the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("load the CA: %s holds no certificate", t.CA)
	}
	routes.RootCAs, routes.ClientCAs, routes.ClientAuth = pool, pool, tls.RequireAndVerifyClientCert
	return clients, routes, nil
}
