package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLockExcludesOtherOpenFilesUntilItIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder, other := open(t, path), open(t, path)
	if err := Lock(holder); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(other); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: error %v, want that it is locked", err)
	}
	if got, err := os.ReadFile(path); string(got) != "content" {
		t.Errorf("the locked file reads %q, error %v", got, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if err := Wait(ctx, other); !errors.Is(err, ErrLocked) || !errors.Is(err, over) {
		t.Errorf("a wait whose context has ended: error %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- Wait(t.Context(), other) }()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := TryLock(open(t, path)); !errors.Is(err, ErrLocked) {
		t.Errorf("beside the one that waited: error %v, want that it is locked", err)
	}
}
