package s3test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Version is that of the versitygw that tests run against.
const Version = "v1.8.0"

// Access and Secret are the credentials of the servers here.
const (
	Access = "isobar-test"
	Secret = "isobar-test-secret"
)

// SetCredentials makes Access and Secret the credentials of this process.
func SetCredentials(t testing.TB) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", Secret)
	t.Setenv("AWS_SESSION_TOKEN", "")
}

// Program returns the path of versitygw. Without one the test is skipped; in CI it
// fails.
func Program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ISOBAR_VERSITYGW")
	if path == "" {
		home, _ := os.UserHomeDir() // without one there is no such file
		path = filepath.Join(home, ".cache", "isobar-tools", "versitygw-"+Version)
	}
	if _, err := os.Stat(path); err != nil {
		skip := t.Skipf
		if os.Getenv("CI") == "true" {
			skip = t.Fatalf
		}
		skip("no S3 server to test with: %v; get it with `go install github.com/versity/versitygw/cmd/versitygw@%s` and name it in ISOBAR_VERSITYGW", err, Version)
	}
	return path
}

// Start runs versitygw as a process, on a folder of its own with a bucket of that name,
// until the test ends. It returns the endpoint.
func Start(t testing.TB, bucket string) string {
	t.Helper()
	program, dir := Program(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, bucket), 0o777); err != nil {
		t.Fatal(err)
	}
	// Two may be given the same port between here and the server's own listening.
	for range 5 {
		if endpoint := start(t, program, dir); endpoint != "" {
			return endpoint
		}
	}
	t.Fatal("versitygw does not start")
	return ""
}

func start(t testing.TB, program, dir string) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := exec.Command(program, "--access", Access, "--secret", Secret, "--port", address, "--keep-alive", "posix", dir)
	var log strings.Builder
	server.Stderr = &log
	ended, err := run(server)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-ended
		cancel()
	}()
	stop := func() {
		_ = server.Process.Kill() // it may have ended
		<-ended
	}
	if !answers(ctx, address) {
		stop()
		t.Logf("versitygw at %s: %s", address, log.String())
		return ""
	}
	t.Cleanup(stop)
	return "http://" + address
}

// run starts a process that does not outlive this one, and returns what is closed when it
// has ended.
func run(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	diesWithUs(cmd)
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // it is this thread that the process dies with
		defer runtime.UnlockOSThread()
		defer close(over)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	return over, <-started
}

// answers waits for a server to answer.
func answers(ctx context.Context, address string) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			return false
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			return resp.Body.Close() == nil && strings.HasPrefix(strings.ToLower(resp.Header.Get("Server")), "versity")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
