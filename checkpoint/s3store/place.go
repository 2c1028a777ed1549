package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/isobar-io/isobar/checkpoint"
)

// Options say where a bucket is and how to reach it.
type Options struct {
	Bucket    string
	Prefix    string // of all keys, without the slash at its end; may be empty
	Endpoint  string // URL of the server; empty is AWS
	Region    string // empty: asked of AWS, us-east-1 elsewhere
	PathStyle bool   // the bucket in the path, not in the host name, where there is one
	CAFile    string // PEM file of an authority to trust besides the system's
	// Patience is how long a server may be silent before a request is given up; an
	// operation that tries several times is given up after about three times that.
	// 0 is 20 seconds.
	Patience time.Duration
	// Transport, if set, takes the place of the network. For tests.
	Transport http.RoundTripper
}

const patienceDefault = 20 * time.Second

// Place is a prefix in a bucket that holds the checkpoints of any number of topologies,
// each in a folder of its own.
type Place struct {
	client   *minio.Client
	bucket   string
	prefix   string // empty or with a slash at its end
	patience time.Duration
}

// NewPlace returns the Place of some options. It does not call the server. Credentials
// are those of the AWS environment variables, of the shared credentials file, or of the
// machine's role, whichever comes first.
func NewPlace(o Options) (*Place, error) {
	p := &Place{bucket: o.Bucket, patience: o.Patience}
	if p.patience <= 0 {
		p.patience = patienceDefault
	}
	if o.Prefix != "" {
		if err := checkpoint.ValidName(o.Prefix); err != nil {
			return nil, fmt.Errorf("checkpoint store in bucket %q: prefix %q: %w", o.Bucket, o.Prefix, err)
		}
		p.prefix = o.Prefix + "/"
	}
	var err error
	host, secure := "s3.amazonaws.com", true
	if o.Endpoint != "" {
		if host, secure, err = splitEndpoint(o.Endpoint); err != nil {
			return nil, err
		}
		if o.Region == "" {
			o.Region = "us-east-1"
		}
	}
	if o.Transport == nil {
		if o.Transport, err = newTransport(secure, o.CAFile, p.patience); err != nil {
			return nil, err
		}
	}
	p.client, err = minio.New(host, &minio.Options{
		Creds:        newCredentials(),
		Secure:       secure,
		Region:       o.Region,
		BucketLookup: lookup(o, host),
		Transport:    o.Transport,
		MaxRetries:   1, // Store.try knows what may be tried again
		// No trailers are sent, but without it the library refuses checksums.
		TrailingHeaders: true,
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint store %s: %w", p, err)
	}
	return p, nil
}

func splitEndpoint(endpoint string) (host string, secure bool, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
		return "", false, fmt.Errorf("checkpoint.s3.endpoint %q: it must be http://HOST:PORT or https://HOST:PORT", endpoint)
	}
	return u.Host, u.Scheme == "https", nil
}

// lookup says where requests name the bucket. An address has no names below it.
func lookup(o Options, host string) minio.BucketLookupType {
	name := (&url.URL{Host: host}).Hostname()
	switch {
	case o.PathStyle || net.ParseIP(name) != nil || name == "localhost":
		return minio.BucketLookupPath
	case o.Endpoint == "":
		return minio.BucketLookupAuto
	}
	return minio.BucketLookupDNS
}

// newTransport returns a transport that keeps a connection for each of many tasks.
func newTransport(secure bool, caFile string, patience time.Duration) (http.RoundTripper, error) {
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	t.MaxIdleConnsPerHost = 64
	t.ResponseHeaderTimeout = patience
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("checkpoint.s3.ca.file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("checkpoint.s3.ca.file %s: it holds no PEM certificate", caFile)
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// Topologies returns the names of the topologies that have a head here, sorted.
func (p *Place) Topologies(ctx context.Context) ([]string, error) {
	s := p.store("")
	var folders, names []string
	err := s.try(ctx, func(w *watch) error {
		folders = nil
		for o := range p.client.ListObjectsIter(w.ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.prefix}) {
			w.alive()
			if o.Err != nil {
				return o.Err
			}
			if folder, is := strings.CutSuffix(strings.TrimPrefix(o.Key, p.prefix), "/"); is {
				folders = append(folders, folder)
			}
		}
		return w.ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list the topologies in %s: %w", p, err)
	}
	for _, folder := range folders {
		_, _, err := p.store(folder).ReadHead(ctx)
		switch {
		case err == nil:
			names = append(names, folder)
		case !errors.Is(err, checkpoint.ErrNotFound):
			return nil, fmt.Errorf("list the topologies in %s: %s: %w", p, folder, err)
		}
	}
	slices.Sort(names)
	return names, nil
}

// String returns the URL, for messages.
func (p *Place) String() string { return "s3://" + strings.TrimSuffix(p.bucket+"/"+p.prefix, "/") }

// store returns the Store below a folder, or, without one, of the place itself.
func (p *Place) store(folder string) *Store {
	s := &Store{client: p.client, bucket: p.bucket, prefix: p.prefix, patience: p.patience, hook: func(string) {}}
	if folder != "" {
		s.prefix += folder + "/"
	}
	return s
}

// Look returns the Store below a folder, to read from. It does not call the server.
func (p *Place) Look(folder string) *Store { return p.store(folder) }

// Open returns the Store below a folder, having made sure that the server heeds the
// conditions on which the safety of the head rests.
func (p *Place) Open(ctx context.Context, folder string, opts ...Option) (*Store, error) {
	s := p.store(folder)
	for _, o := range opts {
		o(s)
	}
	if err := s.probe(ctx); err != nil {
		return nil, fmt.Errorf("open checkpoint store %s: %w", s, err)
	}
	return s, nil
}
