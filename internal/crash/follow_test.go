//go:build linux || darwin

package crash

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestFollowedFilesAreCountedOnce kills the word count again and again while it
// follows a log that is written and rotated all the time.
func TestFollowedFilesAreCountedOnce(t *testing.T) {
	kills, seed := max(3, *killsFlag/2), *seedFlag
	if testing.Short() {
		kills = 3
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, header := range []string{"", "header\n"} {
		for name, rotate := range map[string]func(w *logWriter) error{"rename": (*logWriter).rename, "copy and cut": (*logWriter).copyAndCut} {
			t.Run(fmt.Sprintf("%s/header %q", name, strings.TrimSpace(header)), func(t *testing.T) {
				t.Parallel()
				t.Logf("%d kills, -crash.seed=%d", kills, seed)
				followAndKill(t, header, rotate, kills, rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func followAndKill(t *testing.T, header string, rotate func(w *logWriter) error, kills int, rnd *rand.Rand) {
	p := newPlace(t, "wordcount")
	w := startWriter(t, header, rotate)
	args := []string{
		"--input", filepath.Join(w.dir, "log*"), "--follow", "--output", p.output, "--data", p.data,
		"-c", "transaction.schedule.batch.delay.ms=20",
	}
	for range kills {
		last, rotations := p.batch(t), w.rotations.Load()
		v := wordcount.start(t, args)
		if !v.await(t, "a commit", func() bool { return p.batch(t) > last }) {
			t.Fatalf("the process ended: %v\n%s", v.cmd.ProcessState, &v.stderr)
		}
		v.await(t, "a rotation", func() bool { return w.rotations.Load() > rotations })
		timer := time.NewTimer(time.Duration(rnd.Int64N(int64(killDelayMax))))
		select {
		case <-timer.C:
		case <-v.ended:
		}
		timer.Stop()
		if !v.kill(t) {
			t.Fatalf("the process ended by itself:\n%s", &v.stderr)
		}
		w.check(t, p)
	}
	w.stop(t)
	v := wordcount.start(t, args)
	v.await(t, "the last line", func() bool { return strings.Contains(p.shown(t), word(w.lines-1)+"\t") })
	v.interrupt(t)
	if code := v.wait(); code != 0 {
		t.Fatalf("exit code %d, want 0\n%s", code, &v.stderr)
	}
	counts := w.check(t, p)
	if counts["common"] != w.lines || len(counts) < w.lines {
		t.Errorf("%d lines are counted, %d were written", counts["common"], w.lines)
	}
	if files := int(w.rotations.Load()) + 1; header != "" && counts["header"] != files {
		t.Errorf("%d headers are counted, %d files were begun", counts["header"], files)
	}
}

// logWriter writes a log, each line of which has a word of its own, and rotates it.
type logWriter struct {
	dir       string
	header    string
	rotate    func(w *logWriter) error
	rotations atomic.Int64
	lines     int // owned by the goroutine until it has ended

	quit  chan struct{}
	ended chan struct{}
	err   error
}

func startWriter(t *testing.T, header string, rotate func(w *logWriter) error) *logWriter {
	w := &logWriter{dir: t.TempDir(), header: header, rotate: rotate, quit: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	t.Cleanup(func() {
		select {
		case <-w.ended:
		default:
			close(w.quit)
			<-w.ended
		}
	})
	return w
}

// stop ends the writer, after one more line.
func (w *logWriter) stop(t *testing.T) {
	t.Helper()
	close(w.quit)
	<-w.ended
	if w.err != nil {
		t.Fatal(w.err)
	}
}

func (w *logWriter) log() string { return filepath.Join(w.dir, "log") }

// linesPerFile is how many lines are written between two rotations.
const linesPerFile = 400

func (w *logWriter) run() {
	defer close(w.ended)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	w.err = w.begin()
	for w.err == nil {
		select {
		case <-w.quit:
			w.err = w.write(1)
			return
		case <-tick.C:
		}
		if w.err = w.write(10); w.err == nil && w.lines%linesPerFile == 0 {
			w.err = w.rotate(w)
		}
	}
}

func (w *logWriter) begin() error { return w.append([]byte(w.header)) }

// write appends lines, the last of them in two pieces.
func (w *logWriter) write(lines int) error {
	var buf bytes.Buffer
	for range lines {
		fmt.Fprintf(&buf, "common %s\n", word(w.lines))
		w.lines++
	}
	b := buf.Bytes()
	if err := w.append(b[:len(b)-4]); err != nil {
		return err
	}
	return w.append(b[len(b)-4:])
}

func (w *logWriter) append(b []byte) error {
	f, err := os.OpenFile(w.log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Close()
}

func (w *logWriter) rotated() string {
	return fmt.Sprintf("%s.%d", w.log(), w.rotations.Load()+1)
}

// rename renames the log and begins a new one.
func (w *logWriter) rename() error {
	if err := os.Rename(w.log(), w.rotated()); err != nil {
		return err
	}
	w.rotations.Add(1)
	return w.begin()
}

// copyAndCut copies the log, piece by piece, and cuts it.
func (w *logWriter) copyAndCut() error {
	from, err := os.Open(w.log())
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(w.rotated())
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 1000)); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	if err := os.Truncate(w.log(), 0); err != nil {
		return err
	}
	w.rotations.Add(1)
	return w.begin()
}

// word returns a word that is a number, in letters.
func word(n int) string {
	digits := []byte(strconv.Itoa(n))
	for i, d := range digits {
		digits[i] = d - '0' + 'a'
	}
	return "n" + string(digits)
}

// check fails unless each word of its own that shows was counted once, with its line.
func (w *logWriter) check(t *testing.T, p place) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(p.shown(t)) {
		word, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("the output has line %q: %v", line, err)
		}
		counts[word] = n
		if word != "common" && word != "header" && n != 1 {
			t.Errorf("word %s was written once and is counted %d times", word, n)
		}
	}
	lines := len(counts)
	for _, of := range []string{"common", "header"} {
		if counts[of] > 0 {
			lines--
		}
	}
	if counts["common"] != lines {
		t.Errorf("%d lines are counted by their first word and %d by their second", counts["common"], lines)
	}
	return counts
}
