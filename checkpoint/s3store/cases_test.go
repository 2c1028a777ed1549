package s3store_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
	"github.com/isobar-io/isobar/txn"
)

// Case: an object was said to be stored and was not, a checkpoint named it, and only a
// restore found out. Here something between us and the server answers in its place.
func TestPutThatStoresNothingFails(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, func(t *testing.T) {
		n := &s3test.Network{}
		s := prepared(t, inMemory(t, n, 0))
		_, v, err := s.ReadHead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.Pick = func(*http.Request) s3test.Fault { return s3test.Swallow }
		_, headErr := s.SwapHead(t.Context(), v, []byte("next"))
		for what, err := range map[string]error{"put": putObject(t.Context(), s, "data/new", object), "swap": headErr} {
			if err == nil {
				t.Errorf("%s: it is said to be stored", what)
			}
			for _, certain := range []error{checkpoint.ErrNotFound, checkpoint.ErrExists, checkpoint.ErrHeadMoved} {
				if errors.Is(err, certain) {
					t.Errorf("%s: %v, and that is not known", what, err)
				}
			}
		}
		n.Pick = nil
		for name, call := range calls {
			if err := call(t.Context(), s); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
		}
	})
}

// Where the server does not tell the checksum of what it has stored, objects are looked at.
func TestPutOnAServerThatTellsNoChecksum(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, putWithoutChecksum)
}

func putWithoutChecksum(t *testing.T) {
	server := s3test.NewServer(bucket)
	n := &s3test.Network{Base: s3test.Direct(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if r.Method == http.MethodPut {
			w.Header().Del("X-Amz-Checksum-Crc32c")
		}
	}))}
	s := prepared(t, newPlace(t, s3store.Options{Transport: n}))
	for name, call := range calls {
		if err := call(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.Pick = func(*http.Request) s3test.Fault { return s3test.Swallow }
	if err := putObject(t.Context(), s, "data/other", object); err == nil {
		t.Error("it is said to be stored")
	}
}

// Case: what the server had to say against an upload was hidden behind an error of the
// transport, because each retry had nothing left to send.
func TestLastingRefusalIsShown(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, func(t *testing.T) {
		n := &s3test.Network{}
		s := prepared(t, inMemory(t, n, 0))
		n.Pick = func(*http.Request) s3test.Fault { return s3test.Unavailable }
		for name, call := range calls {
			if err := call(t.Context(), s); err == nil || !strings.Contains(err.Error(), "503 SlowDown") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// unread is a body that nobody needs to read.
type unread struct{ io.ReadSeeker }

// Case: what was too large for the store was tried again for ever, which looked like an
// outage. A batch that comes again after a rollback may be smaller.
func TestObjectBeyondWhatS3TakesIsFatal(t *testing.T) {
	s := open(t, inMemory(t, &s3test.Network{}, 0), "topology")
	err := s.Put(t.Context(), "data/new", unread{}, 5<<30+1, 0)
	if !txn.IsFatal(err) || !strings.Contains(err.Error(), "data/new") || !strings.Contains(err.Error(), "5368709120") {
		t.Errorf("%v", err)
	}
}

// withoutLength takes the length from replies, as a proxy does that sends them in chunks.
type withoutLength struct{ http.ResponseWriter }

func (w withoutLength) Write(p []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.ResponseWriter.Write(p)
}

// An object whose length is not told must not look empty, or damaged: that would be for good.
func TestObjectOfUnknownLengthIsNoDamage(t *testing.T) {
	s3test.SetCredentials(t)
	synctest.Test(t, func(t *testing.T) {
		server := s3test.NewServer(bucket)
		chunked := false
		s := prepared(t, newPlace(t, s3store.Options{Transport: s3test.Direct(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if chunked {
				w = withoutLength{w}
			}
			server.ServeHTTP(w, r)
		}))}))
		chunked = true
		for _, name := range []string{"Open", "ReadHead"} {
			err := calls[name](t.Context(), s)
			if err == nil || errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), "how long") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
