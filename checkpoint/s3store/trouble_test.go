package s3store_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
)

// object is long enough to be cut.
var object = strings.Repeat("0123456789abcdef", 1<<10)

func putObject(ctx context.Context, s *s3store.Store, name, data string) error {
	return s.Put(ctx, name, strings.NewReader(data), int64(len(data)), checkpoint.CRC([]byte(data)))
}

func readObject(ctx context.Context, s *s3store.Store, name string) (string, error) {
	body, _, err := s.Open(ctx, name)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(body)
	return string(data), errors.Join(err, body.Close())
}

// calls are all that a store can be asked for; each expects the object data/x and a head.
var calls = map[string]func(ctx context.Context, s *s3store.Store) error{
	"Put": func(ctx context.Context, s *s3store.Store) error { return putObject(ctx, s, "data/new", object) },
	"Open": func(ctx context.Context, s *s3store.Store) error {
		data, err := readObject(ctx, s, "data/x")
		if err == nil && data != object {
			err = fmt.Errorf("read %d other bytes", len(data))
		}
		return err
	},
	"ReadAt": func(ctx context.Context, s *s3store.Store) error {
		p := make([]byte, 1000)
		err := s.ReadAt(ctx, "data/x", p, 7)
		if err == nil && string(p) != object[7:1007] {
			err = errors.New("read other bytes")
		}
		return err
	},
	"List": func(ctx context.Context, s *s3store.Store) error {
		for o, err := range s.List(ctx, "data/x") {
			if err != nil || o.Name != "data/x" {
				return fmt.Errorf("listed %q: %w", o.Name, err)
			}
		}
		return nil
	},
	"Delete":   func(ctx context.Context, s *s3store.Store) error { return s.Delete(ctx, "data/y") },
	"ReadHead": func(ctx context.Context, s *s3store.Store) error { _, _, err := s.ReadHead(ctx); return err },
	"SwapHead": func(ctx context.Context, s *s3store.Store) error {
		_, v, err := s.ReadHead(ctx)
		if err != nil {
			return err
		}
		_, err = s.SwapHead(ctx, v, []byte("next"))
		return err
	},
}

