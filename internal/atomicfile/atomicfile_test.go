package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func TestWriteReplacesTheWholeAndKeepsPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("a long old content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, text("new")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(got) != "new" || info.Mode().Perm() != 0o640 {
		t.Errorf("content %q mode %v, errors %v %v", got, info.Mode(), err, statErr)
	}
	if n := names(t, filepath.Dir(path)); len(n) != 1 {
		t.Errorf("left behind: %v", n)
	}
}

func TestFailedWriteLeavesTheOldContentAndNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})
	got, _ := os.ReadFile(path)
	if !errors.Is(err, broken) || string(got) != "old" || len(names(t, filepath.Dir(path))) != 1 {
		t.Errorf("error %v, content %q, folder %v", err, got, names(t, filepath.Dir(path)))
	}
}

func TestCleanRemovesOnlyLeftOversOfThatFile(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{".f.ABC" + suffix, ".g.ABC" + suffix, ".f.txt", "f"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if n := names(t, dir); len(n) != 3 {
		t.Errorf("folder holds %v", n)
	}
}
