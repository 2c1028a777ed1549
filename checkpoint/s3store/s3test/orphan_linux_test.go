package s3test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A test process panics while a server runs: the server ends too, as the end of what both
// write to shows.
func TestServersDieWithATestThatPanics(t *testing.T) {
	const asChild = "S3TEST_PANIC"
	if os.Getenv(asChild) != "" {
		server := exec.Command("sleep", "600")
		server.Stdout = os.Stdout
		if _, err := run(server); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("started "); err != nil {
			t.Fatal(err)
		}
		panic("as it must")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), asChild+"=1")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	child.Stdout = in
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child has not panicked")
	}
	if err := out.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out) // to the end, which does not come while the server runs
	if err != nil || !strings.HasPrefix(string(text), "started ") {
		t.Errorf("the child wrote %q: %v", text, err)
	}
}
