package app_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/app"
)

func TestListenServesTheRun(t *testing.T) {
	for flag, loopback := range map[string]bool{":0": true, "localhost:0": true, "0.0.0.0:0": false} {
		t.Run(flag, func(t *testing.T) {
			end := make(chan struct{})
			w := &world{n: 10, open: end}
			stderr, write := io.Pipe()
			code := make(chan int, 1)
			go func() {
				code <- app.Run("sum", w.build, []string{"--data", t.TempDir(), "--listen", flag}, io.Discard, write)
				write.Close()
			}()
			lines := bufio.NewReader(stderr)
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, lines) }()
			_, address, ok := strings.Cut(strings.TrimSpace(line), "metrics at ")
			u, err := url.Parse(address)
			if !ok || err != nil {
				t.Fatalf("it said %q", line)
			}
			if ip := net.ParseIP(u.Hostname()); ip.IsLoopback() != loopback {
				t.Errorf("--listen %s listens at %s", flag, ip)
			}
			u.Host = net.JoinHostPort("127.0.0.1", u.Port())
			const want = `isobar_tuples_executed_total{component="total",source="numbers",stream="default",topology="sum"} 10`
			for deadline := time.Now().Add(time.Minute); ; {
				body := get(t, u.String())
				if strings.Contains(body, want) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("waited in vain for %s:\n%s", want, body)
				}
			}
			if body := get(t, u.JoinPath("../healthz").String()); !strings.Contains(body, `"status": "ok"`) {
				t.Errorf("health: %s", body)
			}
			close(end)
			if c := <-code; c != 0 {
				t.Errorf("exit code %d", c)
			}
			if _, err := http.Get(u.String()); err == nil {
				t.Error("it still listens")
			}
		})
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestListenRefusesWhatItCannotServe(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for addr, want := range map[string]struct {
		code int
		text string
	}{
		"9090":                  {2, "--listen 9090: must be :PORT or HOST:PORT"},
		taken.Addr().String():   {1, "address already in use"},
		":no-such-service-name": {1, "serve metrics: "},
	} {
		w := &world{n: 1}
		var stderr bytes.Buffer
		code := app.Run("sum", w.build, []string{"--data", t.TempDir(), "--listen", addr}, io.Discard, &stderr)
		if code != want.code || !strings.Contains(stderr.String(), want.text) {
			t.Errorf("--listen %s: exit code %d: %s", addr, code, stderr.String())
		}
		if w.runs != 0 {
			t.Errorf("--listen %s: it ran", addr)
		}
	}
}
