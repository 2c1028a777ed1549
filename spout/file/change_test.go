package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/txn"
)

// seekError returns the error of going back to a position.
func seekError(path string, pos []byte) error {
	r := newReader(path)
	return r.Seek(txn.PartitionID(path), pos)
}

func TestChangedContentIsRefused(t *testing.T) {
	content := strings.Repeat("0123456789abcde\n", 3<<20/16) // 3 MiB
	for name, tc := range map[string]struct {
		content string
		change  func(path string) error
		want    string
	}{
		"first bytes":                      {content, overwrite(5), "was changed: it differs from what was counted, first between offsets 0 and 1024"},
		"first block":                      {content, overwrite(2000), "between offsets 0 and 1048576"},
		"last byte of a block":             {content, overwrite(2<<20 - 2), "between offsets 1048576 and 2097152"},
		"last block":                       {content + "tail\n", overwrite(3<<20 + 1), "between offsets 3145728 and 3145733"},
		"cut":                              {content, func(p string) error { return os.Truncate(p, 100) }, "has only 100 bytes, but 3145728 were counted: it was cut"},
		"emptied":                          {content, func(p string) error { return os.Truncate(p, 0) }, "has only 0 bytes"},
		"grown within a line":              {"half", func(p string) error { return os.WriteFile(p, []byte("half a line\n"), 0o600) }, "has grown within its last line, at offset 4"},
		"grown by a lone carriage return":  {"half", func(p string) error { return os.WriteFile(p, []byte("half\rx\n"), 0o600) }, "has grown within its last line"},
		"grown by another carriage return": {"half\r", func(p string) error { return os.WriteFile(p, []byte("half\r\r\n"), 0o600) }, "has grown within its last line"},
		"not at all":                       {content, func(string) error { return nil }, ""},
	} {
		path := write(t, filepath.Join(t.TempDir(), "f"), tc.content)
		positions := map[txn.PartitionID][]byte{}
		run(t, positions, path)
		if err := tc.change(path); err != nil {
			t.Fatal(err)
		}
		err := seekError(path, positions[txn.PartitionID(path)])
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the file's name", name, err, tc.want)
		}
	}
}

func overwrite(at int64) func(path string) error {
	return func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte("X"), at)
		return err
	}
}

func TestReplacedFileIsNamedAsSuch(t *testing.T) {
	if !identityOf(mustStat(t, t.TempDir())).known {
		t.Skip("files have no identity on this system")
	}
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "f"), "one\ntwo\n")
	positions := map[txn.PartitionID][]byte{}
	run(t, positions, path)
	same := write(t, filepath.Join(dir, "copy"), "one\ntwo\n")
	other := write(t, filepath.Join(dir, "other"), "one\nTWO\n")
	if err := os.Rename(same, path); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, positions[txn.PartitionID(path)]); err != nil {
		t.Errorf("a copy with the same content is refused: %v", err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, positions[txn.PartitionID(path)]); err == nil || !strings.Contains(err.Error(), "was replaced by another file") {
		t.Errorf("error %v", err)
	}
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// half reads some lines of a file of many and returns the position.
func half(t *testing.T, path string) []byte {
	t.Helper()
	write(t, path, strings.Repeat("line\n", 10*linesPerCall))
	r, positions := newReader(path), map[txn.PartitionID][]byte{}
	r.take(t, positions)
	if _, err := r.NextTuple(r.out); err != nil {
		t.Fatal(err)
	}
	r.finish(t, positions)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return positions[txn.PartitionID(path)]
}

func TestPartlyCountedFileMustStayInput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	pos := half(t, path)
	other := newReader(write(t, filepath.Join(dir, "other"), "x\n"))
	if err := other.Seek(txn.PartitionID(path), pos); err == nil || !strings.Contains(err.Error(), "is no longer input") {
		t.Errorf("not matched any more: error %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, pos); err == nil || !strings.Contains(err.Error(), "is gone, but only its bytes before offset 320 were counted") {
		t.Errorf("removed: error %v", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, pos); err == nil {
		t.Error("a folder in its place is accepted")
	}
}

func TestFileReplacedAfterSeekIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	pos := half(t, path)
	r := newReader(path)
	if err := r.Seek(txn.PartitionID(path), pos); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(write(t, filepath.Join(dir, "g"), "other\n"), path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NextTuple(r.out); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("error %v", err)
	}
}

func TestFileCutWhileItIsReadIsRefused(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), strings.Repeat("0123456789abcde\n", 2*bufferBytes/16))
	r := newReader(path)
	r.take(t, nil)
	if _, err := r.NextTuple(r.out); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	for {
		status, err := r.NextTuple(r.out)
		if err != nil {
			if !strings.Contains(err.Error(), "was cut to 10 bytes") {
				t.Errorf("error %v", err)
			}
			return
		}
		if status == txn.Finished {
			t.Fatal("the end of the cut file counts as the end")
		}
	}
}
