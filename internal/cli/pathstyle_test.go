package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
)

// The bucket is named in the host or in the path, as checkpoint.s3.path.style says. The
// server is a proxy: so the request shows the host that was meant, and nobody asks for
// its address. What proxy there is a process looks up once, hence a process of its own.
func TestPathStyleSaysWhereTheBucketIsNamed(t *testing.T) {
	const asChild = "CLI_ARGUMENTS"
	if line := os.Getenv(asChild); line != "" {
		os.Exit(Run(strings.Fields(line), os.Stdout, os.Stderr))
	}
	for style, want := range map[string]string{
		"":                                     "GET bucket.s3.example.test /",
		"-c checkpoint.s3.path.style=false":    "GET bucket.s3.example.test /",
		"-c checkpoint.s3.path.style=true":     "GET s3.example.test /bucket/",
		"-c checkpoint.s3.region=eu-central-1": "GET bucket.s3.example.test /",
	} {
		var mu sync.Mutex
		asked := map[string]bool{}
		store := s3test.NewServer("bucket")
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked[r.Method+" "+r.URL.Host+" "+r.URL.Path] = true
			mu.Unlock()
			if strings.HasPrefix(r.Host, "bucket.") {
				r.URL.Path = "/bucket" + r.URL.Path
			}
			store.ServeHTTP(w, r)
		}))
		defer proxy.Close()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "http_proxy=", "NO_PROXY=", "no_proxy=",
			"AWS_ACCESS_KEY_ID="+s3test.Access, "AWS_SECRET_ACCESS_KEY="+s3test.Secret, "AWS_SESSION_TOKEN=",
			asChild+"=checkpoint list s3://bucket/prefix -c checkpoint.s3.endpoint=http://s3.example.test "+style)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no checkpoints in s3://bucket/prefix") {
			t.Errorf("%q: %v\n%s", style, err, out)
		}
		mu.Lock()
		if len(asked) != 1 || !asked[want] {
			t.Errorf("%q: asked was %v, want %q", style, asked, want)
		}
		mu.Unlock()
	}
}
