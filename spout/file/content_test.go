package file

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/isobar-io/isobar/spout/spouttest"
	"github.com/isobar-io/isobar/txn"
)

// pack returns text as data of a format, by its suffix.
func pack(t tester, suffix, text string) string {
	t.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if suffix == ".zst" {
		z, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	_, err := io.WriteString(w, text)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

var suffixes = []string{".gz", ".zst"}

func TestPackedConformance(t *testing.T) {
	for _, suffix := range suffixes {
		t.Run(suffix, func(t *testing.T) {
			dir := t.TempDir()
			many := strings.Repeat("some line\r\n", 400)
			write(t, filepath.Join(dir, "many"+suffix), pack(t, suffix, many+"no line feed at the end"))
			write(t, filepath.Join(dir, "empty"+suffix), pack(t, suffix, ""))
			write(t, filepath.Join(dir, "by its first bytes"), pack(t, suffix, many))
			write(t, filepath.Join(dir, "two in one"+suffix), pack(t, suffix, many+"half")+pack(t, suffix, " and half\n"))
			spouttest.Run(t, func(testing.TB) txn.Spout { return NewSpout([]string{filepath.Join(dir, "*")}) })
		})
	}
}

func TestPackedLinesAreThoseOfTheText(t *testing.T) {
	for _, suffix := range suffixes {
		path := write(t, filepath.Join(t.TempDir(), "f"+suffix), pack(t, suffix, "a\n"+strings.Repeat("x", 3*bufferBytes)+"\nb"))
		positions := map[txn.PartitionID][]byte{}
		if got := run(t, positions, path); !slices.Equal(got, []string{"a", strings.Repeat("x", 3*bufferBytes), "b"}) {
			t.Errorf("%s: %d lines", suffix, len(got))
		}
		write(t, path, pack(t, suffix, "a\n"+strings.Repeat("x", 3*bufferBytes)+"\nb")+pack(t, suffix, "\nc\n"))
		if got := run(t, positions, path); !slices.Equal(got, []string{"c"}) {
			t.Errorf("%s: what was appended gives %q", suffix, got)
		}
		if got := run(t, positions, path); len(got) > 0 {
			t.Errorf("%s: a third run gives %q", suffix, got)
		}
	}
}

func TestChangedPackedContentIsRefused(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 3<<20/16)
	for _, suffix := range suffixes {
		for name, tc := range map[string]struct{ text, want string }{
			"changed":                 {text[:2<<20] + "X" + text[2<<20+1:], "between offsets 2097152 and 3145728"},
			"cut":                     {text[:100], "has only 100 bytes, but 3145732 were counted"},
			"grown within a line":     {text + "tail and more\n", "has grown within its last line, at offset 3145732"},
			"packed in another way":   {text + "tail", ""},
			"packed, and a line more": {text + "tail\nmore\n", ""},
		} {
			path := write(t, filepath.Join(t.TempDir(), "f"+suffix), pack(t, suffix, text+"tail"))
			positions := map[txn.PartitionID][]byte{}
			run(t, positions, path)
			write(t, path, pack(t, suffix, tc.text[:50])+pack(t, suffix, tc.text[50:]))
			err := seekError(path, positions[txn.PartitionID(path)])
			if tc.want == "" && err != nil || tc.want != "" && (!txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s %s: error %v, want one with %q", suffix, name, err, tc.want)
			}
		}
	}
}

func TestDamagedPackedDataIsAnError(t *testing.T) {
	for _, suffix := range suffixes {
		whole := pack(t, suffix, strings.Repeat("some line\n", 1000))
		for name, data := range map[string]string{
			"cut":        whole[:len(whole)-6],
			"not at all": "plain text\n",
			"bad end":    whole[:len(whole)-2] + "xx",
		} {
			path := write(t, filepath.Join(t.TempDir(), "f"+suffix), data)
			r := newReader(path)
			r.take(t, nil)
			for {
				status, err := r.NextTuple(r.out)
				if err != nil {
					if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "unpacking") {
						t.Errorf("%s %s: error %v", suffix, name, err)
					}
					break
				}
				if status == txn.Finished {
					t.Errorf("%s %s: the end of damaged data counts as the end", suffix, name)
					break
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// half of a packed file is counted; then it is damaged behind that.
func TestRestartInDamagedPackedData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.gz")
	var text strings.Builder
	for i := range 200_000 {
		text.WriteString(strings.Repeat("x", i%97) + "\n")
	}
	whole := pack(t, ".gz", text.String())
	write(t, path, whole)
	r, positions := newReader(path), map[txn.PartitionID][]byte{}
	r.take(t, positions)
	for range 50 {
		if _, err := r.NextTuple(r.out); err != nil {
			t.Fatal(err)
		}
	}
	r.finish(t, positions)
	if err := os.Truncate(path, int64(len(whole)/2)); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, positions[txn.PartitionID(path)]); err != nil {
		t.Errorf("what was counted is still there: error %v", err)
	}
	if err := os.Truncate(path, 20); err != nil {
		t.Fatal(err)
	}
	if err := seekError(path, positions[txn.PartitionID(path)]); err == nil || !strings.Contains(err.Error(), "unpacking") {
		t.Errorf("error %v", err)
	}
}
