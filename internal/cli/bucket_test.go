package cli

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
)

// requests counts what a server is asked for.
type requests struct {
	http.Handler
	mu   sync.Mutex
	gets []string // of files of state: the range that is asked for
}

func (r *requests) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/data/") {
		r.mu.Lock()
		r.gets = append(r.gets, req.Header.Get("Range"))
		r.mu.Unlock()
	}
	r.Handler.ServeHTTP(w, req)
}

func TestCommandsWorkOnABucket(t *testing.T) {
	s3test.SetCredentials(t)
	counter := &requests{Handler: s3test.NewServer("bucket")}
	server := httptest.NewServer(counter)
	defer server.Close()
	on := func(args ...string) []string {
		return append(args, "-c", "checkpoint.s3.endpoint="+server.URL, "-c", "checkpoint.s3.path.style=true")
	}
	const bucket = "s3://bucket/checkpoints"
	data, _, first, second := counted(t)
	contains(t, on("checkpoint", "copy", data, bucket), "Copied checkpoint "+second.String(), "to "+bucket)
	contains(t, on("checkpoint", "copy", data, bucket), "complete before")
	contains(t, on("checkpoint", "list", bucket), "Topology words", second.String())
	contains(t, on("checkpoint", "verify", bucket, "words", "--all"), "All is right")
	counter.gets = nil
	contains(t, on("state", "get", bucket, "w03", "--state", "total"), "w03: 8\n")
	// Of each table that may have the key one part, as they are small.
	if len(counter.gets) == 0 || len(counter.gets) > 3 {
		t.Errorf("a look-up asked for %q", counter.gets)
	}
	for _, r := range counter.gets {
		if r == "" {
			t.Error("a look-up read a whole file")
		}
	}
	contains(t, on("state", "count", bucket, "--state", "seen"), "20 keys, 150 entries")
	contains(t, on("checkpoint", "pin", bucket, second.String(), "--name", "kept"), `as savepoint "kept"`)
	contains(t, on("checkpoint", "unpin", bucket, "--name", "kept"), "Nothing is let go of.")
	fails(t, exitFailed, on("txn", "rollback", "--store", bucket, "--to", first.String(), "--yes"), "there are "+second.String())
	back := filepath.Join(t.TempDir(), "back")
	contains(t, on("checkpoint", "copy", bucket, back), "0 were there")
	o := &outside{published: map[string]int{}}
	counts(t, back, 200, 2, 0, o)
	if o.total() != 50 {
		t.Errorf("%d records are published, want 50", o.total())
	}
}