// prepared returns a store with an object and a head.
func prepared(t testing.TB, p *s3store.Place) *s3store.Store {
	t.Helper()
	s := open(t, p, "topology")
	if err := putObject(t.Context(), s, "data/x", object); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SwapHead(t.Context(), "", []byte("head")); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSilentServer: every call ends by itself, with an error that is not that of the
// caller's context, when the server does not answer, and well when it does so again.
func TestSilentServer(t *testing.T) {
	for name, call := range calls {
		for _, fault := range []s3test.Fault{s3test.Hang, s3test.HangServed, s3test.StallReply} {
			t.Run(fmt.Sprint(name, fault), func(t *testing.T) {
				s3test.SetCredentials(t)
				synctest.Test(t, func(t *testing.T) { silent(t, call, fault) })
			})
		}
	}
}

func silent(t *testing.T, call func(context.Context, *s3store.Store) error, fault s3test.Fault) {
	s3test.SetCredentials(t)
	n := &s3test.Network{}
	s := prepared(t, inMemory(t, n, 0))
	n.Pick = func(*http.Request) s3test.Fault { return fault }
	begun := time.Now()
	err := call(t.Context(), s)
	if time.Since(begun) > 100*time.Second {
		t.Errorf("it took %v: %v", time.Since(begun), err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it looks as if the caller had ended it: %v", err)
	}
	hit := n.Counts()[fault] > 0
	if hit && (err == nil || !strings.Contains(err.Error(), "silent")) {
		t.Errorf("with %v faults: %v", n.Counts(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := call(ctx, s); hit && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that ended: %v", err)
	}
	n.Pick = nil
	if err := call(t.Context(), s); err != nil {
		t.Errorf("after the server has come back: %v", err)
	}
}

// TestTrouble: a fault that happens twice in a row is not noticed.
func TestTrouble(t *testing.T) {
	for name, call := range calls {
		for _, fault := range append([]s3test.Fault{s3test.Hang, s3test.HangServed, s3test.StallReply, s3test.Swallow}, faults...) {
			if name == "SwapHead" {
				continue // it makes one attempt
			}
			s3test.SetCredentials(t)
			synctest.Test(t, func(t *testing.T) {
				n := &s3test.Network{}
				s := prepared(t, inMemory(t, n, 0))
				left := 2
				n.Pick = func(*http.Request) s3test.Fault {
					if left == 0 {
						return s3test.None
					}
					left--
					return fault
				}
				if err := call(t.Context(), s); err != nil {
					t.Errorf("%s with fault %d: %v", name, fault, err)
				}
			})
		}
	}
}

// TestOutage: when nothing works every call says so, in words that tell it from what is
// wrong for good.
func TestOutage(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, func(t *testing.T) {
		n := &s3test.Network{}
		s := prepared(t, inMemory(t, n, 0))
		n.SetOffline(true)
		for name, call := range calls {
			err := call(t.Context(), s)
			if err == nil {
				t.Errorf("%s succeeded", name)
			}
			for _, wrong := range []error{checkpoint.ErrNotFound, checkpoint.ErrExists, checkpoint.ErrDamaged, checkpoint.ErrHeadMoved} {
				if errors.Is(err, wrong) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		n.SetOffline(false)
		for name, call := range calls {
			if err := call(t.Context(), s); err != nil {
				t.Errorf("%s after the outage: %v", name, err)
			}
		}
	})
}

// TestNotFoundByMistake: an answer of something between here and the server must not
// look like a place where nothing has been committed.
func TestNotFoundByMistake(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, func(t *testing.T) {
		n := &s3test.Network{}
		s := prepared(t, inMemory(t, n, 0))
		n.Pick = func(*http.Request) s3test.Fault { return s3test.NotFound }
		for _, name := range []string{"ReadHead", "Open", "ReadAt"} {
			if err := calls[name](t.Context(), s); err == nil || errors.Is(err, checkpoint.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestServersThatIgnoreConditionsAreRefused(t *testing.T) {
	for _, header := range []string{"If-Match", "If-None-Match", "X-Amz-Checksum-Crc32c"} {
		server := s3test.NewServer(bucket)
		p := newPlace(t, s3store.Options{Transport: s3test.Direct(server)})
		open(t, p, "topology") // it has left what the probe needs
		server.Ignore = header
		for _, folder := range []string{"topology", "new"} {
			if _, err := p.Open(t.Context(), folder); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower("ignores "+header)) {
				t.Errorf("%s: %v", folder, err)
			}
		}
	}
}

// TestWrongSettings: errors say what would be right, at once.
func TestWrongSettings(t *testing.T) {
	server := s3test.NewServer(bucket)
	server.AccessKey = "somebody"
	check := func(o s3store.Options, want ...string) {
		t.Helper()
		_, err := newPlace(t, o).Open(t.Context(), "topology")
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v does not say %q", err, w)
			}
		}
	}
	check(s3store.Options{Transport: s3test.Direct(server)}, "AWS_ACCESS_KEY_ID", "InvalidAccessKeyId", "s3://"+bucket+"/some/prefix/topology")
	check(s3store.Options{Transport: s3test.Direct(s3test.NewServer("other"))}, `create bucket "isobar"`)
	secure := httptest.NewTLSServer(s3test.NewServer(bucket))
	defer secure.Close()
	check(s3store.Options{Endpoint: secure.URL}, "checkpoint.s3.ca.file")
	open := httptest.NewServer(s3test.NewServer(bucket))
	defer open.Close()
	check(s3store.Options{Endpoint: strings.Replace(open.URL, "http:", "https:", 1)}, "http://")
	for code, want := range map[string]string{
		"RequestTimeTooSkewed":         "clock",
		"AuthorizationHeaderMalformed": "checkpoint.s3.region",
		"NotImplemented":               "conditional writes",
	} {
		asked := 0
		check(s3store.Options{Transport: s3test.Direct(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		}))}, code, want)
		if asked != 1 {
			t.Errorf("%s was asked for %d times", code, asked)
		}
	}
}

func TestOwnAuthority(t *testing.T) {
	secure := httptest.NewTLSServer(s3test.NewServer(bucket))
	defer secure.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, certificate(secure), 0o666); err != nil {
		t.Fatal(err)
	}
	s := prepared(t, newPlace(t, s3store.Options{Endpoint: secure.URL, CAFile: file}))
	for name, call := range calls {
		if err := call(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(file, []byte("nothing"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := s3store.NewPlace(s3store.Options{Bucket: bucket, Endpoint: secure.URL, CAFile: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestNoCredentials(t *testing.T) {
	s3test.SetCredentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	p, err := s3store.NewPlace(s3store.Options{Bucket: bucket, Endpoint: "http://s3.test", Transport: s3test.Direct(s3test.NewServer(bucket))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), "topology"); err == nil || !strings.Contains(err.Error(), "found no credentials") {
		t.Error(err)
	}
}

// TestLongList lists more than a page, of which a stale one is no harm either.
func TestLongList(t *testing.T) {
	n := &s3test.Network{}
	s := open(t, inMemory(t, n, 0), "topology")
	var want []string
	for i := range 2100 {
		want = append(want, fmt.Sprintf("data/%04d", i))
		if err := putObject(t.Context(), s, want[i], "x"); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (names []string) {
		for o, err := range s.List(t.Context(), "data/") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, o.Name)
		}
		return names
	}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("%d are listed", len(got))
	}
	n.Pick = s3test.Random(1, 0.5, s3test.CutReply, s3test.Unavailable)
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("with faults %d are listed", len(got))
	}
}

// TestHeadReplacedWhileItIsRead: the connection breaks half-way, and when it is back
// there is another head.
func TestHeadReplacedWhileItIsRead(t *testing.T) {
	n := &s3test.Network{}
	p := inMemory(t, n, 0)
	s := prepared(t, p)
	_, v, err := s.ReadHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gets := 0
	n.Pick = func(r *http.Request) s3test.Fault {
		if r.Method != http.MethodGet {
			return s3test.None
		}
		switch gets++; gets {
		case 1:
			return s3test.CutReply
		case 2:
			if v, err = s.SwapHead(t.Context(), v, []byte("next")); err != nil {
				t.Error(err)
			}
		}
		return s3test.None
	}
	if data, now, err := s.ReadHead(t.Context()); string(data) != "next" || now != v || err != nil {
		t.Errorf("%q at %q, want version %q: %v", data, now, v, err)
	}
}

// keeper keeps the body of a request that it fails.
type keeper struct{ body io.ReadCloser }

func (k *keeper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		k.body = r.Body
	}
	return nil, errors.New("failed, and still reading")
}

// TestBodyIsNotReadAfterPut: the network may go on reading when a request has failed,
// and must not do so when the body is its owner's again.
func TestBodyIsNotReadAfterPut(t *testing.T) {
	var k keeper
	s := newPlace(t, s3store.Options{Transport: &k}).Look("topology")
	body := strings.NewReader(object)
	if err := s.Put(t.Context(), "data/x", body, body.Size(), checkpoint.CRC([]byte(object))); err == nil {
		t.Fatal("the put succeeded")
	}
	before := body.Len()
	if n, err := k.body.Read(make([]byte, 10)); err == nil || n > 0 || body.Len() != before {
		t.Errorf("%d bytes were read after the put, %v", n, err)
	}
}

// TestAlteredHead: a head that was altered on the way is read again.
func TestAlteredHead(t *testing.T) {
	n := &s3test.Network{}
	s := prepared(t, inMemory(t, n, 0))
	n.Pick = s3test.Random(1, 0.7, s3test.AlterReply)
	for range 20 {
		if data, _, err := s.ReadHead(t.Context()); string(data) != "head" || err != nil {
			t.Fatalf("%q, %v", data, err)
		}
	}
}

func TestWhereTheBucketIsNamed(t *testing.T) {
	s3test.SetCredentials(t)
	for _, c := range []struct {
		endpoint, region string
		path             bool
		want             string
	}{
		{"", "eu-central-1", false, "https://the-bucket.s3.dualstack.eu-central-1.amazonaws.com/topology/head"},
		{"", "eu-central-1", true, "https://s3.dualstack.eu-central-1.amazonaws.com/the-bucket/topology/head"},
		{"https://s3.test:9000", "", false, "https://the-bucket.s3.test:9000/topology/head"},
		{"https://s3.test:9000", "", true, "https://s3.test:9000/the-bucket/topology/head"},
		{"http://127.0.0.1:9000", "", false, "http://127.0.0.1:9000/the-bucket/topology/head"},
		{"http://[::1]:9000", "", false, "http://[::1]:9000/the-bucket/topology/head"},
		{"http://localhost:9000", "", false, "http://localhost:9000/the-bucket/topology/head"},
	} {
		var asked string
		p, err := s3store.NewPlace(s3store.Options{Bucket: "the-bucket", Endpoint: c.endpoint, Region: c.region, PathStyle: c.path,
			Transport: s3test.Direct(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				w.WriteHeader(http.StatusBadRequest)
			}))})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Look("topology").ReadHead(t.Context()); err == nil || asked != c.want {
			t.Errorf("%+v: asked for %s, %v", c, asked, err)
		}
	}
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// failing is a network on which every request fails in the same way.
type failing struct {
	err   error
	asked int
}

func (f *failing) RoundTrip(*http.Request) (*http.Response, error) {
	f.asked++
	return nil, f.err
}

// TestErrorsOfTheNetwork: those that only the user can do something about come at once,
// and none looks as if the caller had given up.
func TestErrorsOfTheNetwork(t *testing.T) {
	for _, f := range []failing{
		{x509.UnknownAuthorityError{}, 1},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "s3.test"}, 1},
		{context.DeadlineExceeded, 4}, // as time-outs of the network are
		{io.ErrUnexpectedEOF, 4},
		{&net.DNSError{Name: "isobar.s3.test", IsNotFound: true}, 4},
	} {
		n := &failing{err: f.err}
		_, err := newPlace(t, s3store.Options{Transport: n}).Open(t.Context(), "topology")
		if err == nil || n.asked != f.asked || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d requests: %v", n.asked, err)
		}
	}
}
