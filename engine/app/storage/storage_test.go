package storage_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
	"github.com/isobar-io/isobar/engine/app/storage"
	"github.com/isobar-io/isobar/engine/config"
)

// checkPlace writes to a place that was found empty, and looks at it as arg names it.
func checkPlace(t *testing.T, place storage.Place, arg string, conf config.Values) {
	t.Helper()
	var steps []string
	hook := func(step string) { steps = append(steps, step) }
	for _, topology := range []string{"two", "one", "without-head"} {
		s, err := place.Open(t.Context(), topology, hook)
		if err != nil {
			t.Fatal(err)
		}
		if topology != "without-head" {
			if _, err := s.SwapHead(t.Context(), "", []byte(topology)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"head.before", "head.after", "head.before", "head.after"}; !slices.Equal(steps, want) {
		t.Errorf("the hook saw %q", steps)
	}
	named, err := storage.Named(arg, conf)
	if err != nil {
		t.Fatal(err)
	}
	names, err := named.Topologies(t.Context())
	if err != nil || !slices.Equal(names, []string{"one", "two"}) {
		t.Fatalf("topologies %q, %v", names, err)
	}
	s, err := named.Look(t.Context(), "two")
	if err != nil {
		t.Fatal(err)
	}
	if data, _, err := s.ReadHead(t.Context()); string(data) != "two" || err != nil {
		t.Errorf("the head is %q, %v", data, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func find(t *testing.T, conf config.Values, data string) storage.Place {
	t.Helper()
	p, err := storage.Find(conf, data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func values(t *testing.T, assignments ...string) config.Values {
	t.Helper()
	v, err := config.ParseAssignments(assignments)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFolders(t *testing.T) {
	data := t.TempDir()
	checkPlace(t, find(t, config.Defaults(), data), data, config.Defaults())
	other := t.TempDir()
	named := (&url.URL{Scheme: "file", Path: filepath.ToSlash(other)}).String()
	checkPlace(t, find(t, values(t, "checkpoint.store="+named), data), other, config.Defaults())
	if p, err := storage.Named(named, config.Defaults()); err != nil || p.String() != other {
		t.Errorf("%s is %v, %v", named, p, err)
	}
}

func TestBuckets(t *testing.T) {
	s3test.SetCredentials(t)
	store := s3test.NewServer("bucket")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-test-1/s3/") {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		store.ServeHTTP(w, r)
	}))
	defer server.Close()
	conf := []string{"checkpoint.s3.endpoint=" + server.URL, "checkpoint.s3.region=eu-test-1"}
	for _, named := range []string{"s3://bucket", "s3://bucket/a/b/"} {
		place := find(t, values(t, append(conf, "checkpoint.store="+named)...), t.TempDir())
		checkPlace(t, place, named, values(t, conf...))
		if place.String() != strings.TrimSuffix(named, "/") {
			t.Errorf("the place of %s is %s", named, place)
		}
	}
}

func TestWrongPlaces(t *testing.T) {
	for named, want := range map[string]string{
		"gs://bucket":        "must begin with file:// or s3://",
		"s3://":              "must be s3://BUCKET",
		"s3://bucket/a b":    `contains ' '`,
		"s3://x":             "Bucket name",
		"s3://bucket?x=y":    "must be s3://BUCKET",
		"s3://me:pw@bucket/": "must be s3://BUCKET",
	} {
		p, err := storage.Named(named, config.Defaults())
		if err == nil {
			_, err = p.Open(t.Context(), "topology", nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", named, err, want)
		}
	}
	for _, endpoint := range []string{"localhost:9000", "ftp://localhost", "http://localhost/path", "http://", "https://me:pw@localhost"} {
		if _, err := storage.Named("s3://bucket", values(t, "checkpoint.s3.endpoint="+endpoint)); err == nil || !strings.Contains(err.Error(), "checkpoint.s3.endpoint") {
			t.Errorf("endpoint %s: %v", endpoint, err)
		}
	}
	if _, err := storage.Named("s3://bucket", values(t, "checkpoint.s3.ca.file=/nowhere")); err == nil || !strings.Contains(err.Error(), "checkpoint.s3.ca.file") {
		t.Error(err)
	}
}
