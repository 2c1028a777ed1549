package crash

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/filestore"
)

// small returns a corpus that is counted in a moment.
func small(t *testing.T) *corpus {
	return newCorpus(t, map[string]string{"a.txt": verses(0, 300), "b.txt": verses(300, 600)})
}

func TestMissingOutputIsWrittenAgain(t *testing.T) {
	c, p := small(t), newPlace(t, "wordcount")
	wordcount.run(t, 0, p.wordcountArgs(c))
	p.checkAll(t, c)
	ref := *p.committed(t)
	if err := os.Remove(p.output); err != nil {
		t.Fatal(err)
	}
	wordcount.run(t, 0, p.wordcountArgs(c))
	p.checkAll(t, c)
	if now := p.committed(t); *now != ref {
		t.Errorf("a rerun without new input committed %s after %s", now, ref)
	}
}

func TestNewFilesAreCountedByTheNextRun(t *testing.T) {
	c, p := small(t), newPlace(t, "wordcount")
	wordcount.run(t, 0, p.wordcountArgs(c))
	for _, name := range []string{"c.txt", "d.txt"} {
		c.add(t, name, []byte(verses(600, 700)))
		wordcount.run(t, 0, p.wordcountArgs(c))
		p.checkAll(t, c)
	}
}

// TestChangedInputIsRefused changes what was counted, in the middle of the work and
// after it, and expects an error, no change, and a good end when it is put right.
func TestChangedInputIsRefused(t *testing.T) {
	changes := map[string]func(data []byte) []byte{
		"a byte": func(data []byte) []byte { data[7] ^= 1; return data },
		"cut":    func(data []byte) []byte { return data[:7] },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			c, p := small(t), newPlace(t, "victim")
			victim.start(t, p.victimArgs(c), "CRASH_STEP=head.after", "CRASH_OCCURRENCE=3").wait()
			for _, when := range []string{"in the middle", "after the end"} {
				ref, shown := *p.committed(t), p.shown(t)
				rewrite(t, c.paths[0], change(bytes.Clone(c.texts[0].data)))
				v := victim.run(t, 1, p.victimArgs(c))
				if log := v.stderr.String(); !strings.Contains(log, c.paths[0]) || !strings.Contains(log, "offset") && name != "cut" {
					t.Errorf("%s: the error names no file or no offset:\n%s", when, log)
				}
				if now := p.committed(t); *now != ref {
					t.Errorf("%s: checkpoint %s was committed after %s, although the input had changed", when, now, ref)
				}
				if p.shown(t) != shown {
					t.Errorf("%s: the output was changed", when)
				}
				rewrite(t, c.paths[0], c.texts[0].data)
				victim.run(t, 0, p.victimArgs(c))
				p.checkAll(t, c)
			}
		})
	}
}

func rewrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedCheckpointIsRefused removes and damages, one at a time, the head and
// everything that the current checkpoint is made of.
func TestDamagedCheckpointIsRefused(t *testing.T) {
	c, p := small(t), newPlace(t, "victim")
	victim.start(t, p.victimArgs(c), "CRASH_STEP=head.after", "CRASH_OCCURRENCE=4").wait()
	names := []string{"head", p.committed(t).Manifest}
	for _, task := range p.current(t).Tasks {
		for _, f := range task.Files {
			names = append(names, f.Name)
		}
	}
	if len(names) < 5 {
		t.Fatalf("only %q to damage", names)
	}
	damages := map[string]func(t *testing.T, path string, data []byte){
		"removed": func(t *testing.T, path string, _ []byte) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"cut":     func(t *testing.T, path string, data []byte) { rewrite(t, path, data[:len(data)-1]) },
		"flipped": func(t *testing.T, path string, data []byte) { data[len(data)/2] ^= 4; rewrite(t, path, data) },
		"empty":   func(t *testing.T, path string, _ []byte) { rewrite(t, path, nil) },
	}
	shown := p.shown(t)
	for damage, apply := range damages {
		for _, name := range names {
			t.Run(damage+"/"+filepath.Base(name), func(t *testing.T) {
				path, err := filepath.Join(p.store(), filepath.FromSlash(name)), error(nil)
				if name == "head" {
					path, err = filestore.HeadFile(p.store())
				}
				if err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				apply(t, path, bytes.Clone(data))
				v := victim.run(t, 1, p.victimArgs(c))
				if log := v.stderr.String(); !strings.Contains(log, name) {
					t.Errorf("the error does not name %s:\n%s", name, log)
				}
				if p.shown(t) != shown {
					t.Error("the output was changed")
				}
				if name == "head" && damage == "removed" {
					if _, err := os.Stat(path); !os.IsNotExist(err) {
						t.Errorf("there is a new head: %v", err)
					}
				}
				rewrite(t, path, data)
				p.check(t, c)
			})
		}
	}
	victim.run(t, 0, p.victimArgs(c))
	p.checkAll(t, c)
}

// TestAnyBytes counts what text files should not hold.
func TestAnyBytes(t *testing.T) {
	const mega = 4 << 20
	for name, files := range map[string]map[string]string{
		"long line":      {"a": strings.Repeat("in the beginning ", mega/17) + "\nGod\n"},
		"long word":      {"a": strings.Repeat("x", mega) + " y\n" + strings.Repeat("x", mega)},
		"no line feed":   {"a": "one two\nthree", "b": "four", "c": "five\n"},
		"no byte":        {"a": "", "b": "one\n", "c": ""},
		"no word":        {"a": "\n\n \n1 2 3\n", "b": "é ß\n"},
		"zero bytes":     {"a": "\x00one\x00two\x00\nthree\x00", "b": strings.Repeat("\x00", 100_000)},
		"invalid UTF-8":  {"a": "caf\xc3\xa9 caf\xe9 \xff\xfe\xc0\x80word\n", "b": "\xed\xa0\x80a\xc3"},
		"carriage":       {"a": "one\r\ntwo\r\n\r\nthree\r", "b": "four\rfive\n\rsix\r\r\n"},
		"case and marks": {"a": "Lord LORD lord [lord] {lord} @lord` lord's\n"},
		"all bytes":      {"a": allBytes(), "b": strings.Repeat(allBytes(), 500)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := newCorpus(t, files), newPlace(t, "wordcount")
			wordcount.run(t, 0, p.wordcountArgs(c))
			p.checkAll(t, c)
			wordcount.run(t, 0, p.wordcountArgs(c)) // the positions fit the files
			p.checkAll(t, c)
		})
	}
}

func allBytes() string {
	var sb strings.Builder
	for b := range 256 {
		sb.WriteString("w")
		sb.WriteByte(byte(b))
	}
	return sb.String()
}
